"""The contract of stores, on indexes of FAISS."""

from __future__ import annotations

from crossfade.testing import StoreContract


class TestContract(StoreContract):
    """With the application of each kind in turn (`app`, in conftest.py)."""
