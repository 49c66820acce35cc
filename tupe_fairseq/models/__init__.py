"""The models fairseq knows by `--arch`; fairseq imports every file of this folder."""

import contextlib

# fairseq's --sample-break-mode eos reads np.compat, which numpy 2 has but does not import itself
# (and numpy 2.3 no longer has: setup.py asks for an older one).
with contextlib.suppress(ImportError):
    import numpy.compat  # noqa: F401
