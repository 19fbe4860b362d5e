"""Exact retrieval metrics on vectors and relevance: pure functions that know no upgrade."""

from crossfade.retrieval.measure import Measured, measure
from crossfade.retrieval.metrics import Metric, check_metric
from crossfade.retrieval.neighbours import neighbours
from crossfade.retrieval.ranking import Ranked, relevant_ranks
from crossfade.retrieval.relevance import Listed, Relevance, SameClass, from_qrels, own_by_id

__all__ = [
    "Listed",
    "Measured",
    "Metric",
    "Ranked",
    "Relevance",
    "SameClass",
    "check_metric",
    "from_qrels",
    "measure",
    "neighbours",
    "own_by_id",
    "relevant_ranks",
]
