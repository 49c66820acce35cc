"""A tour of what you can do with a model, in cells, with the models of the quickstart.

    source .venv/bin/activate
    python examples/quickstart/tour.py

Editors such as VS Code, Spyder and PyCharm run it cell by cell.
"""

# %% Load a model: a folder with checkpoint, dictionary and tokenizer.
import logging
import sys
import warnings
from pathlib import Path

import torch

# Importing fairseq would advise to install tensorboardX.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from scripts.drawing.plots import draw_positional_correlations, save_png  # noqa: E402
from tupe_fairseq import TupeRobertaModel  # noqa: E402
from tupe_fairseq.convert.command import convert  # noqa: E402
from tupe_fairseq.huggingface import TupeForMaskedLM  # noqa: E402

# It turns on the debugging output of all libraries, and its use of hydra warns.
logging.getLogger().setLevel(logging.WARNING)
warnings.simplefilter("ignore")

MODELS = Path(".quickstart/models")
OUT = Path(".quickstart/tour")
for name in ("pretrained", "learned", "sentiment"):
    if not (MODELS / name / "model.pt").exists():
        sys.exit(
            f"error: {MODELS / name} is missing; run the tour in the folder of the repository, "
            "after bash scripts/quickstart.sh."
        )
OUT.mkdir(parents=True, exist_ok=True)

roberta = TupeRobertaModel.from_pretrained(MODELS / "pretrained")
print("parameters:", sum(parameter.numel() for parameter in roberta.model.parameters()))

# %% Fill masks. The text of pre-training is in lower case.
for _, probability, word in roberta.fill_mask("the <mask> is great."):
    print(f"{probability:.3f} {word}")

# %% Features: a vector for each token.
tokens = roberta.encode("a moving , beautiful film .")
features = roberta.extract_features(tokens)
print("features (batch × tokens × width):", tuple(features.shape))

# %% A trained head: the probabilities that a review is negative (label 0) and positive (label 1).
MEANING = {"0": "negative", "1": "positive"}
sentiment = TupeRobertaModel.from_pretrained(MODELS / "sentiment")
labels = sentiment.task.label_dictionary
for review in ("a moving , beautiful film .", "a dull and stupid mess ."):
    scores = sentiment.predict("sentence_classification_head", sentiment.encode(review))
    label = labels[scores.argmax().item() + labels.nspecial]
    print(f"{review} -> {MEANING[label]} with probability {scores.exp().max():.2f}")

# %% A new head of your own, on top of the pre-trained model.
roberta.register_classification_head("topic", num_classes=3)
print("scores of the new head:", roberta.predict("topic", tokens).tolist())

# %% Correlations between positions: H × T × T, drawn as a heat map per head.
correlations = roberta.positional_correlations(16)
figure = draw_positional_correlations(correlations, "What the heads have learned about positions")
save_png(figure, OUT / "correlations.png")
# The same model, asked for the keys that each query of head 1 prefers.
print("preferred keys of head 1:", correlations[0].argmax(dim=-1).tolist())

# %% Change the encoding: words and layers of a model with learned positions, under RoPE.
# The new model needs further training. A new model takes its encoding from --position-encoding.
if not (OUT / "rope").exists():
    source = str(MODELS / "learned" / "model.pt")
    options = ["--position-encoding", "rope", "--out", str(OUT / "rope")]
    print(*convert(["--from", "fairseq-roberta", source, *options]), sep="\n")
rope = TupeRobertaModel.from_pretrained(OUT / "rope")
print("encoding:", rope.model.args.position_encoding)

# %% Longer texts: four times as long as those of pre-training.
positions = 4 * roberta.model.max_positions()
longer = TupeRobertaModel.from_pretrained(
    MODELS / "pretrained", max_positions=positions, extend_positions="toeplitz"
)
text = torch.cat([tokens[:1], tokens[1:-1].repeat(positions // len(tokens)), tokens[-1:]])
print(f"features of {len(text)} tokens:", tuple(longer.extract_features(text).shape))

# %% Export: the same model for Hugging Face's transformers, without fairseq.
if not (OUT / "transformers").exists():
    out = str(OUT / "transformers")
    convert(["--to", "huggingface", str(MODELS / "pretrained"), "--out", out])
exported = TupeForMaskedLM.from_pretrained(OUT / "transformers")
with torch.inference_mode():
    hidden = exported(tokens[None], output_hidden_states=True).hidden_states[-1]
    difference = (hidden - roberta.extract_features(tokens)).abs().max().item()
print(f"largest difference between features with and without fairseq: {difference:.1e}")
