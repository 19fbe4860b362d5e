"""1,797 images of handwritten digits, 8 × 8 pixels, bundled with scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# What the old model gets to see (Figure 3: "the first five classes").
SEEN = 5
CLASSES = 10
TEST_SHARE = 0.3


@dataclass(frozen=True, eq=False)
class Images:
    """Images as rows of 64 numbers in [0, 1], and the digit each one shows."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def below(self, digit: int) -> Images:
        """Only the images of digits smaller than `digit`."""
        keep = self.labels < digit
        return Images(self.pixels[keep], self.labels[keep])


def load_images(seed: int) -> tuple[Images, Images]:
    """Training and test images, every digit in both by its share.

    >>> train, test = load_images(seed=0)
    >>> len(train), len(test), len(train.below(5))
    (1257, 540, 630)
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    train, test = train_test_split(
        np.arange(len(labels)), test_size=TEST_SHARE, stratify=labels, random_state=seed
    )
    scaled = (pixels / 16.0).astype(np.float32)
    labels = labels.astype(np.int64)
    return Images(scaled[train], labels[train]), Images(scaled[test], labels[test])
