"""Crossfade: upgrade an embedding model without re-embedding the gallery first."""

from typing import TYPE_CHECKING, Any

from crossfade._version import __version__
from crossfade.errors import BadInput, CrossfadeError

if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.upgrade import Upgrade

__all__ = ["BadInput", "CrossfadeError", "Pairs", "Upgrade", "__version__"]


def __getattr__(name: str) -> Any:
    # On first use: what a program does not touch it does not wait for.
    if name == "Pairs":
        from crossfade.pairs import Pairs

        return Pairs
    if name == "Upgrade":
        from crossfade.upgrade import Upgrade

        return Upgrade
    raise AttributeError(f"module 'crossfade' has no attribute {name!r}")
