"""Two encodings outside of the package; importing this module registers them."""

from . import gaussian, token_slopes  # noqa: F401
