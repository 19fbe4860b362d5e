"""Asking a store under way: ways of asking, scores on one scale, and `Searcher`."""

from crossfade.search.asking import Question, Rows, Scores, joined
from crossfade.search.calibration import Sample, Scale
from crossfade.search.query_vector import QueryVectors, query_column, query_vector
from crossfade.search.searcher import Searcher, search
from crossfade.search.stage import Stage

__all__ = [
    "QueryVectors",
    "Question",
    "Rows",
    "Sample",
    "Scale",
    "Scores",
    "Searcher",
    "Stage",
    "joined",
    "query_column",
    "query_vector",
    "search",
]
