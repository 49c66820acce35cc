"""Fixtures for all tests: toy data that fairseq can train on, written once a session."""

from pathlib import Path

import pytest

from tests import toy_data


@pytest.fixture(scope="session")
def toy_masked_lm_data(tmp_path_factory) -> Path:
    """Data for the task `masked_lm`."""
    return toy_data.write_masked_lm(tmp_path_factory.mktemp("masked_lm"))


@pytest.fixture(scope="session")
def toy_translation_data(tmp_path_factory) -> Path:
    """Data for the task `translation`, en to de."""
    return toy_data.write_translation(tmp_path_factory.mktemp("translation"))


@pytest.fixture(scope="session")
def toy_sentence_data(tmp_path_factory) -> dict[str, Path]:
    """Data for `sentence_prediction`: "single", "pairs", "mnli" (3 classes), "regression"."""
    kinds = {
        "single": {},
        "pairs": {"pairs": True},
        "mnli": {"pairs": True, "classes": 3, "splits": ("train", "valid", "valid1")},
        "regression": {"pairs": True, "classes": 4, "targets": 1},
    }
    return {
        kind: toy_data.write_sentences(tmp_path_factory.mktemp(kind), **options)
        for kind, options in kinds.items()
    }
