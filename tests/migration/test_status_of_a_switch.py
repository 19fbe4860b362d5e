"""Of which model the vectors are that an application finds by its own name, as `status` says it and
as the application sees it: before every act of a `finish` that makes something durable, and after
kills on both sides of the switch."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import warnings
from contextlib import closing
from itertools import count
from pathlib import Path

import numpy as np
import psycopg
import pytest
from tests.adversary import models
from tests.adversary.acts import Acts
from tests.adversary.history import Content
from tests.adversary.tables import open_table
from tests.adversary.world import memory
from tests.stores.chroma.server import Server as ChromaServer
from tests.stores.postgres import fresh_database

from crossfade import Upgrade
from crossfade.journal.columns import VECTOR
from crossfade.migration import Migration
from crossfade.stores.milvus import promote as milvus_promote
from crossfade.stores.rows import matrix

# More than Parquet's application puts into one file, so that its files change places one by one.
ROWS = 30
KINDS = (
    "chroma",
    "faiss",
    "lancedb",
    "milvus",
    "parquet",
    "pgvector",
    "qdrant",
    "qdrant-edge",
    "sqlite",
)
# Where nothing but a look at the file itself tells old vectors from new ones.
ALIKE = ("faiss", "parquet", "sqlite")
# Those whose switch has a middle: two renames, files one by one, vectors that are made anew.
BETWEEN = ("chroma", "milvus", "parquet", "qdrant", "qdrant-edge")
# Whose switch is one transaction.
TOGETHER = ("pgvector", "sqlite")
TEXTS = [f"row {key}" for key in range(ROWS)]
_made = count()
_spawning = multiprocessing.get_context("forkserver")
_spawning.set_forkserver_preload(
    [
        "tests.migration.test_status_of_a_switch",
        # A run has one server, and the last module that is collected says what it has ready.
        "tests.faults.migrating",
        "chromadb.api.fastapi",
        "crossfade.stores.chroma.store",
        "crossfade.stores.lance.store",
        "crossfade.stores.milvus.store",
        "crossfade.stores.postgres.store",
        "crossfade.stores.qdrant_edge.store",
        "crossfade.stores.sqlite.store",
        "lance.dataset",
        "milvus_lite.adapter.grpc.server",
    ]
)
# Lance starts its threads when it is used, and nobody uses it before the fork.
warnings.filterwarnings("ignore", message="lance is not fork-safe")


@pytest.fixture(scope="module")
def upgrades(tmp_path_factory):
    """Upgrades to a model of another dimension, and to one of the same."""
    folder, texts = tmp_path_factory.mktemp("upgrades"), [f"a pair {n}" for n in range(300)]
    for name, dim in (("other", models.N), ("same", models.D)):
        new = models.new(texts)[:, :dim]
        Upgrade(solver="closed_form").fit(models.old(texts), new).save(folder / name)
    return folder


@pytest.fixture(scope="module")
def chroma():
    server = ChromaServer(memory())
    yield server
    server.stop()


@pytest.fixture
def folder():
    """In memory, where there is one: a kill loses nothing that a disk would keep."""
    made = Path(tempfile.mkdtemp(prefix="switch", dir=memory()))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def address(request, folder):
    """Makes an address of a kind for another table."""

    def of(kind: str) -> str:
        number = next(_made)
        place = folder / str(number)
        place.mkdir()
        if kind == "chroma":
            return f"{request.getfixturevalue('chroma').url}#items-{os.getpid()}-{number}"
        if kind == "pgvector":
            return f"{fresh_database()}#items"
        return {
            "faiss": f"faiss:{place / 'items' / 'items.index'}",
            "lancedb": str(place / "db" / "items.lance"),
            "milvus": f"milvus:{place / 'milvus.db'}#items",
            "parquet": str(place / "items"),
            "qdrant": f"qdrant:{place / 'qdrant'}#items",
            "qdrant-edge": f"qdrant-edge:{place / 'shard'}",
            "sqlite": f"sqlite:{place / 'sqlite' / 'shop.db'}#items",
        }[kind]

    return of


def lifted(kind: str, place: str, upgrade: Path, folder: Path) -> Path:
    """Make a table whose rows are all lifted; gives a file of their old and shared vectors."""
    old = models.old(TEXTS)
    rows = {n: Content(text, n, old[n], (text,)) for n, text in enumerate(TEXTS)}
    with closing(open_table(kind, place)) as table:
        table.create(rows, indexed=False)
    with closing(Migration(place, upgrade)) as migration:
        migration.start(source=None, force=True)
        migration.forward()
        assert migration.status().own_vectors == "old"
        store, new = migration.store, {}
        for batch in store.stream([VECTOR]):
            ids = map(int, batch[store.id].to_pylist())
            new |= dict(zip(ids, matrix(batch[VECTOR]), strict=True))
    file = folder / f"{next(_made)}.npz"
    np.savez(file, old=unit(old), new=unit(np.array([new[n] for n in range(ROWS)])))
    assert own_vectors(kind, place, sides_of(file)) == "old"
    return file


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def own_vectors(kind: str, place: str, sides) -> str:
    """What the application finds by its own library, having opened nothing before."""
    with closing(open_table(kind, place)) as table:
        if table.dimension() is None:
            return "neither"
        found = {row.id: row.vector for row in table.rows()}
    assert sorted(found) == list(range(ROWS))
    for name, wanted in zip(("old", "new"), sides, strict=True):
        if all(
            v is not None
            and v.shape == wanted[n].shape
            and np.allclose(unit(v), wanted[n], atol=1e-4)
            for n, v in found.items()
        ):
            return name
    return "neither"


def sides_of(file: Path) -> list[np.ndarray]:
    with np.load(file) as held:
        return [held[name] for name in ("old", "new")]


def said(place: str) -> str:
    """As `crossfade migrate status` finds it."""
    with closing(Migration(place)) as migration:
        return migration.status().own_vectors


def finish(kind: str, place: str, file: Path, answer: Path, at: int = -1) -> None:
    """In a process of its own: look before every act, or die before the `at`-th of them."""
    milvus_promote._IN_FLIGHT = 0.0
    seen, sides = [], sides_of(file)

    def look(number: int) -> None:
        if at > 0 or (kind == "pgvector" and is_locked(place)):
            return
        # A statement of SQLite is counted after others had their turn.
        before = acts.number + 1 if kind == "sqlite" else number
        seen.append((before, own_vectors(kind, place, sides), said(place)))

    acts = Acts(lambda **_: None, "finish", at, "before", look)
    migration = Migration(place)
    acts.watch(kind)
    acts.begin("finish")
    migration.finish(force=True)
    migration.close()
    answer.write_text(json.dumps(seen))


def is_locked(place: str) -> bool:
    """Whether whoever looks at the table would wait for the very transaction he looks from."""
    with psycopg.connect(place.partition("#")[0]) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted "
            "AND locktype = 'relation' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        ).fetchone()
    return found != (0,)


def run(kind: str, place: str, file: Path, at: int = -1) -> list:
    """Finish in a process of its own; gives what was seen before each act, where nobody dies."""
    answer = file.with_suffix(f".{at}.json")
    child = _spawning.Process(target=finish, args=(kind, place, file, answer, at))
    child.start()
    child.join()
    if at > 0:
        assert child.exitcode == -signal.SIGKILL
        return []
    assert child.exitcode == 0
    return json.loads(answer.read_text())


@pytest.mark.parametrize(
    ("kind", "upgrade"), [*((kind, "other") for kind in KINDS), *((kind, "same") for kind in ALIKE)]
)
def test_it_says_what_the_application_finds(address, upgrades, folder, kind, upgrade):
    place = address(kind)
    file = lifted(kind, place, upgrades / upgrade, folder)
    seen = run(kind, place, file)
    assert [(act, told) for act, _, told in seen] == [(act, found) for act, found, _ in seen]
    assert said(place) == own_vectors(kind, place, sides_of(file)) == "new"
    stages = [found for _, found, _ in seen]
    in_order = ["old", "neither", "new"] if kind in BETWEEN else ["old", "new"]
    assert list(dict.fromkeys(stages)) == in_order
    assert stages == sorted(stages, key=in_order.index)
    first = {found: act for act, found, _ in reversed(seen)}
    # Up to the very last act of a transaction, where nobody was let look.
    last = first["new"] - 1 if kind in TOGETHER else seen[stages.count("old") - 1][0]
    points = {last: "old"} | {first[found]: found for found in in_order[1:]}
    for at, wanted in points.items():
        place = address(kind)
        file = lifted(kind, place, upgrades / upgrade, folder)
        run(kind, place, file, at)
        assert said(place) == own_vectors(kind, place, sides_of(file)) == wanted
