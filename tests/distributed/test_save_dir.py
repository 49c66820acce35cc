"""`tupe_fairseq.distributed.save_dir`: one training at a time."""

import pytest

from tupe_fairseq import UsageError
from tupe_fairseq.distributed.save_dir import alone_in


def test_two_trainings_in_one_folder(tmp_path):
    """Each would write over the other's checkpoints."""
    folder = tmp_path / "new" / "models"
    again = pytest.raises(UsageError, match="another training writes there")
    with alone_in(str(folder)), again, alone_in(str(folder), patience=0):
        pass
    with alone_in(str(folder), patience=0):
        pass
    (tmp_path / "file").touch()
    inside = str(tmp_path / "file" / "models")
    with pytest.raises(UsageError, match="Not a directory"), alone_in(inside):
        pass
