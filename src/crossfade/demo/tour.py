"""The shipped texts as a LanceDB table of an old model: what a user has before an upgrade."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from crossfade.demo.models import embed_old
from crossfade.demo.texts.data import load_texts
from crossfade.errors import MissingExtra
from crossfade.files.arrow import to_arrow
from crossfade.files.atomic import replacing


@dataclass(frozen=True)
class Tour:
    """The store of the tour, its two models as a command line names them, and how much to sample:
    of two thousand rows some must be left that no model was asked for."""

    table: str
    title: str
    embed: str
    embed_old: str
    sizes: dict[str, int]


TOUR = Tour(
    "texts.lance",
    "title",
    "crossfade.demo.models:embed_new",
    "crossfade.demo.models:embed_old",
    {"rows": 600, "held": 800, "lookups": 500},
)


def make_tour(folder: Path, progress: Callable[[int, int], None] | None = None) -> Path:
    """`texts.lance` in `folder`: id, title, text and vector; one that is there stays.

    The vectors are the old model's, made here. It is there in whole or not at all.
    """
    try:
        import lance
    except ImportError as error:
        raise MissingExtra("pylance", extra="example", need="a LanceDB table") from error
    path = folder / TOUR.table
    if path.exists():
        return path
    texts = load_texts()
    if progress is not None:
        progress(0, len(texts))
    vectors = to_arrow(embed_old(texts.texts))
    columns = {"id": texts.ids, TOUR.title: texts.titles, "text": texts.texts, "vector": vectors}
    table = pa.table(columns)
    with replacing(path) as temporary:
        lance.write_dataset(table, temporary)
    if progress is not None:
        progress(len(texts), len(texts))
    return path
