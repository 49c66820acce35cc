"""DeBERTa's tokenizer whose special symbols have other ids than those of the released one."""

from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

from tests.huggingface.deberta import RELEASED, theirs_of  # noqa: E402
from tests.interop.samples import run  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402
from tupe_fairseq import TupeRobertaModel  # noqa: E402

NAMES = {"pad": "[PAD]", "cls": "[CLS]", "sep": "[SEP]", "unk": "[UNK]"}
WORDS = ["▁a", "▁the", "▁model", "s", "▁"]


def save(folder: Path, order: tuple[str, ...]) -> torch.nn.Module:
    """A model and a tokenizer whose first ids are of these symbols."""
    pieces = [*(NAMES[kind] for kind in order), *WORDS, "[MASK]"]
    model = tokenizers.models.Unigram(
        [(piece, -1.0 - i) for i, piece in enumerate(pieces)], order.index("unk")
    )
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    first, last = ((NAMES[kind], order.index(kind)) for kind in ("cls", "sep"))
    library.post_processor = tokenizers.processors.BertProcessing(last, first)
    names = {f"{kind}_token": symbol for kind, symbol in NAMES.items()}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, mask_token="[MASK]", **names
    )
    tokenizer.save_pretrained(folder)
    sizes = {"vocab_size": len(pieces) + 2, "pad_token_id": order.index("pad")}
    theirs = theirs_of("ForMaskedLM", **RELEASED, **sizes)
    theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize("order", [("pad", "cls", "sep", "unk"), ("unk", "pad", "cls", "sep")])
@torch.no_grad()
def test_each_token_keeps_its_vector(order, tmp_path):
    """There and back, as our class, and by fairseq's ids."""
    source, here, back, ours = (tmp_path / name for name in ("source", "here", "back", "ours"))
    theirs = save(source, order)
    run("--from", "huggingface", source, here)
    run("--to", "huggingface", here, back, "--classes", "deberta-v2")
    run("--to", "huggingface", here, ours)
    ids = transformers.AutoTokenizer.from_pretrained(source)("the models a the")["input_ids"]
    assert [ids[0], ids[-1]] == [order.index("cls"), order.index("sep")]
    expected = theirs(torch.tensor([ids])).logits
    for folder in (back, ours):
        auto = transformers.AutoModelForMaskedLM
        model = auto.from_pretrained(folder, trust_remote_code=True).eval()
        assert_close(model(torch.tensor([ids])).logits, expected)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        assert tokenizer("the models a the")["input_ids"] == ids
        assert model.config.pad_token_id == tokenizer.pad_token_id == order.index("pad")
    hub = TupeRobertaModel.from_pretrained(here)
    tokens = hub.encode("the models a the")
    states = theirs.deberta(torch.tensor([ids])).last_hidden_state
    assert_close(hub.extract_features(tokens), states)
