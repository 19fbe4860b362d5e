"""Lookups: queries that want one item back, made of a store's own text and judged on all of it."""

from crossfade.lookups.held_out import read_held
from crossfade.lookups.plan_on_store import plan_on_store
from crossfade.lookups.sample import Sampled, sample_pairs
from crossfade.lookups.whole_store import evaluate_on_store

__all__ = ["Sampled", "evaluate_on_store", "plan_on_store", "read_held", "sample_pairs"]
