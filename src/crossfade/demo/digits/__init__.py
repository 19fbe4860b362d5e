"""The story of the paper's Figure 3, on digits that come with scikit-learn: no download.

images → network → (upgrade, measure) and (spaces → picture) → story → folder; narration tells it.
"""

from crossfade.demo.digits.folder import run
from crossfade.demo.digits.story import Story

__all__ = ["Story", "run"]
