"""The paper's tables and figures, from features or from images: `python -m experiments list`."""
