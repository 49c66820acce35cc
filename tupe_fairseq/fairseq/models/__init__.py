"""The models fairseq knows by `--arch`; fairseq imports every file of this folder."""

from .. import commands
from ..checkpoints.reading import add_safe_checkpoint_globals
from ..hub.loading import import_numpy_compat


def prepare_process() -> None:
    """Install in this process what fairseq's commands need; no other import or call does so.

    Python code that calls fairseq's own loaders and data sets without a command can call it too.
    """
    # fairseq reads checkpoints by torch.load, which refuses the settings and meters in them.
    add_safe_checkpoint_globals()
    import_numpy_compat()


if commands.current():
    prepare_process()
