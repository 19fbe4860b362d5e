"""What a table of SQLite is made of: its columns, which of them are id and vector, and of a `vec0`
table its declaration, which is the only place where some of that stands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.stores.contract import Obstacle
from crossfade.stores.names import PREFIX
from crossfade.stores.sqlite.connection import Connection, Database, file_of

_VEC0 = re.compile(r"\bUSING\s+vec0\s*\((.*)\)\s*;?\s*$", re.IGNORECASE | re.DOTALL)
_VECTOR = re.compile(
    r"(?P<name>\w+)\s+(?P<type>float|f32|int8|i8|bit)\s*\[\s*(?P<dim>\d+)\s*\](?P<rest>.*)",
    re.IGNORECASE | re.DOTALL,
)
_METRIC = re.compile(r"distance_metric\s*=\s*(\w+)", re.IGNORECASE)
_OTHER = re.compile(r"(?P<aside>\+\s*)?(?P<name>\w+)\s+(?P<type>\w+)(?P<rest>.*)", re.DOTALL)
_LENGTH = re.compile(r"(?:float|f32_blob|f32)\s*[\[(]\s*(\d+)\s*[\])]", re.IGNORECASE)
_DISTANCES: dict[str, Distance] = {"cosine": "cosine", "l2": "l2"}


def quoted(name: str) -> str:
    """A name inside a statement.

    >>> quoted('a"b')
    '"a""b"'
    """
    if "\0" in name:
        raise BadInput(f"{name!r} is no name")
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class Field:
    """A column; `kind` of one of a `vec0` table is `vector`, `metadata`, `partition`, `aside`."""

    name: str
    type: str
    kind: str = ""
    key: bool = False
    not_null: bool = False
    generated: bool = False


@dataclass(frozen=True)
class Vec0:
    """The arguments of `vec0(…)`, as they were written."""

    arguments: tuple[str, ...]
    kinds: dict[str, str]
    types: dict[str, str]
    dims: dict[str, int]
    metrics: dict[str, str]
    indexed: frozenset[str]

    @classmethod
    def of(cls, sql: str) -> Vec0 | None:
        """
        >>> found = Vec0.of("CREATE VIRTUAL TABLE v USING vec0(a float[3], +body text)")
        >>> found.dims, found.kinds
        ({'a': 3}, {'a': 'vector', 'body': 'aside'})
        >>> found.with_dim("a", 5)
        'a float[5], +body text'
        """
        found = _VEC0.search(sql)
        if found is None:
            return None
        arguments = tuple(part.strip() for part in found[1].split(",") if part.strip())
        kinds, types, dims, metrics, indexed = {}, {}, {}, {}, set()
        for argument in arguments:
            if vector := _VECTOR.fullmatch(argument):
                name = vector["name"]
                kinds[name], types[name] = "vector", vector["type"].lower()
                dims[name] = int(vector["dim"])
                metric = _METRIC.search(vector["rest"])
                metrics[name] = metric[1].lower() if metric else "l2"
                if _METRIC.sub("", vector["rest"]).strip():
                    indexed.add(name)
            elif "=" not in argument and (other := _OTHER.fullmatch(argument)):
                name, rest = other["name"], " ".join(other["rest"].lower().split())
                types[name] = other["type"].lower()
                if other["aside"]:
                    kinds[name] = "aside"
                elif rest == "primary key":
                    kinds[name] = "key"
                else:
                    kinds[name] = "partition" if rest == "partition key" else "metadata"
        return cls(arguments, kinds, types, dims, metrics, frozenset(indexed))

    def with_dim(self, vector: str, dim: int) -> str:
        """The arguments with another dimension of one vector."""
        return ", ".join(
            re.sub(r"\[\s*\d+\s*\]", f"[{dim}]", argument, count=1)
            if (found := _VECTOR.fullmatch(argument)) and found["name"] == vector
            else argument
            for argument in self.arguments
        )


@dataclass(frozen=True)
class Schema:
    """A table as it is at one moment."""

    table: str
    sql: str
    fields: tuple[Field, ...]
    vec0: Vec0 | None
    id: str = ""
    vector: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that somebody has written; generated ones follow from them."""
        return tuple(field.name for field in self.fields if not field.generated)

    def field(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)

    @property
    def text_ids(self) -> bool | None:
        """Whether ids are text; None if only a look at them can tell."""
        declared = self.field(self.id).type.upper()
        if "INT" in declared:
            return False
        return True if any(word in declared for word in ("CHAR", "TEXT", "CLOB")) else None

    @property
    def needs_vector(self) -> bool:
        """Whether a row cannot be without a vector."""
        return self.vec0 is not None or self.field(self.vector).not_null

    def dim(self, connection: Connection) -> int | None:
        """How long the vectors are; None if there are none, and nothing says so."""
        if self.vec0 is not None:
            return self.vec0.dims[self.vector]
        column, table = quoted(self.vector), quoted(self.table)
        found = connection.execute(
            f"SELECT typeof({column}), length({column}) FROM {table} "  # noqa: S608
            f"WHERE {column} IS NOT NULL LIMIT 1"
        ).fetchone()
        if found is None:
            declared = _LENGTH.fullmatch(self.field(self.vector).type.strip())
            return int(declared[1]) if declared else None
        if found[0] != "blob" or found[1] % 4:
            raise BadInput(
                f"{self.vector!r} holds {found[0]}, and not BLOBs of float32",
                step="write vectors as sqlite_vec.serialize_float32 does",
            )
        return int(found[1]) // 4


def load_schema(connection: Connection, table: str, where: str) -> Schema:
    """The table's columns; `BadInput` if there is none of that name."""
    found = connection.execute(
        "SELECT type, sql FROM main.sqlite_schema WHERE name = ? AND type IN ('table', 'view')",
        (table,),
    ).fetchone()
    if found is None:
        there = ", ".join(list_tables(connection)) or "none"
        raise BadInput(f"there is no table {table!r}", where=where, step=f"its tables are {there}")
    if found[0] == "view":
        raise BadInput("is a view", where=where, step="name the table with the vectors in it")
    sql = str(found[1])
    vec0 = Vec0.of(sql)
    if vec0 is None and re.match(r"\s*CREATE\s+VIRTUAL\b", sql, re.IGNORECASE):
        raise BadInput("is a virtual table other than vec0", where=where, step="name another")
    fields = []
    for _, name, kind, not_null, _, key, hidden in connection.execute(
        "SELECT * FROM pragma_table_xinfo(?)", (table,)
    ):
        if hidden == 1:
            continue
        known = vec0.types.get(name, "integer") if vec0 is not None else str(kind)
        role = vec0.kinds.get(name, "key") if vec0 is not None else ""
        unfilled = bool(not_null) and not key
        fields.append(Field(name, known, role, bool(key) or role == "key", unfilled, hidden > 1))
    return Schema(table, sql, tuple(fields), vec0)


def resolve(
    schema: Schema, connection: Connection, id: str | None, vector: str | None, where: str
) -> Schema:
    """The same with its id and vector, named or found."""
    for name in (id, vector):
        if name is not None and name not in schema.names:
            raise BadInput(f"has no column {name!r}", where=where, step=_listed(schema))
    schema = replace(schema, id=id or _the_id(schema, where))
    schema = replace(schema, vector=vector or _the_vector(schema, connection, where))
    field = schema.field(schema.vector)
    if schema.vec0 is not None and field.type not in ("float", "f32"):
        raise BadInput(
            f"{schema.vector!r} is of {field.type}: only float vectors can be lifted",
            where=where,
            step="name a column of float vectors with --vector",
        )
    if field.generated or schema.vector == schema.id:
        raise BadInput(f"{schema.vector!r} holds no vectors of its own", where=where)
    return schema


def declared_distance(schema: Schema, where: str) -> Distance | None:
    """How a `vec0` table compares; None where nothing says so."""
    if schema.vec0 is None:
        return None
    metric = schema.vec0.metrics[schema.vector]
    if metric not in _DISTANCES:
        raise BadInput(
            f"compares by {metric}", where=where, step="say --distance cosine, dot or l2"
        )
    return _DISTANCES[metric]


def list_tables(connection: Connection) -> list[str]:
    """Tables of the application; those that `vec0` keeps its own rows in are none of them."""
    found = connection.execute(
        "SELECT name, type FROM pragma_table_list WHERE schema = 'main' "
        "AND type IN ('table', 'virtual') ORDER BY name"
    ).fetchall()
    # Not all of these are told to be its own by the extension.
    inside = tuple(f"{name}_vector_chunks" for name, kind in found if kind == "virtual")
    ours = (PREFIX, "sqlite_", *inside)
    return [str(name) for name, _ in found if not name.startswith(ours)]


def tables_in(at: str) -> list[str]:
    """The tables of the file that an address names."""
    path = file_of(at)
    database = Database(path, str(path))
    try:
        with database.reading() as connection:
            return list_tables(connection)
    finally:
        database.close()


def find_obstacles(schema: Schema, connection: Connection) -> list[Obstacle]:
    """What would refuse new vectors, or act on each of them."""
    out = []
    vector = schema.vector
    if schema.vec0 is not None:
        if vector in schema.vec0.indexed:
            out.append(Obstacle(f"{vector!r} is declared with an index, which is not known here"))
        return out
    if any(_mentions(check, vector) for check in _checks(schema.sql)):
        out.append(
            Obstacle(f"a CHECK of the table speaks of {vector!r}, and would refuse new vectors")
        )
    for name, sql in update_triggers(schema, connection):
        if _mentions(sql, vector):
            out.append(Obstacle(f"the trigger {name!r} speaks of {vector!r}"))
    return out


def update_triggers(schema: Schema, connection: Connection) -> list[tuple[str, str]]:
    """Triggers of the table that an update of its vectors could set off: (name, statement)."""
    found = connection.execute(
        "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ? "
        "COLLATE NOCASE",
        (schema.table,),
    )
    # What sets it off stands before the table's name.
    head = re.compile(r"(?:(?!\bON\b).)*?\bUPDATE\b", re.IGNORECASE | re.DOTALL)
    return [(str(name), str(sql)) for name, sql in found if head.match(str(sql))]


def _the_id(schema: Schema, where: str) -> str:
    keys = [field.name for field in schema.fields if field.key]
    if len(keys) == 1:
        return keys[0]
    if "id" in schema.names:
        return "id"
    raise BadInput(
        "has no primary key of one column", where=where, step=f"name --id: {_listed(schema)}"
    )


def _the_vector(schema: Schema, connection: Connection, where: str) -> str:
    if schema.vec0 is not None:
        found = list(schema.vec0.dims)
    else:
        found = [f.name for f in schema.fields if not f.generated and _holds_blobs(f.type)]
    if len(found) == 1:
        return found[0]
    usual = [name for name in ("vector", "embedding") if name in found]
    if len(usual) == 1:
        return usual[0]
    raise BadInput(
        f"has {len(found)} columns that may hold vectors" if found else "has no column of BLOBs",
        where=where,
        step=f"name one with --vector: {_listed(schema)}",
    )


def _holds_blobs(declared: str) -> bool:
    return declared.strip().upper() == "BLOB" or bool(_LENGTH.fullmatch(declared.strip()))


def _listed(schema: Schema) -> str:
    return f"its columns are {', '.join(schema.names)}"


def _checks(sql: str) -> Sequence[str]:
    """What stands in the parentheses of each CHECK.

    >>> _checks("CREATE TABLE t (a, b CHECK (length(b) = 3), CHECK(a > 1))")
    ['length(b) = 3', 'a > 1']
    """
    out = []
    for found in re.finditer(r"\bCHECK\s*\(", sql, re.IGNORECASE):
        depth, end = 1, found.end()
        while end < len(sql) and depth:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        out.append(sql[found.end() : end - 1])
    return out


def _mentions(sql: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sql, re.IGNORECASE) is not None
