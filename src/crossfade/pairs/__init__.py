"""Pairs: rows embedded by both models, read from files and checked."""

from crossfade.pairs.pairs import PairBatch, Pairs

__all__ = ["PairBatch", "Pairs"]
