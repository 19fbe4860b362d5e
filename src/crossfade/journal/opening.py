"""Opening a store with the columns its migration goes by: after `start` nobody names them again."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crossfade.distance import Distance
from crossfade.errors import BadInput, MissingExtra
from crossfade.journal.journal import KEY, Journal, load_journal, read_journal
from crossfade.stores import Store, open_store
from crossfade.stores.registry import address_of, kept_value

_NAMES = ("id", "vector", "distance")


def open_migrating(
    address: str | Path,
    *,
    id: str | None = None,
    vector: str | None = None,
    distance: Distance | None = None,
) -> Store:
    """Open a store with the columns its migration has written down.

    A store that was never migrated needs `id` and `vector` where they cannot be told. While a
    migration is under way what is given must be what it was started with; once it is over, what
    is given counts.

    >>> import lance, pyarrow as pa, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "items.lance"
    >>> vectors = pa.array([[1.0, 0.0]], pa.list_(pa.float32(), 2))
    >>> _ = lance.write_dataset(pa.table({"id": [7], "vector": vectors}), path)
    >>> open_migrating(path).vector
    'vector'
    """
    asked: dict[str, Any] = {"id": id, "vector": vector, "distance": distance}
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        store = open_store(address, **given)
    except MissingExtra:
        raise
    except BadInput:
        # Its columns cannot be told, or are not what they were: the journal may know them.
        text = kept_value(address, KEY)
        if text is None:
            raise
        return _by(read_journal(text, address_of(address).name), address, given)
    try:
        journal = load_journal(store)
        if journal is None or _fits(store, journal, given):
            return store
    except BaseException:
        store.close()
        raise
    store.close()
    return _by(journal, address, given)


def describe_store(address: str | Path) -> dict[str, Any]:
    """What the store says of itself, and where its migration stands."""
    with closing(open_migrating(address)) as store:
        journal = load_journal(store)
        stage = None if journal is None else journal.stage
        return asdict(store.describe()) | {"migration": stage}


def check_columns(
    journal: Journal, where: object, given: dict[str, Any], step: str = "leave it out"
) -> None:
    """Refuse other columns than those of the migration that is under way."""
    if journal.over:
        return
    for name, value in given.items():
        known = getattr(journal, name)
        if value != known:
            raise BadInput(
                f"its migration goes by the {name} {known!r}, not {value!r}",
                where=where,
                step=f"{step}, or roll back and start again",
            )


def check_opened(journal: Journal, store: Store) -> None:
    """Refuse a store that somebody has opened with other columns."""
    check_columns(journal, store.name, _columns(store), "open it with open_migrating")


def _columns(store: Store) -> dict[str, Any]:
    return {name: getattr(store, name) for name in _NAMES}


def _fits(store: Store, journal: Journal, given: dict[str, Any]) -> bool:
    """Whether the store was opened as the journal says; rolled back, it is its own again."""
    check_columns(journal, store.name, given)
    return journal.after_step("rollback") or _columns(store) == _wanted(journal, given)


def _wanted(journal: Journal, given: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(journal, name) for name in _NAMES} | given


def _by(journal: Journal, address: str | Path, given: dict[str, Any]) -> Store:
    check_columns(journal, address_of(address).name, given)
    wanted = _wanted(journal, given)
    try:
        return open_store(address, **wanted)
    except BadInput:
        if not journal.after_step("finish"):
            raise
        # The application has made other columns since.
        return open_store(address, **given)
