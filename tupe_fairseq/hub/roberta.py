"""`TupeRobertaModel.from_pretrained(directory)`: a trained model with RoBERTa's verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from torch import Tensor

from ..analysis import positional_correlations
from ..checks.dictionary import check_dictionary
from ..errors import UsageError
from .files import (
    check_text,
    data_folders,
    find_checkpoint,
    find_tokenizer,
    load_checkpoint,
    reading_tokenizer,
    recorded_task,
)


class TupeRobertaHubInterface(RobertaHubInterface):
    """encode, decode, extract_features, fill_mask, register_classification_head, predict, ..."""

    def __init__(self, cfg, task, model):
        super().__init__(cfg, task, model)
        # Only the pre-training task knows its mask; a fine-tuned model can fill one as well.
        self.task.mask_idx = task.source_dictionary.index("<mask>")

    def encode(self, sentence: str, *addl_sentences: str, no_separator: bool = False) -> Tensor:
        """Ids of `<s> sentence </s>`, or of `<s> a </s> </s> b </s>` for several; length T.

        Raises:
            UsageError: no tokenizer was found beside the checkpoint, or the text is none.
        """
        self._check_tokenizer()
        check_text(sentence, *addl_sentences)
        return super().encode(sentence, *addl_sentences, no_separator=no_separator)

    def extract_features(self, tokens: Tensor, return_all_hiddens: bool = False) -> Tensor:
        """Hidden states of ids, B×T or T: B×T×C, with ``return_all_hiddens`` of each layer.

        Raises:
            UsageError: more tokens than positions.
        """
        if tokens.size(-1) > self.model.max_positions():
            raise UsageError(
                f"the text has {tokens.size(-1)} tokens, but the model has "
                f"{self.model.max_positions()} positions: cut the text."
            )
        return super().extract_features(tokens, return_all_hiddens)

    @torch.no_grad()
    def fill_mask(self, masked_input: str, topk: int = 5) -> list[tuple[str, float, str]]:
        """The likeliest words at the one `<mask>`: (filled sentence, probability, word) each.

        Special symbols are left out, since they are no words. (RoBERTa's own method loses them
        from the list of words but not from that of probabilities, which then belong to others.)

        Raises:
            UsageError: not exactly one `<mask>`, no tokenizer, no text, or no such topk.
        """
        self._check_tokenizer()
        check_text(masked_input)
        if (count := masked_input.count("<mask>")) != 1:
            raise UsageError(
                f"the input must hold one <mask>, but {masked_input[:80]!r} has {count}."
            )
        dictionary = self.task.source_dictionary
        if not 0 <= topk <= len(dictionary):
            raise UsageError(f"topk is {topk}, but the dictionary has {len(dictionary)} symbols.")
        before, after = (self.bpe.encode(part.rstrip()) for part in masked_input.split("<mask>"))
        tokens = dictionary.encode_line(
            f"<s> {before} <mask> {after} </s>", append_eos=False, add_if_not_exist=False
        ).long()
        with utils.model_eval(self.model):
            logits, _ = self.model(tokens[None].to(self.device))
        # 1×T×V -> V
        probabilities = logits[0, tokens == self.task.mask_idx].float().softmax(-1)[0]
        probabilities[: dictionary.nspecial] = 0
        probabilities[self.task.mask_idx] = 0
        best = probabilities.topk(topk).indices.tolist()
        return [
            self._filled(masked_input, dictionary[index], probabilities[index].item())
            for index in best
        ]

    def _filled(self, masked_input: str, piece: str, probability: float) -> tuple[str, float, str]:
        word = self.bpe.decode(piece)
        # Decoding strips the space that sentencepiece writes as ▁ before a word.
        if piece.startswith("▁"):
            word = f" {word}"
        place = " <mask>" if " <mask>" in masked_input else "<mask>"
        return masked_input.replace(place, word), probability, word

    def predict(self, head: str, tokens: Tensor, return_logits: bool = False) -> Tensor:
        """Log-probabilities (or logits) of a classification head, B×classes.

        Raises:
            UsageError: the model has no head of that name.
        """
        heads = self.model.classification_heads
        if head not in heads:
            known = ", ".join(heads) or "none"
            raise UsageError(f"head is {head!r}, but the model's heads are: {known}.")
        return super().predict(head, tokens, return_logits)

    def positional_correlations(self, length: int) -> Tensor:
        """What positions alone add to the scores, H×T×T; see `tupe_fairseq.analysis`."""
        return positional_correlations(self.model.encoder.sentence_encoder, length)

    def _check_tokenizer(self) -> None:
        if self.bpe is None:
            raise UsageError(
                "no tokenizer: put sentencepiece.bpe.model (or encoder.json and vocab.bpe) beside "
                "the checkpoint, or pass bpe=... and its options."
            )


def load_directory(
    model_name_or_path: str | Path,
    checkpoint_file: str | None = None,
    data_name_or_path: str | Path | None = None,
    bpe: str | None = None,
    **overrides: Any,
) -> TupeRobertaHubInterface:
    """Load a checkpoint and what lies beside it.

    Args:
        model_name_or_path: directory of the checkpoint, or the checkpoint itself.
        checkpoint_file: its name; default the first there is of model.pt, checkpoint_best.pt,
            checkpoint_last.pt.
        data_name_or_path: directory of the dictionaries; relative to the checkpoint's if it begins
            with a dot. Default: the checkpoint's, and if there are none the training data's.
        bpe: name of a fairseq tokenizer; default by the files beside the checkpoint.
        **overrides: further fairseq arguments to override.

    Raises:
        UsageError: no checkpoint, one of another model or damaged, no dictionary.
    """
    directory, checkpoint_file = find_checkpoint(Path(model_name_or_path), checkpoint_file)
    # Whoever loads a model need not have the compiler that trained it.
    settings = {"compile_layers": False, **find_tokenizer(directory, bpe), **overrides}
    data = _find_dictionaries(directory, data_name_or_path, directory / checkpoint_file, settings)
    for name in ("dict.txt", "input0/dict.txt", "label/dict.txt"):
        if (data / name).is_file():
            check_dictionary(data / name)
    loaded = load_checkpoint(
        directory, checkpoint_file, data, load_checkpoint_heads=True, **settings
    )
    model = loaded["models"][0].eval()
    with reading_tokenizer(settings):
        return TupeRobertaHubInterface(loaded["args"], loaded["task"], model)


class RobertaFromPretrained:
    """Mixin before fairseq's `RobertaModel`, whose checkpoints `load_directory` loads as well."""

    from_pretrained = staticmethod(load_directory)


def _find_dictionaries(
    directory: Path, given: str | Path | None, checkpoint: Path, settings: dict[str, Any]
) -> Path:
    """The directory of dict.txt (pre-trained) or of input0/ and label/ (fine-tuned).

    Where only dict.txt is at hand for a fine-tuned model, the model is loaded all the same under
    the masked-LM task: its heads work, but class indices stay without names.
    """
    recorded = recorded_task(checkpoint, RobertaModel)
    candidates = data_folders(directory, given, recorded.get("data"))
    for folder in candidates:
        if recorded.get("_name") != "masked_lm" and (folder / "input0" / "dict.txt").is_file():
            return folder
        if (folder / "dict.txt").is_file():
            if recorded.get("_name") != "masked_lm":
                # As an older setting too: there fairseq takes what the task knows, no more.
                settings["task"] = {"_name": "masked_lm", "task": "masked_lm", "data": str(folder)}
            return folder
    raise UsageError(
        f"no dictionary: {candidates[0]} holds neither dict.txt nor input0/dict.txt; copy the "
        "training data's there."
    )
