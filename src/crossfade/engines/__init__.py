"""Where the work on batches is done: here, or by the workers of a Ray cluster."""

from crossfade.engines.choose import open_engine
from crossfade.engines.contract import Engine

__all__ = ["Engine", "open_engine"]
