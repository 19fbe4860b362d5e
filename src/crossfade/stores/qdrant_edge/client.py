"""Reaching a shard of Qdrant's engine, and the calls of the Qdrant store to it.

A folder can be open once: the engine locks it. All that a process opens share one shard, and so may
the application itself. What a call has written survives the death of the process: the engine writes
ahead, and a folder that is opened again is as it was after the last call.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.files import replacing
from crossfade.stores.qdrant.client import Database
from crossfade.stores.qdrant_edge import models
from crossfade.stores.values import beside

_CONFIG = "edge_config.json"


@dataclass
class _Shared:
    shard: Any
    users: int = 0


_open: dict[Path, _Shared] = {}


def connect(url: str) -> EdgePlace:
    """The shard at `qdrant-edge:FOLDER`."""
    folder = Path(url.partition(":")[2]).resolve()
    if not (folder / _CONFIG).is_file():
        raise BadInput(
            "is no folder of Qdrant's engine", where=url, step="name one that EdgeShard has made"
        )
    return EdgePlace(EdgeClient(local_shard(folder), folder), url, None, at=folder)


@dataclass
class EdgePlace(Database):
    """An open shard; to the store it is as a server, for the engine is a server's."""

    at: Path = Path()

    def close(self) -> None:
        if self._open:
            self._open = False
            release(self.at)


def local_shard(folder: str | Path) -> Any:
    """This process's shard of a folder, for an application that works on it beside a migration."""
    folder = Path(folder).resolve()
    if folder not in _open:
        library = _library()
        try:
            _open[folder] = _Shared(_load(library, folder))
        except Exception as error:
            held = "WouldBlock" in str(error)
            raise StoreError(
                "is open already, in this process or another" if held else _said(error),
                where=f"qdrant-edge:{folder}",
                step="open it by crossfade.stores.qdrant_edge.client.local_shard, or close it there"
                if held
                else "check that it is whole",
            ) from None
    _open[folder].users += 1
    return _open[folder].shard


def _load(library: Any, folder: Path) -> Any:
    """Open a folder. Killed while a vector was made or dropped, the engine may have written down
    that it is done before it was, or not yet what it has done, and takes its own folder for
    damaged: then what was written down before, or what its segments hold, is put there, and the
    step that was killed does it again."""
    before, config = beside(folder, "config"), folder / _CONFIG
    try:
        return library.EdgeShard.load(str(folder))
    except Exception:
        if not before.is_file():
            raise
        now = config.read_bytes()
        told = json.loads(before.read_bytes())
        held = [json.loads(one.read_bytes()) for one in folder.glob("segments/*/segment.json")]
        done = {
            name: one
            for name, one in told["vectors"].items()
            if all(name in segment["config"]["vector_data"] for segment in held)
        }
        for found in (told, told | {"vectors": done}):
            _put(config, json.dumps(found).encode())
            try:
                return library.EdgeShard.load(str(folder))
            except Exception as error:
                failed = error
        _put(config, now)
        raise failed from None


def _put(path: Path, content: bytes) -> None:
    with replacing(path, overwrite=True) as temporary:
        temporary.write_bytes(content)


def release(folder: str | Path) -> None:
    """Let go of a shard of `local_shard`; the last one to do so closes it."""
    shared = _open[Path(folder).resolve()]
    shared.users -= 1
    if not shared.users:
        shared.shard.close()
        del _open[Path(folder).resolve()]


@dataclass(frozen=True)
class Record:
    """A point as it was read."""

    id: Any
    vector: Any
    payload: dict[str, Any] | None
    score: float = 0.0

    def model_copy(self, *, update: Mapping[str, Any]) -> Record:
        return replace(self, **update)


class EdgeClient:
    """The calls of Qdrant's client that the store makes, on a shard; a shard has no name, so the
    first argument of each, the collection, says nothing."""

    models = models

    def __init__(self, shard: Any, folder: Path) -> None:
        self._shard, self._folder, self._edge = shard, folder, _library()

    def collection_exists(self, _: str) -> bool:
        return True

    def get_collection(self, _: str) -> Any:
        """The vectors there are stand in a file of the shard, and nowhere else."""
        try:
            told = json.loads((self._folder / _CONFIG).read_text(encoding="utf-8"))
            vectors = {
                name: SimpleNamespace(
                    size=one["size"],
                    distance=SimpleNamespace(value=one["distance"]),
                    multivector_config=one.get("multivector_config"),
                )
                for name, one in told["vectors"].items()
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{_CONFIG} is not as it should be: {error!r}") from None
        with _errors():
            info = self._shard.info()
        params = SimpleNamespace(vectors=vectors)
        return SimpleNamespace(
            config=SimpleNamespace(params=params),
            payload_schema=info.payload_schema,
            indexed_vectors_count=info.indexed_vectors_count,
        )

    def count(self, _: str, *, count_filter: Any = None, exact: bool = True) -> Any:
        with _errors():
            asked = self._edge.CountRequest(exact=exact, filter=self._filter(count_filter))
            return SimpleNamespace(count=self._shard.count(asked))

    def scroll(
        self,
        _: str,
        scroll_filter: Any = None,
        *,
        limit: int,
        offset: Any = None,
        with_payload: bool = True,
        with_vectors: bool = False,
    ) -> tuple[list[Record], Any]:
        with _errors():
            found, following = self._shard.scroll(
                self._edge.ScrollRequest(
                    offset=_engine_id(offset),
                    limit=limit,
                    filter=self._filter(scroll_filter),
                    with_payload=with_payload,
                    with_vector=with_vectors,
                )
            )
        return [_record(one) for one in found], following

    def retrieve(
        self, _: str, ids: Sequence[Any], *, with_payload: Any, with_vectors: bool
    ) -> list[Record]:
        with _errors():
            found = self._shard.retrieve([_engine_id(i) for i in ids], with_payload, with_vectors)
        return [_record(one) for one in found]

    def query_points(
        self,
        _: str,
        *,
        query: list[float],
        using: str | None,
        limit: int,
        query_filter: Any,
        with_payload: bool,
        with_vectors: Any,
    ) -> Any:
        with _errors():
            nearest = self._edge.Query.Nearest(query, using=using)
            asked = self._edge.QueryRequest(
                limit=limit,
                query=nearest,
                filter=self._filter(query_filter),
                with_payload=with_payload,
                with_vector=with_vectors,
            )
            found = self._shard.query(asked)
        return SimpleNamespace(points=[_record(one, one.score) for one in found])

    def facet(self, _: str, key: str, *, limit: int, exact: bool) -> Any:
        with _errors():
            found = self._shard.facet(self._edge.FacetRequest(key=key, limit=limit, exact=exact))
        return SimpleNamespace(
            hits=[SimpleNamespace(value=_value(hit.value), count=hit.count) for hit in found.hits]
        )

    def create_vector_name(self, _: str, name: str, config: models.DenseVectorNameConfig) -> None:
        distance = getattr(self._edge.Distance, config.dense.distance.value)
        self._change_vectors("create_dense_vector", name, config.dense.size, distance)

    def delete_vector_name(self, _: str, name: str) -> None:
        self._change_vectors("delete_vector_name", name)

    def delete_vectors(self, _: str, names: list[str], those: models.FilterSelector) -> None:
        self._do("delete_vectors_by_filter", self._filter(those.filter), names)

    def delete_payload(self, _: str, keys: list[str], those: models.FilterSelector) -> None:
        self._do("delete_payload_by_filter", self._filter(those.filter), keys)

    def create_payload_index(self, _: str, name: str, schema: str) -> None:
        kinds = self._edge.PayloadSchemaType
        self._do("create_field_index", name, getattr(kinds, schema.capitalize()))

    def delete_payload_index(self, _: str, name: str) -> None:
        self._do("delete_field_index", name)

    def batch_update_points(self, _: str, operations: Sequence[Any], *, wait: bool) -> None:
        """One after the other, as a server does."""
        for operation in operations:
            if isinstance(operation, models.UpdateVectorsOperation):
                told = operation.update_vectors
                points = [
                    self._edge.PointVectors(id=_engine_id(one.id), vector=one.vector)
                    for one in told.points
                ]
                self._do("update_vectors", points, self._filter(told.update_filter))
            elif isinstance(operation, models.SetPayloadOperation):
                payload = operation.set_payload
                if payload.filter is not None:
                    kept = self._filter(payload.filter)
                    self._do("set_payload_by_filter", kept, payload.payload)
                else:
                    ids = [_engine_id(key) for key in payload.points or ()]
                    self._do("set_payload", ids, payload.payload)
            else:
                taken = operation.delete_payload
                if taken.filter is not None:
                    kept = self._filter(taken.filter)
                    self._do("delete_payload_by_filter", kept, taken.keys)
                else:
                    ids = [_engine_id(key) for key in taken.points or ()]
                    self._do("delete_payload", ids, taken.keys)

    def optimize(self) -> None:
        """Build what indexes are due."""
        with _errors():
            self._shard.optimize()

    def _change_vectors(self, name: str, *given: Any) -> None:
        """Make or drop a vector, with a copy of what the shard says of its vectors until then.

        All is brought to its place at the end, so that opening the folder does not do it again: a
        deletion that is older than the last making would take the new vector out of that file.
        """
        before = beside(self._folder, "config")
        with _errors():
            self._shard.flush()
        _put(before, (self._folder / _CONFIG).read_bytes())
        self._do(name, *given)
        with _errors():
            self._shard.flush()
        before.unlink()

    def _do(self, name: str, *given: Any) -> None:
        with _errors():
            self._shard.update(getattr(self._edge.UpdateOperation, name)(*given))

    def _filter(self, told: models.Filter | None) -> Any:
        if told is None:
            return None
        parts = {
            name: [self._condition(one) for one in getattr(told, name)]
            for name in ("must", "must_not", "should")
            if getattr(told, name)
        }
        return self._edge.Filter(**parts)

    def _condition(self, told: Any) -> Any:
        edge = self._edge
        if isinstance(told, models.Filter):
            return self._filter(told)
        if isinstance(told, models.IsEmptyCondition):
            return edge.IsEmptyCondition(told.is_empty.key)
        if isinstance(told, models.HasVectorCondition):
            return edge.HasVectorCondition(told.has_vector)
        if isinstance(told, models.HasIdCondition):
            return edge.HasIdCondition({_engine_id(key) for key in told.has_id})
        if told.range is not None:
            within = edge.RangeFloat(gte=told.range.gte, lte=told.range.lte)
            return edge.FieldCondition(key=told.key, range=within)
        return edge.FieldCondition(key=told.key, match=edge.MatchValue(told.match.value))


def _record(found: Any, score: float = 0.0) -> Record:
    key = str(found.id) if isinstance(found.id, uuid.UUID) else found.id
    return Record(key, found.vector, found.payload, score)


def _engine_id(key: Any) -> Any:
    return uuid.UUID(key) if isinstance(key, str) else key


def _value(told: Any) -> Any:
    """A value that was counted, whatever way the engine tells it."""
    return getattr(told, "value", told)


@contextmanager
def _errors() -> Iterator[None]:
    """The engine raises bare exceptions; the store knows errors of the run."""
    try:
        yield
    except (MemoryError, OSError, ValueError, TypeError):
        raise
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise RuntimeError(_said(error)) from None


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _library() -> Any:
    try:
        import qdrant_edge
    except ImportError as error:
        raise MissingExtra(
            "qdrant-edge-py", extra="qdrant-edge", need="a store of Qdrant's engine"
        ) from error
    return qdrant_edge
