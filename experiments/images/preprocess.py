"""Pictures to tensors with Pillow: shorter side, centre crop, mean and deviation.

Sizes and places are rounded as torchvision rounds them, since models were trained that way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "nearest": Image.Resampling.NEAREST,
}


@dataclass(frozen=True)
class Preprocessing:
    """What a model was trained to see."""

    resize: int = 256
    crop: int = 224
    mean: tuple[float, ...] = IMAGENET[0]
    std: tuple[float, ...] = IMAGENET[1]
    filter: str = "bilinear"
    # Both sides to `resize`, whatever the picture's shape.
    squash: bool = False

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """(3, crop, crop)."""
        width, height = image.size
        shorter = min(width, height)
        sides = (shorter, shorter) if self.squash else (width, height)
        size = tuple(max(self.crop, int(self.resize * side / shorter)) for side in sides)
        image = image.resize(size, FILTERS[self.filter])
        left, top = (round((side - self.crop) / 2) for side in size)
        return self.tensor(image.crop((left, top, left + self.crop, top + self.crop)))

    def random(self, image: Image.Image, rng: np.random.Generator) -> torch.Tensor:
        """For training: a crop of random place, size (8 to 100 %) and shape, perhaps mirrored."""
        width, height = image.size
        for _ in range(10):
            area = width * height * rng.uniform(0.08, 1.0)
            ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w = h = min(width, height)
        left, top = rng.integers(0, width - w + 1), rng.integers(0, height - h + 1)
        box = (int(left), int(top), int(left) + w, int(top) + h)
        image = image.resize((self.crop, self.crop), FILTERS[self.filter], box=box)
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return self.tensor(image)

    def tensor(self, image: Image.Image) -> torch.Tensor:
        x = np.asarray(image, dtype=np.float32) / 255
        x = (x - np.float32(self.mean)) / np.float32(self.std)
        return torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))
