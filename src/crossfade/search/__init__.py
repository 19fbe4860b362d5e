"""How a query is put to a store whose rows are of two models: ways of asking, and their scales."""

from crossfade.search.asking import WAYS, Asking, Weights, blended, joined
from crossfade.search.calibration import Sample, standardized

__all__ = ["WAYS", "Asking", "Sample", "Weights", "blended", "joined", "standardized"]
