"""Ray: a cluster that is joined by its address, or one of this machine for as long as it is used.

Ray Data runs what workers read by themselves: the parts of a table or of a folder. Rows that are
handed out one batch after the other, because they are read as a store has them at that moment, go
to actors.
"""

from crossfade.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
