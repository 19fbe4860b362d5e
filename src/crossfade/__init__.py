"""Crossfade: upgrade an embedding model without re-embedding the gallery first."""

from crossfade._version import __version__

__all__ = ["__version__"]
