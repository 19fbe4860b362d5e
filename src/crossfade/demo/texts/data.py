"""Two thousand texts, six hundred lookups and both models' vectors of them, as shipped.

Texts are descriptions out of docstrings (LICENCES.txt says whose), the title of each the summary
above it; a lookup is one of these titles and wants its text back. Made by examples/demo_data.py; no
model is needed to read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float32]

FILE = "texts.npz"
OLD_MODEL, NEW_MODEL = "wordllama-l2-supercat-256", "all-MiniLM-L6-v2"
# Lookups the upgrade is judged and planned with; the others ask the table at every stage.
PLANNED_WITH = 300


@dataclass(frozen=True, eq=False)
class Vectors:
    """Unit vectors of the same rows by both models, (n, 256) and (n, 384)."""

    old: Float
    new: Float

    def rows(self, which: NDArray[np.integer] | slice) -> Vectors:
        return Vectors(self.old[which], self.new[which])

    def __len__(self) -> int:
        return len(self.old)


@dataclass(frozen=True, eq=False)
class Lookups:
    """Queries, each wanting one document: that of the number `wanted`."""

    texts: list[str]
    vectors: Vectors
    wanted: NDArray[np.int64]

    def rows(self, which: slice) -> Lookups:
        return Lookups(self.texts[which], self.vectors.rows(which), self.wanted[which])

    def __len__(self) -> int:
        return len(self.wanted)


@dataclass(frozen=True, eq=False)
class Texts:
    """Documents in the order of their ids, and the lookups that ask for some of them."""

    ids: list[str]
    titles: list[str]
    texts: list[str]
    vectors: Vectors
    lookups: Lookups

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def planned_with(self) -> Lookups:
        """Known before the upgrade: what it is judged and planned with."""
        return self.lookups.rows(slice(PLANNED_WITH))

    @property
    def asked(self) -> Lookups:
        """Those of the people who search: nothing was decided with them."""
        return self.lookups.rows(slice(PLANNED_WITH, None))


@cache
def load_texts() -> Texts:
    """The shipped data.

    >>> texts = load_texts()
    >>> len(texts), len(texts.planned_with), len(texts.asked), texts.vectors.new.shape
    (2000, 300, 300, (2000, 384))
    """
    with (
        as_file(files(__package__) / FILE) as path,
        np.load(path, allow_pickle=False) as held,
    ):
        return Texts(
            ids=_lines(held["ids"]),
            titles=_lines(held["titles"]),
            texts=_lines(held["texts"]),
            vectors=Vectors(*(_vectors(held, f"document_{side}") for side in ("old", "new"))),
            lookups=Lookups(
                _lines(held["lookups"]),
                Vectors(*(_vectors(held, f"lookup_{side}") for side in ("old", "new"))),
                held["wanted"].astype(np.int64),
            ),
        )


def embed_new(texts: list[str]) -> Float:
    """Stands for the new model: its vectors of documents, looked up by their text.

    As `--embed crossfade.demo.texts:embed_new` on the command line.

    >>> embed_new(load_texts().texts[:3]).shape
    (3, 384)
    """
    rows = _rows_by_text()
    return load_texts().vectors.new[[rows[text] for text in texts]]


@cache
def _rows_by_text() -> dict[str, int]:
    return {text: row for row, text in enumerate(load_texts().texts)}


def _lines(held: NDArray[np.uint8]) -> list[str]:
    return held.tobytes().decode().split("\n")


def _vectors(held: np.lib.npyio.NpzFile, name: str) -> Float:
    rows = held[name].astype(np.float32) * held[f"{name}_scale"][:, None]
    # Rounding moves lengths by a little: both models' vectors are of length one.
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)
