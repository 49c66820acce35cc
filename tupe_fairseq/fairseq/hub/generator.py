"""`from_pretrained` of translation and language models: translate, sample, score."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

from ...base.errors import CheckpointError, ConfigurationError, DataError
from ..arguments.transformers import LANGUAGES
from . import files, loading


class TupeGeneratorHubInterface(GeneratorHubInterface):
    """fairseq's methods translate (or sample, score), encode, decode and generate."""

    #: Whether texts are lowercased before they are split into pieces.
    lowercase = False

    def __init__(self, cfg: Any, task: Any, models: Any, translates: bool, settings: Any):
        super().__init__(cfg, task, models)
        self.translates = translates
        self.bpe = files.build_tokenizer("bpe", settings)
        self.tokenizer = files.build_tokenizer("tokenizer", settings)

    def translate(
        self, sentences: str | list[str], beam: int = 5, verbose: bool = False, **kwargs: Any
    ) -> Any:
        """The best translation of a text, or of each text of a list.

        ``beam`` is the number of hypotheses; ``kwargs`` are settings of generation, e.g. lenpen.

        Raises:
            UsageError: a language model cannot translate; a sentence is empty, too long or not
                text.
        """
        if not self.translates:
            raise ConfigurationError("a language model cannot translate: use sample.")
        return super().translate(sentences, beam, verbose, **kwargs)

    def score(
        self, sentences: str | list[str], replace_newline_with_eos: bool = False, **kwargs: Any
    ) -> Any:
        """Log-probabilities of the tokens of a text, or of each text of a list.

        With ``replace_newline_with_eos``, each line of a text is scored as a sentence.

        Returns:
            For each text a dict: "positional_scores" by token, "score" their mean, "tokens".

        Raises:
            UsageError: a translation model cannot score; a text is empty, too long or not text.
        """
        if self.translates:
            raise ConfigurationError("a translation model cannot score: use translate.")
        texts = [sentences] if isinstance(sentences, str) else sentences
        if not all(text.strip() for text in texts):
            raise DataError("a text to score is empty.")
        return super().score(sentences, replace_newline_with_eos, **kwargs)

    def generate(
        self,
        tokenized_sentences: Any,
        *args: Any,
        skip_invalid_size_inputs: Any = False,
        **kw: Any,
    ) -> Any:
        """As fairseq's.

        Raises:
            DataError: a sentence is too long.
        """
        if not (torch.is_tensor(tokenized_sentences) and tokenized_sentences.dim() == 1):
            limit: Any = self.max_positions
            limit = limit[0] if isinstance(limit, tuple) else limit
            longest = max(map(len, tokenized_sentences), default=0)
            if longest > limit and not skip_invalid_size_inputs:
                raise DataError(
                    f"a text has {longest} tokens, but the model takes at most {limit}: shorten "
                    "it."
                )
        kw["skip_invalid_size_inputs"] = skip_invalid_size_inputs
        return super().generate(tokenized_sentences, *args, **kw)

    def encode(self, sentence: str) -> Tensor:
        """Token ids of a sentence and </s>, T.

        Raises:
            DataError: the sentence is not text, or is empty and to be translated.
        """
        files.check_text(sentence)
        if self.translates and not sentence.strip():
            raise DataError("the sentence to translate is empty.")
        return super().encode(sentence.lower() if self.lowercase else sentence)


def load_generator(
    model_name_or_path: str | Path,
    checkpoint_file: str | None = None,
    data_name_or_path: str | Path | None = None,
    bpe: str | None = None,
    **overrides: Any,
) -> TupeGeneratorHubInterface:
    """Load a translation or language model, its dictionaries and its tokenizer.

    Arguments and errors are those of `hub.roberta.load_directory`.
    """
    checkpoint = files.find_checkpoint(Path(model_name_or_path), checkpoint_file)
    recorded = loading.recorded_task(checkpoint, GeneratorFromPretrained)
    languages = _languages(recorded | overrides, checkpoint)
    names = tuple(f"dict.{each}.txt" for each in languages.values()) or ("dict.txt",)
    directory = checkpoint.parent
    training_data = recorded.get("data")
    data, _ = files.find_dictionaries(directory, data_name_or_path, training_data, [names])
    settings = {**files.choose_tokenizer(bpe, directory, data), **overrides}
    # Translating needs no BLEU, whose settings the checkpoint may have recorded.
    task = {"eval_bleu": False, **languages} if languages else {}
    loaded = loading.load_checkpoint(checkpoint, data, task, **settings)
    models = [model.eval() for model in loaded["models"]]
    translates = len(languages) == 2
    hub = TupeGeneratorHubInterface(loaded["args"], loaded["task"], models, translates, settings)
    hub.lowercase = bool(files.lowercases(directory, data))
    return hub


def _languages(settings: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The two languages of a translation model; empty for a language model.

    Raises:
        CheckpointError: one is not recorded, or is no name.
    """
    languages = {name: settings.get(name) for name in LANGUAGES}
    if not any(languages.values()) and settings["_name"] != "translation":
        return {}
    for name, language in languages.items():
        if not language:
            raise CheckpointError(
                f"{checkpoint} does not record its {name}, as it was trained without -s and -t by "
                f"an older version: pass {name}=... to from_pretrained."
            )
        if Path(f"dict.{language}.txt").name != f"dict.{language}.txt":
            raise CheckpointError(
                f"{checkpoint} cannot be loaded: its settings name the language {language!r}."
            )
    return languages


class GeneratorFromPretrained:
    """Mixin of the models that `load_generator` may load, before fairseq's class of models."""

    from_pretrained = staticmethod(load_generator)
