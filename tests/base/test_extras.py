"""Imports of libraries that only an extra installs."""

import pytest

from tupe_fairseq import UsageError
from tupe_fairseq.base.extras import import_extra


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ImportError('libfoo.so.3: cannot open')", "cannot be imported: libfoo.so.3: "),
        (
            "raise OSError('Could not load this library: torchaudio/lib/_torchaudio.so')",
            r"cannot be imported: Could not .*\.so; .*: pip uninstall torchaudio\.$",
        ),
        ("import missing_dependency", "cannot be imported: No module named 'missing_dependency'"),
    ],
)
def test_a_library_that_does_not_load(source, message, tmp_path, monkeypatch):
    (tmp_path / "broken_library.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=f"^this needs broken_library, which {message}"):
        import_extra("broken_library", "hf")


def test_a_library_that_is_not_installed():
    with pytest.raises(UsageError, match=r"not installed: pip install 'tupe_fairseq\[hf\]'$"):
        import_extra("missing_library.part", "hf")
