"""A table of two thousand texts moved from one model to another while it is searched.

data (as shipped) → upgrade (every step, on a real table) with quality (asked at every stage), put
down by folder and picture; narration tells it.
"""

from crossfade.demo.texts.data import embed_new, load_texts
from crossfade.demo.texts.folder import run
from crossfade.demo.texts.upgrade import Story

__all__ = ["Story", "embed_new", "load_texts", "run"]
