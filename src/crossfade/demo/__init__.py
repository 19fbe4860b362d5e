"""The story of the paper's Figure 3, on digits that come with scikit-learn: no download.

digits → network → (upgrade, measure) and (spaces → picture) → story → folder; narration tells it.
"""

from crossfade.demo.story import Story, tell

__all__ = ["Story", "tell"]
