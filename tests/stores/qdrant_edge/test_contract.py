"""The contract of stores, on Qdrant's engine in process."""

from __future__ import annotations

from crossfade.testing import StoreContract


class TestContract(StoreContract):
    """With an application that shares the shard (`app`, in conftest.py)."""
