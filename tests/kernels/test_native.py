"""The compilation of the C kernels."""

import shlex

import pytest

from tupe_fairseq.kernels import native


@pytest.mark.skipif(native.find_compiler() is None, reason="there is no C compiler")
def test_a_compiler_of_several_words(tmp_path, monkeypatch):
    """As in CC="ccache gcc"."""
    monkeypatch.setenv("CC", shlex.join(["env", *native.find_compiler()]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert native.kernels.__wrapped__() is not None
    assert len(list(tmp_path.rglob("kernels-*.so"))) == 1
