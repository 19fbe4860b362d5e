"""Pairs: rows embedded by both models, read from files and checked."""

from crossfade.pairs.pairs import PairBatch, Pairs
from crossfade.pairs.qrels import read_qrels

__all__ = ["PairBatch", "Pairs", "read_qrels"]
