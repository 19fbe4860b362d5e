"""Points that the application replaces between the operations of one write.

Operations of a batch are no transaction on a server: an upsert may come between any two of them. So
they are sent one by one here, and the application has its turn before each kind of them.
"""

from __future__ import annotations

import numpy as np
import pytest
from tests.migration.conftest import (  # noqa: F401  (fixtures)
    Function,
    World,
    filled_of,
    lifted_of,
    migration,
    models,
    plan_folder,
    shared_of,
    texts_of,
    unit,
    upgrade_folder,
)
from tests.stores.apps import QdrantApp, idle
from tests.stores.qdrant.conftest import as_server, folder  # noqa: F401
from tests.stores.qdrant_edge.app import EdgeApp

from crossfade import Upgrade
from crossfade.stores import open_store
from crossfade.stores.qdrant.points import MARK
from crossfade.stores.qdrant_edge.client import EdgeClient
from crossfade.testing.store_contract import ADDED, STATE, VECTOR, written

ROWS = 60
# The kinds of operations that write rows; those that have bookkeeping lose it first.
KINDS = ("vectors", "first payload", "last payload", "taken")
pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect")


@pytest.fixture(params=["local", "server", "engine"])
def app(request, tmp_path):
    if request.param == "engine":
        made = EdgeApp(tmp_path)
    else:
        made = QdrantApp(tmp_path)
        if request.param == "server":
            made.address = request.getfixturevalue("as_server")
    yield made
    made.close()


@pytest.fixture
def world(app, models, upgrade_folder):  # noqa: F811
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    return World(app, models, upgrade_folder, Upgrade.load(upgrade_folder), dict(enumerate(texts)))


@pytest.fixture
def between(app, monkeypatch):
    """`between(act)`: act(kind) is called before each kind of operation that writes rows."""
    owner = EdgeClient if isinstance(app, EdgeApp) else app.client
    plain = owner.batch_update_points

    def begin(act):
        def one_by_one(*given, wait):
            *first, operations = given
            sets = [one for one in operations if _is_of_rows(one)]
            for operation in operations:
                if hasattr(operation, "update_vectors"):
                    act("vectors")
                elif hasattr(operation, "delete_payload"):
                    act("taken")
                elif sets and operation is sets[0]:
                    act("first payload")
                elif sets and operation is sets[-1]:
                    act("last payload")
                plain(*first, [operation], wait=wait)

        monkeypatch.setattr(owner, "batch_update_points", one_by_one)

    return begin


def _is_of_rows(operation) -> bool:
    return hasattr(operation, "set_payload") and MARK not in operation.set_payload.payload


@pytest.mark.parametrize("kind", ["first payload", "last payload"])
def test_a_point_replaced_after_its_vector_was_written_gets_no_bookkeeping(app, between, kind):
    old = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    app.create(list(range(20)), [f"text {i}" for i in range(20)], [0] * 20, old)
    store = open_store(app.address)
    store.add_columns(ADDED)
    # As it was: what is made of it has the fingerprints that it has.
    between(lambda now: app.change(3, "text 3", old[3]) if now == kind else None)
    assert store.write(written(store, [2, 3, 4])) == 2
    found = store.read([2, 3, 4], [VECTOR.name, STATE.name])
    assert found[STATE.name].to_pylist() == ["lifted", None, "lifted"]
    assert [one.is_valid for one in found[VECTOR.name]] == [True, False, True]
    assert store.tally(STATE.name) == {"lifted": 2, None: 18}
    store.close()


def test_rows_replaced_between_any_two_operations_are_written_later(
    world,
    migration,  # noqa: F811
    plan_folder,  # noqa: F811
    between,
):
    app, texts, others = world.app, dict(world.texts), texts_of(40, seed=5)
    due: dict[str, int] = {}

    def replace(kind: str) -> None:
        if kind in due:
            # One stays what it was and one does not, of those that this write is about.
            same = due.pop(kind)
            texts[same + 1] = others.pop()
            for key in (same, same + 1):
                app.change(key, texts[key], world.models.old([texts[key]])[0])

    between(replace)
    migration.start(source="body", force=True)
    due |= {kind: 10 * n for n, kind in enumerate(KINDS[:-1])}
    migration.forward()
    assert not due
    migration.forward()
    assert migration.verify().passed
    _check(shared_of(migration), {key: lifted_of(world, [text]) for key, text in texts.items()})

    due |= {kind: 5 + 10 * n for n, kind in enumerate(KINDS)}
    embed = {"plan": plan_folder, "share": 1.0}
    migration.backfill(Function(world.models), **embed)
    assert not due
    migration.forward()
    migration.backfill(Function(world.models), **embed)
    assert migration.verify(embed=world.models.new).passed
    wanted = {key: filled_of(world, [text], 0.7) for key, text in texts.items()}
    _check(shared_of(migration), wanted)


def _check(found, wanted) -> None:
    assert sorted(found) == sorted(wanted)
    for key, vector in wanted.items():
        np.testing.assert_allclose(found[key][1], unit(vector)[0], atol=1e-4)


def test_new_vectors_of_the_application_are_not_overwritten_while_they_are_moved(app, between):
    """Once the old vectors are gone, it may write new ones under their name."""
    old = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    app.create(list(range(20)), [f"text {i}" for i in range(20)], [0] * 20, old)
    store = open_store(app.address)
    store.add_columns(ADDED)
    rows = written(store, list(range(20)))
    store.write(rows)
    fresh = unit(np.random.default_rng(1).normal(size=(1, VECTOR.dim))).astype(np.float32)
    between(lambda kind: app.insert([3], ["fresh"], [0], fresh) if kind == "vectors" else None)
    store.promote(VECTOR.name, [c.name for c in ADDED[1:]], columns=(), work=idle)
    store.close()
    found = app.old()
    np.testing.assert_allclose(found[3], fresh[0], atol=1e-6)
    made = unit(np.array(rows[VECTOR.name].to_pylist(), np.float32))
    np.testing.assert_allclose(found[4], made[4], atol=1e-6)
