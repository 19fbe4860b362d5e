"""Exact retrieval metrics on vectors and relevance: pure functions that know no upgrade."""

from crossfade.retrieval.cmc import cmc
from crossfade.retrieval.mean_ap import mean_ap
from crossfade.retrieval.metric import check_metric, score
from crossfade.retrieval.ranking import Relevance, relevant_ranks
from crossfade.retrieval.relevance import neighbours, same_class

__all__ = [
    "Relevance",
    "check_metric",
    "cmc",
    "mean_ap",
    "neighbours",
    "relevant_ranks",
    "same_class",
    "score",
]
