"""Checks of files that all ranks share, run on one rank."""

from collections.abc import Callable

import torch.distributed as dist

from ..errors import UsageError


def on_first_rank(check: Callable[[], None], rank: int) -> None:
    """Run a check on rank 0; its error is raised on all ranks.

    All ranks must call it. The other ranks wait for rank 0 if torch.distributed is initialised,
    and return at once otherwise.

    Args:
        check: raises a `UsageError`.
        rank: of this process, where torch.distributed is not initialised.

    Raises:
        UsageError: the check failed on rank 0.
    """
    together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    rank = dist.get_rank() if together else rank
    found: list[UsageError | None] = [None]
    try:
        if rank == 0:
            check()
    except UsageError as error:
        found = [error]
    finally:
        # Also where another error is raised, so that no rank waits for ever.
        if together:
            dist.broadcast_object_list(found)
    if found[0] is not None:
        raise found[0]
