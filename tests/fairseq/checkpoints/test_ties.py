"""Checkpoints without tied embeddings, for models that tie them."""

import pytest

from tests import fairseq_commands as fc
from tupe_fairseq.fairseq.commands import running

ALWAYS = ("--position-encoding", "rope", "--disable-validation", "--max-update")
CASES = {
    "roberta": (fc.pretrain, "toy_masked_lm_data", "--untie-weights-roberta", False),
    "lm": (fc.train_lm, "toy_masked_lm_data", "--share-decoder-input-output-embed", True),
    "translation": (fc.train_translation, "toy_translation_data", "--share-all-embeddings", True),
}


@pytest.mark.parametrize("case", CASES)
def test_one_matrix_does_not_replace_the_other(case, tmp_path, request):
    train, data, flag, ties = CASES[case]
    data = request.getfixturevalue(data)
    untied = train(data, tmp_path / "untied", *ALWAYS, 3, *([] if ties else [flag]))
    # The command ends with one line.
    told = f"are tied in this model, but differ in the checkpoint: .*{flag}"
    with running("train"), pytest.raises(SystemExit, match=told):
        train(
            data,
            tmp_path / "tied",
            *(*ALWAYS, 1, "--finetune-from-model", untied),
            *([flag] if ties else []),
        )
