"""An upgrade: both maps, how they were learned, and how they are kept and applied."""

from crossfade.upgrade.upgrade import Upgrade

__all__ = ["Upgrade"]
