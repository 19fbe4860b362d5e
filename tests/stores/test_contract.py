"""The contract of stores, on each of them."""

from __future__ import annotations

from crossfade.testing import StoreContract


class TestContract(StoreContract):
    """With the application of each store in turn (`app`, in conftest.py)."""
