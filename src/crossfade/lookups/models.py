"""Models as `crossfade pairs` asks them: a bounded number of texts at a time, one dimension."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossfade.embedders import BaseEmbedder, Embed, Embedder, embed_parts_checked
from crossfade.errors import EmbedderError
from crossfade.stores import Id

Float = NDArray[np.float32]
Model = str | Embedder | Embed
"""What `open_embedder` takes, an open embedder, or a function of a list of texts."""


class AskedModel:
    """An embedder, asked for a bounded number of texts at a time, whose dimension stays one."""

    def __init__(self, embedder: BaseEmbedder, dim: int | None = None) -> None:
        self.embedder, self.name = embedder, embedder.name
        self.needs_source = embedder.needs_source
        self._dim, self._stored = dim, dim is not None
        self.size = embedder.at_once

    @property
    def spent(self) -> float:
        return self.embedder.spent

    def __call__(self, ids: Sequence[Id], texts: Sequence[str]) -> Float:
        sources = texts if self.needs_source else None
        turns = embed_parts_checked(self.embedder, ids, sources, None)
        found = sorted(
            ((rows, vectors) for parts in turns for rows, vectors in parts),
            key=lambda part: int(part[0][0]),
        )
        for _, vectors in found:
            self._check_dim(vectors.shape[1])
        empty = np.empty((0, self._dim or 0), np.float32)
        return np.concatenate([empty, *(vectors for _, vectors in found)])

    def _check_dim(self, dim: int) -> None:
        if self._dim is None:
            self._dim = dim
        if dim != self._dim:
            whose = "the store's vectors have" if self._stored else "those before it have"
            raise EmbedderError(
                f"answers with vectors of {dim} dimensions where {whose} {self._dim}",
                where=self.name,
                step="make sure that it is the model that filled the store"
                if self._stored
                else "make sure that it is one model",
            )
