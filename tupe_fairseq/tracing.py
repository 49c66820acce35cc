"""What torch before 2.7 lacks about the tracing of programs."""

from collections.abc import Callable

import torch

#: Whether torch.export traces. Before 2.7 torch cannot tell, nor export these models.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)
