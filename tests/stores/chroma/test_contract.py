"""The contract of stores, on a folder of Chroma and on its server."""

from __future__ import annotations

from crossfade.testing import StoreContract


class TestContract(StoreContract):
    """With the application of each in turn (`app`, in conftest.py)."""
