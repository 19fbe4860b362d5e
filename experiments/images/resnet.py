"""ResNet-34 with an embedding layer: the backbone of the extending-classes setting (Section 4.3).

He et al., CVPR 2016: a 7×7 convolution, then 3, 4, 6 and 3 basic blocks of 64, 128, 256 and 512
channels, average pooling. The paper puts an embedding of 128 dimensions before the classifier.
"""

from __future__ import annotations

import torch
from torch import nn

BLOCKS = (3, 4, 6, 3)
DIM = 128


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and the way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.around = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.around(x))


class ResNet34(nn.Module):
    """Images (rows, 3, height, width) to embeddings (rows, dim); `classifier` reads those."""

    def __init__(self, classes: int, dim: int = DIM) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, 64, 7, 2, 3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        ]
        before = 64
        for stage, blocks in enumerate(BLOCKS):
            after = 64 << stage
            for i in range(blocks):
                layers.append(BasicBlock(before, after, 2 if stage and i == 0 else 1))
                before = after
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.embedding = nn.Linear(before, dim)
        self.classifier = nn.Linear(dim, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.embedding(self.body(x))
