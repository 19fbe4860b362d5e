"""The contract of stores, on a file of milvus-lite.

On a server the same suite takes some minutes, for every test loads its collections: run it with
CROSSFADE_MILVUS=server, which the `app` of these tests looks at.
"""

from __future__ import annotations

from crossfade.testing import StoreContract


class TestContract(StoreContract):
    """With the application of conftest.py."""
