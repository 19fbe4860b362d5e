"""For those who write a store: the contract as a suite of tests. It needs pytest."""

from crossfade.testing.store_contract import App, StoreContract

__all__ = ["App", "StoreContract"]
