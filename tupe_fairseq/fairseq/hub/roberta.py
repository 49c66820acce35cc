"""`TupeRobertaModel.from_pretrained(directory)`: a trained model with RoBERTa's methods."""

from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.models.roberta import RobertaModel
from fairseq.models.roberta.hub_interface import RobertaHubInterface
from torch import Tensor

from ...base.errors import ConfigurationError, DataError
from ...transformer.analysis import positional_correlations
from . import files, loading
from .tokenizer_json import TokenizerJson


class TupeRobertaHubInterface(RobertaHubInterface):
    """encode, decode, extract_features, fill_mask, register_classification_head, predict, ..."""

    #: Whether texts are lowercased before they are split into pieces.
    lowercase = False

    def __init__(
        self, cfg: Any, task: Any, model: Any, settings: Any = None, separator: bool | None = None
    ):
        super().__init__(cfg, task, model)
        self.bpe = files.build_tokenizer("bpe", settings or {})
        if isinstance(self.bpe, TokenizerJson):
            self.bpe.check_dictionary(task.source_dictionary)
        if separator is None:
            types = getattr(model.args, "type_vocab_size", None) or 0
            separator = types < 2 and not getattr(self.bpe, "separates_once", False)
        #: Whether a second </s> separates two sentences.
        self.separator = separator
        # The task of a fine-tuned model has no mask_idx, but the model can still fill a mask.
        self.task.mask_idx = task.source_dictionary.index("<mask>")

    def encode(
        self, sentence: str, *addl_sentences: str, no_separator: bool | None = None
    ) -> Tensor:
        """Token ids of `<s> sentence </s>`, or of `<s> a </s> </s> b </s>` for several; T.

        A fine-tuned model has a second </s> between sentences if its training had one. Other
        models have none, `<s> a </s> b </s>`, if they have token types or the tokenizer.json of
        BERT or DeBERTa. ``no_separator`` overrides this.

        Raises:
            DataError: there is no tokenizer beside the checkpoint, or a sentence is not text.
        """
        self._check_tokenizer()
        sentences = [self._preprocessed(text) for text in (sentence, *addl_sentences)]
        none = not self.separator if no_separator is None else no_separator
        return super().encode(*sentences, no_separator=none)

    def decode(self, tokens: Tensor) -> str | list[str]:
        """The text of ids (T), or the texts of several sentences."""
        self._check_tokenizer()
        if self.separator:
            return super().decode(tokens)
        dictionary = self.task.source_dictionary
        sentences: list[list[int]] = [[]]
        for number in tokens.tolist():
            if number == dictionary.eos():
                sentences.append([])
            elif number != dictionary.bos():
                sentences[-1].append(number)
        # </s> ends the last one.
        ended = sentences if len(sentences) == 1 or sentences[-1] else sentences[:-1]
        texts = [self.bpe.decode(dictionary.string(torch.tensor(ids))) for ids in ended]
        return texts[0] if len(texts) == 1 else texts

    def _preprocessed(self, text: str) -> str:
        files.check_text(text)
        return text.lower() if self.lowercase else text

    @torch.no_grad()
    def fill_mask(self, masked_input: str, topk: int = 5) -> list[tuple[str, float, str]]:
        """The likeliest pieces at `<mask>`, each as (filled sentence, probability, piece).

        Special symbols and `<mask>` are left out. (RoBERTa's own method drops them from the list
        of pieces but not from that of probabilities, which then belong to other pieces.)

        Raises:
            UsageError: the input is not text or has not exactly one `<mask>`, there is no
                tokenizer, or topk is negative or larger than the dictionary.
        """
        self._check_tokenizer()
        masked_input = self._preprocessed(masked_input)
        count = masked_input.count("<mask>")
        if count != 1:
            raise DataError(
                f"the input must have one <mask>, but {masked_input[:80]!r} has {count}."
            )
        dictionary = self.task.source_dictionary
        special = [*range(dictionary.nspecial), self.task.mask_idx]
        pieces = len(dictionary) - len(special)
        if not 0 <= topk <= pieces:
            raise ConfigurationError(f"topk is {topk}, but the dictionary has {pieces} pieces.")
        before, after = (self.bpe.encode(part.rstrip()) for part in masked_input.split("<mask>"))
        tokens = dictionary.encode_line(
            f"<s> {before} <mask> {after} </s>", append_eos=False, add_if_not_exist=False
        ).long()
        tokens = tokens[None].to(self.device)
        with utils.model_eval(self.model):
            logits, _ = self.model(tokens, masked_tokens=tokens == self.task.mask_idx)
        # 1×V -> V
        probabilities = logits[0].float().softmax(-1)
        # Below 0, which the probability of a piece may be.
        probabilities[special] = -1
        best = probabilities.topk(topk).indices.tolist()
        return [
            self._filled(masked_input, dictionary[index], probabilities[index].item())
            for index in best
        ]

    def _filled(self, masked_input: str, piece: str, probability: float) -> tuple[str, float, str]:
        word = self.bpe.decode(piece)
        # Decoding may strip the space before a word.
        begins = getattr(self.bpe, "is_beginning_of_word", lambda piece: piece.startswith("▁"))
        if begins(piece):
            word = f" {word.lstrip(' ')}"
        place = " <mask>" if " <mask>" in masked_input else "<mask>"
        return masked_input.replace(place, word), probability, word

    def predict(self, head: str, tokens: Tensor, return_logits: bool = False) -> Tensor:
        """Log-probabilities (or logits) of a classification head, B×classes.

        Raises:
            ConfigurationError: the model has no head of that name.
        """
        heads = self.model.classification_heads
        if head not in heads:
            known = ", ".join(heads) or "none"
            raise ConfigurationError(f"head is {head!r}, but the model's heads are: {known}.")
        tokens = tokens[None] if tokens.dim() == 1 else tokens
        logits, _ = self.model(tokens.to(self.device), classification_head_name=head)
        return logits if return_logits else logits.log_softmax(-1)

    def positional_correlations(self, length: int) -> Tensor:
        """The positional term of the scores, H×T×T; see `tupe_fairseq.transformer.analysis`."""
        return positional_correlations(self.model.encoder.sentence_encoder, length)

    def _check_tokenizer(self) -> None:
        if self.bpe is None:
            raise DataError(
                "no tokenizer: put sentencepiece.bpe.model (or encoder.json and vocab.bpe, or "
                "tokenizer.json) beside the checkpoint, or pass bpe=... and its options."
            )


def load_directory(
    model_name_or_path: str | Path,
    checkpoint_file: str | None = None,
    data_name_or_path: str | Path | None = None,
    bpe: str | None = None,
    **overrides: Any,
) -> TupeRobertaHubInterface:
    """Load a model, its dictionaries and its tokenizer.

    Args:
        model_name_or_path: directory of the checkpoint, or the checkpoint itself.
        checkpoint_file: its name. Default: the first that exists of model.pt, checkpoint_best.pt
            and checkpoint_last.pt.
        data_name_or_path: directory of the dictionaries; relative to the checkpoint's if it begins
            with a dot. Default: the checkpoint's.
        bpe: name of a fairseq tokenizer. Default: the one whose files are beside the checkpoint,
            or else beside the dictionaries.
        **overrides: further fairseq arguments to override.

    Raises:
        UsageError: the checkpoint, a dictionary or the tokenizer is missing or cannot be loaded,
            or the checkpoint is of another model.
    """
    checkpoint = files.find_checkpoint(Path(model_name_or_path), checkpoint_file)
    directory = checkpoint.parent
    recorded = loading.recorded_task(checkpoint, RobertaModel)
    finetuned = recorded.get("_name") != "masked_lm"
    alternatives = [("input0/dict.txt",), ("dict.txt",)] if finetuned else [("dict.txt",)]
    data, (dictionary,) = files.find_dictionaries(
        directory, data_name_or_path, recorded.get("data"), alternatives
    )
    tokenizer = files.choose_tokenizer(bpe, directory, data)
    # Loading a model must not need the C++ compiler that training it may have used.
    settings = {"compile_layers": False, **tokenizer, **overrides}
    # Without labels, heads work, but classes have no names. "task" is the older setting, from
    # which fairseq takes what the task declares.
    nameless = finetuned and dictionary == "dict.txt"
    task = dict.fromkeys(("_name", "task"), "masked_lm") if nameless else None
    loaded = loading.load_checkpoint(
        checkpoint, data, task, load_checkpoint_heads=True, **settings
    )
    model = loaded["models"][0].eval()
    separator = files.separates(recorded, directory, data)
    hub = TupeRobertaHubInterface(loaded["args"], loaded["task"], model, settings, separator)
    hub.lowercase = bool(files.lowercases(directory, data))
    return hub


class RobertaFromPretrained:
    """Mixin before fairseq's `RobertaModel`, whose checkpoints `load_directory` loads as well."""

    from_pretrained = staticmethod(load_directory)
