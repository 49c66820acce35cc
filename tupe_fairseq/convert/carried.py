"""Files beside a model that conversions carry unchanged."""

import json
from pathlib import Path

from ..base.errors import DataError
from ..fairseq.hub.files import GPT2, PREPROCESSING, SENTENCEPIECE

#: fairseq's dictionary, whose ids a directory of transformers may have as well.
DICTIONARY = "dict.txt"
#: Names of classes, in folders of data and of fine-tuned models.
LABELS = "label/dict.txt"
MODULES = "modules.json"
#: Settings of a model of sentence-transformers.
MODEL = "config_sentence_transformers.json"
#: Settings of its texts; it reads the first of these that exists.
SENTENCES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
#: Beside modules.json.
NAMES = (MODULES, MODEL, *SENTENCES)


def fairseq_files(dictionary: Path) -> dict[str, bytes]:
    """The files of `--bpe sentencepiece` and `--bpe gpt2` beside a dictionary, and itself."""
    paths = (dictionary.with_name(name) for name in (SENTENCEPIECE, *GPT2, PREPROCESSING))
    files = {path.name: path.read_bytes() for path in paths if path.is_file()}
    return files | ({DICTIONARY: dictionary.read_bytes()} if dictionary.is_file() else {})


def sentence_files(folder: Path) -> dict[str, bytes]:
    """Files of sentence-transformers: modules.json, its modules but the model, and settings.

    Raises:
        DataError: modules.json is damaged, or names a folder elsewhere.
    """
    path = folder / MODULES
    if not path.is_file():
        return {}
    try:
        parts = [Path(each["path"]) for each in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    files = [folder / name for name in NAMES if (folder / name).is_file()]
    for part in parts:
        if part.is_absolute() or ".." in part.parts:
            raise DataError(f"{path} names {str(part)!r}, which is not a folder beside it.")
        files += [each for each in (folder / part).rglob("*") if part.parts and each.is_file()]
    return {each.relative_to(folder).as_posix(): each.read_bytes() for each in files}
