"""Every act that makes something durable, counted in the process that is to be killed.

The functions are wrapped where all of the process finds them. Before the n-th call, or after it,
the process kills itself; before each call others may get a turn.
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Literal

When = Literal["before", "after"]
_FILES = {"os": ("replace", "rename", "unlink", "remove", "rmdir", "link", "symlink")}
_LANCE = {
    "lance.LanceDataset": (
        "commit",
        "commit_batch",
        "add_columns",
        "alter_columns",
        "drop_columns",
        "update",
        "delete",
        "insert",
        "merge",
        "restore",
        "create_index",
        "create_scalar_index",
        "drop_index",
        "cleanup_old_versions",
        "update_config",
        "delete_config_keys",
        "update_metadata",
        "update_schema_metadata",
        "update_field_metadata",
    ),
    "lance.dataset.MergeInsertBuilder": ("execute", "execute_uncommitted"),
    "lance.dataset.DatasetOptimizer": ("compact_files", "optimize_indices"),
    "lance.dataset.Tags": ("create", "update", "delete"),
    "lance.fragment.LanceFragment": ("update_columns", "merge_columns", "delete"),
    "lance.file.LanceFileWriter": ("close",),
    "lance": ("write_dataset",),
}
_POSTGRES = {
    "psycopg.Cursor": ("execute", "executemany"),
    "psycopg.Transaction": ("__exit__",),
    "psycopg.Copy": ("write",),
}
_QDRANT_WRITES = (
    "upsert",
    "update_vectors",
    "delete_vectors",
    "delete",
    "set_payload",
    "overwrite_payload",
    "delete_payload",
    "clear_payload",
    "batch_update_points",
    "update_collection",
    "update_collection_aliases",
    "create_collection",
    "recreate_collection",
    "delete_collection",
    "create_payload_index",
    "delete_payload_index",
    "create_vector_name",
    "delete_vector_name",
)
_QDRANT_READS = ("scroll", "retrieve", "count", "facet", "query_points", "get_collection")
_QDRANT = "qdrant_client.local.qdrant_local.QdrantLocal"
_MILVUS = "pymilvus.milvus_client.milvus_client.MilvusClient"
_MILVUS_WRITES = (
    "insert",
    "upsert",
    "delete",
    "create_collection",
    "drop_collection",
    "rename_collection",
    "create_index",
    "create_partition",
    "load_collection",
    "alter_alias",
    "flush",
)
_MILVUS_READS = ("query", "search", "describe_collection", "list_collections", "describe_index")
_EDGE = "crossfade.stores.qdrant_edge.client.EdgeClient"
_EDGE_READS = ("scroll", "retrieve", "count", "facet", "query_points")
# What is called of stores that one process has open, and there gives others a turn.
_CALLS = {
    "qdrant": (_QDRANT, (*_QDRANT_WRITES, *_QDRANT_READS)),
    "qdrant-edge": (_EDGE, ("_do", *_EDGE_READS)),
    "milvus": (_MILVUS, (*_MILVUS_WRITES, *_MILVUS_READS)),
}
_CHROMA = {
    "chromadb.api.fastapi.FastAPI": (
        "create_collection",
        "delete_collection",
        "_modify",
        "_upsert",
        "_update",
        "_delete",
    )
}
_DURABLE: dict[str, dict[str, tuple[str, ...]]] = {
    "lancedb": _FILES | _LANCE,
    "pgvector": _FILES | _POSTGRES,
    "parquet": _FILES,
    "chroma": _FILES | _CHROMA,
    "qdrant-edge": _FILES | {_EDGE: ("_do",)},
    "qdrant": _FILES | {_QDRANT: _QDRANT_WRITES},
    "sqlite": _FILES,
    "faiss": _FILES | {"crossfade.stores.faiss.promote": ("exchange",)},
    "milvus": _FILES | {_MILVUS: _MILVUS_WRITES},
    "milvus-server": _FILES | {_MILVUS: _MILVUS_WRITES},
}
# Statements that change nothing; a query of its own that does would be said WITH.
_READING = ("select", "set", "load", "show", "begin")


class Acts:
    """Counts the acts of each step; kills this process at the act `at` of the step `in_step`."""

    def __init__(
        self,
        say: Callable[..., None],
        in_step: str,
        at: int,
        when: When,
        turn: Callable[[int], None] | None,
    ) -> None:
        self.number, self._step, self._kind = 0, "", ""
        self._say, self._turn = say, turn
        self._in_step, self._at, self._when = in_step, at, when
        self._lock = threading.Lock()
        self._local = threading.local()

    def watch(self, kind: str) -> None:
        """Wrap the functions of this store."""
        self._kind = kind
        for owner, names in _DURABLE[kind].items():
            for name in names:
                _wrap(owner, name, self._around)
        if kind == "sqlite":
            import apsw

            apsw.connection_hooks.append(self._watch_statements)

    def _watch_statements(self, connection: Any) -> None:
        """Statements of SQLite, whose functions cannot be wrapped.

        Others get a turn before every other transaction: within one they would wait for its lock.
        """
        import apsw

        told: dict[str, Any] = {"sql": "", "begun": 0, "number": 0}

        def before(cursor: Any, sql: str, bindings: Any) -> bool:
            again, told["sql"] = sql == told["sql"], sql
            if again or sql.split(None, 1)[0].lower() in (*_READING, "pragma", "rollback"):
                if sql == "BEGIN IMMEDIATE":
                    told["begun"] += 1
                    if self._turn is not None and told["begun"] % 2 == 0:
                        self._turn(0)
                return True
            with self._lock:
                self.number += 1
                told["number"] = self.number
            if self._is_here(told["number"]) and self._when == "before":
                self._die(told["number"], "apsw", (sql,))
            return True

        def after(event: dict[str, Any]) -> None:
            if event["sql"] == told["sql"] and self._is_here(told["number"]):
                self._die(told["number"], "apsw", (event["sql"],))

        connection.exec_trace = before
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, after)

    def _is_here(self, number: int) -> bool:
        return (self._step, number) == (self._in_step, self._at)

    def begin(self, step: str) -> None:
        """Another step, and its first act to come."""
        self.number, self._step = 0, step

    def _around(self, name: str, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        # What others do in their turn is not the migration's.
        if getattr(self._local, "turned", False) or not _durable(name, given):
            return call()
        with self._lock:
            self.number += 1
            number = self.number
        # What milvus-lite does with its files is within a call, and nobody else's turn.
        within = self._kind == "milvus" and name.startswith("os.")
        if self._turn is not None and not within:
            self._local.turned = True
            try:
                self._turn(number)
            finally:
                self._local.turned = False
        here = self._is_here(number)
        if here and self._when == "before":
            self._die(number, name, given)
        out = call()
        if here:
            self._die(number, name, given)
        return out

    def _die(self, number: int, name: str, given: tuple[Any, ...]) -> None:
        said = f"{name} {_said(given)}".strip()[:160]
        self._say(died=f"{self._when} act {number} of {self._step}, {said}")
        os.kill(os.getpid(), signal.SIGKILL)


def take_turns(kind: str, turn: Callable[[], None]) -> None:
    """Give the others a turn before each call to a local client, while nobody is inside.

    One process may have a folder open, and its client is not made for several threads: the
    application and the searches come between the calls of the migration, as a server lets them.
    """
    gate, local = _Gate(), threading.local()

    def around(name: str, call: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        if getattr(local, "inside", False):
            return call()
        local.inside = True
        try:
            with gate.alone():
                turn()
            with gate.among_others():
                return call()
        finally:
            local.inside = False

    owner, names = _CALLS[kind]
    for name in names:
        _wrap(owner, name, around)


class _Gate:
    """One alone, or several together."""

    def __init__(self) -> None:
        self._inside = 0
        self._changed = threading.Condition()

    def among_others(self) -> Any:
        return _Held(self._enter, self._leave)

    def alone(self) -> Any:
        return _Held(self._shut, self._changed.release)

    def _enter(self) -> None:
        with self._changed:
            self._inside += 1

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def _shut(self) -> None:
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._inside)


class _Held:
    def __init__(self, enter: Callable[[], Any], leave: Callable[[], Any]) -> None:
        self._enter, self._leave = enter, leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *_: object) -> None:
        self._leave()


def _wrap(owner: str, name: str, around: Callable[..., Any]) -> None:
    """Functions that this version of a library has not are passed over."""
    place = _find(owner)
    if place is None or name not in vars(place):
        return
    held = vars(place)[name]
    kind = type(held) if isinstance(held, (staticmethod, classmethod)) else None
    function = held.__func__ if kind else held

    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        given = (*arguments, *named.values())
        return around(f"{owner}.{name}", lambda: function(*arguments, **named), given)

    setattr(place, name, kind(wrapped) if kind else wrapped)


def _find(owner: str) -> Any:
    """A module, or a class in one."""
    with suppress(ImportError):
        return importlib.import_module(owner)
    module, _, name = owner.rpartition(".")
    with suppress(ImportError):
        return getattr(importlib.import_module(module), name, None)
    return None


def _durable(name: str, given: tuple[Any, ...]) -> bool:
    if not name.startswith("psycopg.Cursor"):
        return True
    words = _said(given[1:2]).split(None, 1)
    return bool(words) and words[0].lower() not in _READING


def _said(given: tuple[Any, ...]) -> str:
    """Paths and statements, as far as one can tell an act by them."""
    out = []
    for value in given[:3]:
        if hasattr(value, "as_string"):
            out.append(" ".join(value.as_string(None).split()))
        elif isinstance(value, (str, os.PathLike, int)):
            out.append(" ".join(str(value).split()))
    return " ".join(out)
