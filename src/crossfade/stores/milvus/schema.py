"""What a collection of Milvus is made of: its fields, its old vector, and how it is made again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from crossfade.distance import Distance
from crossfade.errors import BadInput, StoreError
from crossfade.stores.contract import Column
from crossfade.stores.milvus.client import Database
from crossfade.stores.names import PREFIX

# Collections of ours beside one of the application's, by its name.
SHADOW = "crossfade_shadow_"
NEW = "crossfade_new_"
OLD = "crossfade_old_"
_LONGEST = 255 - len(SHADOW)
# What the shadow keeps of a row of the application's, by which it is known again: hashes of its old
# vector and of its other fields, and whether added columns were written of it at all.
SEEN_VECTOR, SEEN_FIELDS, WRITTEN = "seen_vector", "seen_fields", "written"
_TEXT_BYTES = 1024
_DISTANCES: dict[str, Distance] = {"COSINE": "cosine", "L2": "l2", "IP": "dot"}
_NOT_PARAMS = (
    "field_name", "index_name", "total_rows", "indexed_rows", "pending_index_rows", "state",
    "index_state_fail_reason", "min_index_version", "max_index_version",
)  # fmt: skip


@dataclass(frozen=True)
class Field:
    """One field: `kind` is Milvus's own word for its type."""

    name: str
    kind: str
    dim: int = 0
    made: bool = False
    """Whether Milvus makes it itself, of another field."""

    @property
    def is_vector(self) -> bool:
        return self.kind.endswith("_VECTOR")

    @property
    def is_whole(self) -> bool:
        return self.kind.startswith("INT") and not self.is_vector

    @property
    def is_number(self) -> bool:
        return self.is_whole or self.kind in ("FLOAT", "DOUBLE")


@dataclass(frozen=True)
class Shape:
    """The fields of a collection, and what it was made with."""

    name: str
    id: str
    id_type: Literal["integer", "text"]
    fields: Mapping[str, Field]
    dynamic: bool
    auto_id: bool
    keyed: bool
    """Whether a field says which partition a row is in."""
    described: Mapping[str, Any]

    @classmethod
    def of(cls, database: Database, collection: str) -> Shape:
        """As the collection is now."""
        from pymilvus import DataType  # type: ignore[import-untyped]

        found = database.call("describe_collection", collection)
        fields, key = {}, None
        for field in found["fields"]:
            params = field.get("params") or {}
            kind = DataType(field["type"]).name
            made = bool(field.get("is_function_output"))
            one = Field(field["name"], kind, int(params.get("dim", 0)), made)
            fields[one.name] = one
            key = one if field.get("is_primary") else key
        if key is None:
            raise BadInput("has no primary key", where=f"{database.name}#{collection}")
        return cls(
            name=str(found["collection_name"]),
            id=key.name,
            id_type="text" if key.kind == "VARCHAR" else "integer",
            fields=fields,
            dynamic=bool(found.get("enable_dynamic_field")),
            auto_id=bool(found.get("auto_id")),
            keyed=any(field.get("is_partition_key") for field in found["fields"]),
            described=found,
        )

    @property
    def vectors(self) -> list[str]:
        return [name for name, field in self.fields.items() if field.is_vector]

    @property
    def added(self) -> dict[str, Column]:
        """Of a shadow: the columns that were added."""
        kinds: dict[str, Literal["text", "integer"]] = {"VARCHAR": "text", "INT64": "integer"}
        out = {}
        for name, field in self.fields.items():
            if not name.startswith(PREFIX):
                continue
            if field.is_vector:
                out[name] = Column(name, "vector", field.dim)
            else:
                out[name] = Column(name, kinds[field.kind])
        return out


def check_collection(name: str) -> str:
    """The name of a collection of the application's; those of ours are made of it."""
    plain = name.replace("_", "a").isalnum() and name.isascii() and not name[0].isdigit()
    if not plain or len(name) > _LONGEST:
        raise BadInput(
            f"{name!r} is no name for a collection",
            step=f"use letters, digits and underscores, at most {_LONGEST}",
        )
    return name


def the_vector(shape: Shape, wanted: str | None, where: str) -> str:
    """The name of the old vectors: the one that is wanted, or alone there."""
    own = [name for name in shape.vectors if not shape.fields[name].made]
    if wanted is None and len(own) != 1:
        raise BadInput(
            f"has {len(own)} vectors", where=where, step=f"name one with --vector: {', '.join(own)}"
        )
    name = wanted or own[0]
    if name not in own:
        raise BadInput(
            f"has no vector {name!r}", where=where, step=f"its vectors are {', '.join(own)}"
        )
    if shape.fields[name].kind != "FLOAT_VECTOR":
        raise BadInput(
            f"{name!r} is a {shape.fields[name].kind}", where=where, step="name a FLOAT_VECTOR"
        )
    return name


def indexes(database: Database, collection: str) -> dict[str, dict[str, Any]]:
    """Field → how it is indexed: index_name, index_type, metric_type and params."""
    out = {}
    for name in database.call("list_indexes", collection):
        found = database.call("describe_index", collection, name)
        if not found:
            continue
        params = {key: value for key, value in found.items() if key not in _NOT_PARAMS}
        kept = {"index_type": params.pop("index_type", ""), "index_name": found["index_name"]}
        if metric := params.pop("metric_type", ""):
            kept["metric_type"] = metric
        out[str(found["field_name"])] = kept | {"params": _numbers(params)}
    return out


def _numbers(params: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they were given: a server tells them as texts.

    >>> _numbers({"M": "8", "mmap.enabled": "true", "with": "x"})
    {'M': 8, 'mmap.enabled': True, 'with': 'x'}
    """
    out: dict[str, Any] = {}
    for key, value in params.items():
        try:
            out[key] = json.loads(value) if isinstance(value, str) else value
        except ValueError:
            out[key] = value
    return out


def the_distance(
    found: Mapping[str, Mapping[str, Any]], vector: str, wanted: Distance | None, where: str
) -> Distance:
    """How the index of the old vectors compares them; without one as is wanted, else by cosine."""
    metric = found.get(vector, {}).get("metric_type", "")
    if not metric:
        return wanted or "cosine"
    distance = _DISTANCES.get(str(metric))
    if distance is None:
        raise BadInput(f"compares {vector!r} by {metric}", where=where, step="use COSINE, L2 or IP")
    if wanted not in (None, distance):
        raise BadInput(f"compares by {distance}, not by {wanted}", where=where)
    return distance


def metric_of(distance: Distance) -> str:
    """Milvus's word for a distance."""
    return next(metric for metric, ours in _DISTANCES.items() if ours == distance)


def make_shadow(
    database: Database, shape: Shape, columns: Sequence[Column], index: Mapping[str, Any], home: str
) -> None:
    """The collection of what is added to the rows of another, empty, indexed and loaded.

    Its rows have the ids of those they are about. One that was made before its maker died is made
    whole.
    """
    from pymilvus import DataType

    name = SHADOW + home
    if not database.call("has_collection", name):
        vectors = [column for column in columns if column.kind == "vector"]
        if len(vectors) != 1:
            raise BadInput(f"{len(vectors)} vectors to add", where=database.name, step="add one")
        made = database.client.create_schema(auto_id=False, enable_dynamic_field=False)
        _add_id(made, shape)
        for column in columns:
            if column.kind == "vector":
                made.add_field(column.name, DataType.FLOAT_VECTOR, dim=column.dim)
            elif column.kind == "text":
                made.add_field(column.name, DataType.VARCHAR, max_length=_TEXT_BYTES)
            else:
                made.add_field(column.name, DataType.INT64)
        for mark in (SEEN_VECTOR, SEEN_FIELDS, WRITTEN):
            made.add_field(mark, DataType.INT64)
        level = shape.described.get("consistency_level", "Strong")
        create(database, name, schema=made, consistency_level=level)
    there = Shape.of(database, name)
    lacking = [column.name for column in columns if column not in there.added.values()]
    if lacking:
        raise StoreError(
            f"has added columns already, and no {lacking[0]!r} among them",
            where=f"{database.name}#{home}",
            step="roll the earlier migration back",
        )
    make_ready(database, name, {next(iter(there.vectors)): index})


def _add_id(made: Any, shape: Shape) -> None:
    from pymilvus import DataType

    field = next(f for f in shape.described["fields"] if f.get("is_primary"))
    more = {"max_length": field["params"]["max_length"]} if shape.id_type == "text" else {}
    kind = DataType.VARCHAR if shape.id_type == "text" else DataType.INT64
    made.add_field(shape.id, kind, is_primary=True, auto_id=False, **more)


def make_again(
    database: Database, shape: Shape, name: str, vector: str, dim: int, index: Mapping[str, Any]
) -> None:
    """A collection like another, with another dimension of one vector: fields, partitions, indexes,
    properties, shards and consistency level come along."""
    from pymilvus import CollectionSchema

    if not database.call("has_collection", name):
        told = {**shape.described, "fields": [dict(f) for f in shape.described["fields"]]}
        for field in told["fields"]:
            if field["name"] == vector:
                field["params"] = {**field["params"], "dim": dim}
        schema = CollectionSchema.construct_from_dict(told)
        more: dict[str, Any] = {"consistency_level": told.get("consistency_level", "Bounded")}
        if told.get("num_shards"):
            more["num_shards"] = told["num_shards"]
        if told.get("properties"):
            more["properties"] = dict(told["properties"])
        if shape.keyed and told.get("num_partitions"):
            more["num_partitions"] = told["num_partitions"]
        create(database, name, schema=schema, **more)
    if not shape.keyed:
        there = set(database.call("list_partitions", name))
        for partition in database.call("list_partitions", shape.name):
            if partition not in there:
                database.call("create_partition", name, partition)
    like = indexes(database, shape.name)
    make_ready(database, name, {vector: index} | like, like=shape.name)


def create(database: Database, name: str, **how: Any) -> None:
    """Make a collection; what a killed process of milvus-lite has left of one is in nobody's way.

    It makes and drops collections file by file, and one without its schema is there to nobody.
    """
    if database.file is not None:
        sweep(database, name)
    database.call("create_collection", name, **how)


def drop(database: Database, name: str) -> None:
    """Drop a collection of ours, if it is there."""
    database.call("drop_collection", name)
    if database.file is not None:
        sweep(database, name)


def sweep(database: Database, name: str) -> None:
    """Remove what is left of a collection of ours that is not there any more."""
    import shutil

    if database.file is None or not name.startswith(PREFIX):
        return
    left = database.file / "collections" / name
    if left.is_dir() and not database.call("has_collection", name):
        shutil.rmtree(left, ignore_errors=True)


def make_ready(
    database: Database,
    name: str,
    wanted: Mapping[str, Mapping[str, Any]],
    *,
    like: str | None = None,
) -> None:
    """Index fields that are not, and load the collection, as often as the one it is like."""
    there = indexes(database, name)
    for field, how in wanted.items():
        if field in there:
            continue
        params = database.client.prepare_index_params()
        params.add_index(field_name=field, **how)
        # Nothing is in it yet that one would have to wait for.
        database.call("create_index", name, params, sync=False)
    if not is_loaded(database, name):
        copies = {} if like is None else _replicas(database, like)
        database.call("load_collection", name, **copies)


def is_loaded(database: Database, name: str) -> bool:
    """Whether a collection can be searched now."""
    return str(database.call("get_load_state", name)["state"].name) == "Loaded"


def _replicas(database: Database, name: str) -> dict[str, int]:
    """How often a server has a collection in memory; milvus-lite has it once."""
    if database.file is not None:
        return {}
    found = len(database.call("describe_replica", name))
    return {"replica_number": found} if found > 1 else {}
