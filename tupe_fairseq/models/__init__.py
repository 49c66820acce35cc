"""The models fairseq knows by `--arch`; fairseq imports every file of this folder."""

import contextlib

from .. import commands
from ..checkpoints.reading import add_safe_checkpoint_globals


@commands.at_start
def prepare_process() -> None:
    """Install in this process what fairseq's commands need; no other import or call does so.

    Python code that calls fairseq's own loaders and data sets without a command can call it too.
    """
    # fairseq reads checkpoints by torch.load, which refuses the settings and meters in them.
    add_safe_checkpoint_globals()
    # fairseq's --sample-break-mode eos reads np.compat, which numpy 2 has but does not import
    # itself (and numpy 2.3 no longer has: setup.py asks for an older one).
    with contextlib.suppress(ImportError):
        import numpy.compat  # noqa: F401
