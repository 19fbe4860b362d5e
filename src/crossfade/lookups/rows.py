"""Rows of a store that pairs and lookups can be made of; the others are counted, by the reason."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.stores import Id, Store
from crossfade.stores.rows import id_list, matrix, unusable

Float = NDArray[np.float32]


@dataclass(frozen=True)
class Columns:
    """What is read of a row beside its vector."""

    source: str | None
    title: str | None
    labels: str | None

    def read(self, store: Store) -> list[str]:
        named = (store.vector, self.source, self.title, self.labels)
        return list(dict.fromkeys(name for name in named if name is not None))


@dataclass(frozen=True, eq=False)
class Part:
    """Rows that can be used, as they were read."""

    ids: list[Id]
    old: Float
    texts: list[str]
    titles: list[Any]
    labels: list[Any]


class RowReader:
    """Reads rows by id; no text is given out twice."""

    def __init__(self, store: Store, columns: Columns) -> None:
        self.store, self.columns = store, columns
        self.left_out = dict.fromkeys(
            (
                "gone since they were drawn",
                "without a usable vector",
                "without text",
                "without a label",
                "with the same text as another",
            ),
            0,
        )
        self._texts: set[bytes] = set()

    def known(self, ids: list[Id]) -> tuple[list[Id], Float, list[str]]:
        """Rows with a vector and a text, for a look at them: they can be read again."""
        read = self.store.read(ids, self.columns.read(self.store))
        old = matrix(read[self.store.vector])
        keys, texts = id_list(read[self.store.id]), self._values(read, self.columns.source)
        bad = unusable(read[self.store.vector], old)
        good = [
            row for row, text in enumerate(texts) if not bad[row] and self._lacks(text, 0) is None
        ]
        return [keys[row] for row in good], old[good], [texts[row] for row in good]

    def read(self, ids: list[Id]) -> Part:
        """The rows that can be used of these."""
        read = self.store.read(ids, self.columns.read(self.store))
        old = matrix(read[self.store.vector])
        texts, titles, labels = (
            self._values(read, name)
            for name in (self.columns.source, self.columns.title, self.columns.labels)
        )
        self.left_out["gone since they were drawn"] += len(ids) - len(read)
        good = []
        for row, bad in enumerate(unusable(read[self.store.vector], old).tolist()):
            why = "without a usable vector" if bad else self._why_not(texts[row], labels[row])
            if why is None:
                good.append(row)
            else:
                self.left_out[why] += 1
        keys = id_list(read[self.store.id])
        return Part(
            [keys[row] for row in good],
            old[good],
            [texts[row] for row in good],
            [titles[row] for row in good],
            [labels[row] for row in good],
        )

    def _values(self, read: pa.RecordBatch, name: str | None) -> list[Any]:
        return [None] * len(read) if name is None else list(read[name].to_pylist())

    def _lacks(self, text: Any, label: Any) -> str | None:
        if self.columns.labels is not None and label is None:
            return "without a label"
        if self.columns.source is not None and (not isinstance(text, str) or not text.strip()):
            return "without text"
        return None

    def _why_not(self, text: Any, label: Any) -> str | None:
        lacks = self._lacks(text, label)
        if lacks is not None or self.columns.source is None:
            return lacks
        # Equal texts have equal vectors: one on either side of the split would be seen by the fit.
        print_ = hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16)
        if print_.digest() in self._texts:
            return "with the same text as another"
        self._texts.add(print_.digest())
        return None
