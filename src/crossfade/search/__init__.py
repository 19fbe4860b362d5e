"""Scores of two models on one scale, for the rows that a search has found."""

from crossfade.search.asking import Question, Rows, joined
from crossfade.search.calibration import Sample, standardized

__all__ = ["Question", "Rows", "Sample", "joined", "standardized"]
