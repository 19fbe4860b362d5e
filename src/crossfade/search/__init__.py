"""Asking a store under way: ways of asking, scores on one scale, and `Searcher`."""

from crossfade.search.asking import Question, Rows, joined
from crossfade.search.calibration import Sample, standardized
from crossfade.search.searcher import Searcher, search

__all__ = ["Question", "Rows", "Sample", "Searcher", "joined", "search", "standardized"]
