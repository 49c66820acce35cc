"""`from_pretrained` of translation and language models: translate, sample, score."""

from pathlib import Path
from typing import Any

from fairseq.hub_utils import GeneratorHubInterface
from torch import Tensor

from ..checks import read_dictionary
from ..errors import ConfigurationError, DataError
from . import files


class TupeGeneratorHubInterface(GeneratorHubInterface):
    """fairseq's methods translate (or sample, score), encode, decode and generate."""

    def __init__(self, cfg: Any, task: Any, models: Any, translates: bool):
        super().__init__(cfg, task, models)
        self.translates = translates

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
            UsageError: a translation model cannot score; a text is too long or not text.
        """
        if self.translates:
            raise ConfigurationError("a translation model cannot score: use translate.")
        return super().score(sentences, replace_newline_with_eos, **kwargs)

    def encode(self, sentence: str) -> Tensor:
        """Token ids of a sentence and </s>, T.

        Raises:
            DataError: the sentence is not text, or is empty and to be translated.
        """
        files.check_text(sentence)
        if self.translates and not sentence.strip():
            raise DataError("the sentence to translate is empty.")
        return super().encode(sentence)

    def generate(
        self, tokenized_sentences: Any, beam: int = 5, verbose: bool = False, **kwargs: Any
    ) -> Any:
        """As fairseq's: for each sentence of token ids a list of hypotheses, best first.

        Raises:
            DataError: a sentence has more tokens than the model has positions.
        """
        longest = self.max_positions[0] if self.translates else self.max_positions
        # fairseq also takes a single sentence, a tensor of one dimension.
        single = isinstance(tokenized_sentences, Tensor) and tokenized_sentences.dim() == 1
        for sentence in [tokenized_sentences] if single else tokenized_sentences:
            if len(sentence) > longest and not kwargs.get("skip_invalid_size_inputs"):
                raise DataError(
                    f"a sentence has {len(sentence)} tokens, but the model takes {longest}: "
                    "split it, or pass skip_invalid_size_inputs=True to leave it out."
                )
        return super().generate(tokenized_sentences, beam, verbose, **kwargs)


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
    directory, checkpoint_file = files.find_checkpoint(Path(model_name_or_path), checkpoint_file)
    recorded = files.recorded_task(directory / checkpoint_file, GeneratorFromPretrained)
    languages = [recorded.get("source_lang"), recorded.get("target_lang")]
    names = [f"dict.{language}.txt" for language in languages if language] or ["dict.txt"]
    folders = files.data_folders(directory, data_name_or_path, recorded.get("data"))
    data = _find_dictionaries(folders, names)
    # Translating needs no BLEU, whose settings the checkpoint may have recorded.
    settings = {"eval_bleu": False, **files.find_tokenizer(directory, bpe), **overrides}
    loaded = files.load_checkpoint(directory, checkpoint_file, data, **settings)
    models = [model.eval() for model in loaded["models"]]
    translates = len(names) == 2
    with files.reading_tokenizer(settings):
        return TupeGeneratorHubInterface(loaded["args"], loaded["task"], models, translates)


class GeneratorFromPretrained:
    """Mixin of the models that `load_generator` may load, before fairseq's class of models."""

    from_pretrained = staticmethod(load_generator)


def _find_dictionaries(folders: list[Path], names: list[str]) -> Path:
    for folder in folders:
        if all((folder / name).is_file() for name in names):
            for name in names:
                read_dictionary(folder / name)
            return folder
    raise DataError(
        f"no dictionary: {folders[0]} does not hold {' and '.join(names)}; copy the training "
        "data's there."
    )
