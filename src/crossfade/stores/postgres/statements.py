"""Everything that is said to PostgreSQL about one table, each statement in one place.

Identifiers and values go in through psycopg's own quoting, never as text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crossfade.stores.contract import TOKEN, Column, Metric
from crossfade.stores.names import PREFIX
from crossfade.stores.postgres.catalog import KINDS, Catalog
from crossfade.stores.postgres.connection import sql
from crossfade.stores.postgres.copy import Kind, gathered

Said = sql.Composed
OPERATORS: dict[Metric, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_CLASSES: dict[Metric, str] = {
    "cosine": "vector_cosine_ops",
    "l2": "vector_l2_ops",
    "dot": "vector_ip_ops",
}
_TYPES = {"text": "text", "integer": "bigint"}


@dataclass(frozen=True)
class Statements:
    """The application's table `t`, and the table beside it, `s`, that holds added columns."""

    schema: str
    name: str
    id: str
    id_type: str
    metric: Metric
    by_code_point: bool = False
    collation: str = ""

    @classmethod
    def of(cls, catalog: Catalog, metric: Metric) -> Statements:
        c = catalog
        return cls(c.schema, c.table, c.id, c.id_type, metric, c.by_code_point, c.collation)

    @property
    def integer_ids(self) -> bool:
        return self.id_type in ("smallint", "integer", "bigint")

    @property
    def id_kind(self) -> Kind:
        return "integer" if self.integer_ids else "text"

    @property
    def beside(self) -> str:
        """The name of the table beside; names have at most 63 bytes."""
        short = self.name.encode()[:40].decode(errors="ignore")
        if short != self.name:
            digest = hashlib.blake2b(self.name.encode(), digest_size=4)
            short = f"{short}_{digest.hexdigest()}"
        return f"{PREFIX}{short}"

    def say(self, text: str, **parts: Any) -> Said:
        """A statement with the names of this table and `parts` filled in."""
        return sql.SQL(text).format(
            table=sql.Identifier(self.schema, self.name),
            side=sql.Identifier(self.schema, self.beside),
            state=sql.Identifier(self.schema, f"{PREFIX}state"),
            store=sql.Literal(self.name),
            id=sql.Identifier(self.id),
            type=sql.SQL(self.id_type),
            **parts,
        )

    def add(self, columns: Sequence[Column]) -> list[Said]:
        make = self.say(
            # Nobody but us writes there, and an index is built anew sooner than it is vacuumed.
            "CREATE TABLE IF NOT EXISTS {side} ({id} {type}{collation} PRIMARY KEY) WITH "
            "(autovacuum_enabled = false, toast.autovacuum_enabled = false, parallel_workers = 8)",
            collation=sql.SQL(self.collation),
        )
        return [
            make,
            *(
                self.say(
                    "ALTER TABLE {side} ADD COLUMN IF NOT EXISTS {name} {kind}",
                    name=sql.Identifier(c.name),
                    kind=sql.SQL(_TYPES.get(c.kind, f"vector({c.dim})")),
                )
                for c in columns
            ),
        ]

    def staging(self, added: Mapping[str, Kind]) -> Said:
        """A table of this connection's own that goes at the end of the transaction."""
        fields = [
            sql.SQL("{} {}, ").format(sql.Identifier(name), sql.SQL(_TYPES.get(kind, "vector")))
            for name, kind in added.items()
        ]
        return self.say(
            "CREATE TEMP TABLE crossfade_staging ({id} {key}, {fields}{token} bigint) "
            "ON COMMIT DROP",
            key=sql.SQL(KINDS[self.id_kind]),
            fields=sql.SQL("").join(fields),
            token=sql.Identifier(TOKEN),
        )

    def copy_in(self, names: Sequence[str], into: str = "staging") -> Said:
        """COPY into the staging table, or straight into the one beside (`side`)."""
        return self.say(
            f"COPY {'{side}' if into == 'side' else 'crossfade_staging'} ({{fields}}) "
            "FROM STDIN (FORMAT BINARY)",
            fields=sql.SQL(", ").join(map(sql.Identifier, names)),
        )

    def any_there(self, span: tuple[Any, Any] | None) -> Said:
        """Whether the table beside has any of the rows in staging."""
        return self.say(
            "SELECT EXISTS (SELECT FROM crossfade_staging g JOIN {side} s "
            "ON s.{id} = g.{id}::{type}{within})",
            within=self._within("s", span),
        )

    def unchanged(self, span: tuple[Any, Any] | None) -> Said:
        """How many rows in staging have an item that is as it was read."""
        return self.say(
            "SELECT count(*) FROM crossfade_staging g JOIN {table} t "
            "ON t.{id} = g.{id}::{type}{within} WHERE t.xmin::text::bigint = g.{token}",
            token=sql.Identifier(TOKEN),
            within=self._within("t", span),
        )

    def take_out_changed(self) -> Said:
        """Out of the table beside, rows in staging whose item is not."""
        return self.say(
            "DELETE FROM {side} s USING crossfade_staging g WHERE s.{id} = g.{id}::{type} "
            "AND NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = g.{id}::{type} "
            "AND t.xmin::text::bigint = g.{token})",
            token=sql.Identifier(TOKEN),
        )

    def take_out_unchanged(self) -> Said:
        """Out of the table beside, rows in staging whose item is as it was read."""
        return self.say(
            "DELETE FROM {side} s USING crossfade_staging g, {table} t "
            "WHERE s.{id} = g.{id}::{type} AND t.{id} = s.{id} "
            "AND t.xmin::text::bigint = g.{token}",
            token=sql.Identifier(TOKEN),
        )

    def _within(self, table: str, span: tuple[Any, Any] | None) -> Said:
        """The first and the last id of a batch spare the server a look at the whole table."""
        if span is None:
            return sql.Composed([])
        return self.say(
            f" AND {table}.{{id}} BETWEEN {{low}} AND {{high}}",
            low=sql.Literal(span[0]),
            high=sql.Literal(span[1]),
        )

    def merge(
        self, names: Sequence[str], *, token: bool, span: tuple[Any, Any] | None = None
    ) -> Said:
        """From staging into the table beside, where the application's row is as it was read; in the
        order in which rows are in staging, whatever way the server joins them."""
        fields = [sql.Identifier(name) for name in names]
        return self.say(
            "INSERT INTO {side} ({id}, {listed}) SELECT t.{id}, {taken} "
            "FROM crossfade_staging g JOIN {table} t ON t.{id} = g.{id}::{type}{within}{unchanged} "
            "ORDER BY g.ctid ON CONFLICT ({id}) DO UPDATE SET {sets}",
            listed=sql.SQL(", ").join(fields),
            taken=sql.SQL(", ").join(sql.SQL("g.{}").format(f) for f in fields),
            within=self._within("t", span),
            unchanged=sql.SQL(f" WHERE t.xmin::text::bigint = g.{TOKEN}" if token else ""),
            sets=sql.SQL(", ").join(sql.SQL("{f} = EXCLUDED.{f}").format(f=f) for f in fields),
        )

    def gather(
        self,
        columns: Mapping[str, tuple[Kind, bool]],
        tail: Said,
        *,
        last: Any = None,
        due: Said | None = None,
    ) -> Said:
        """Rows of `columns`, each with its kind and whether it is an added one, gathered into one.

        `last` is the id that all rows come after: the server does not infer it for the table
        beside, and would read that from its beginning for every batch. `due` is a query of the ids
        that are wanted.
        """
        kinds = [self.id_kind, *(kind for kind, _ in columns.values()), "integer"]
        fields = [
            sql.SQL("{}.{}::{} AS c{}").format(
                sql.SQL("s" if aside else "t"),
                sql.Identifier(name),
                sql.SQL(KINDS[kind]),
                sql.SQL(str(i)),
            )
            for i, (name, (kind, aside)) in enumerate(columns.items(), 1)
        ]
        parts = [sql.SQL(one) for i, kind in enumerate(kinds) for one in gathered(f"c{i}", kind)]
        # Whoever locks both tables begins with the one beside, and so does this.
        first = sql.Composed([])
        if due is not None:
            first = sql.SQL("({}) d JOIN ").format(due)
        elif any(aside for _, aside in columns.values()):
            first = sql.SQL("{} s RIGHT JOIN ").format(self._side_after(last))
        inner = self.say(
            "SELECT {fields} FROM {first}{table} t{using} {tail}",
            fields=sql.SQL(", ").join(
                [
                    self.say("t.{id}::{key} AS c0", key=sql.SQL(KINDS[self.id_kind])),
                    *fields,
                    sql.SQL("t.xmin::text::bigint AS c{}").format(sql.SQL(str(len(columns) + 1))),
                ]
            ),
            first=first,
            using=self.say(" USING ({id})" if first.as_string(None) else ""),
            tail=tail,
        )
        return sql.SQL("SELECT {} FROM ({}) q").format(sql.SQL(", ").join(parts), inner)

    def _side_after(self, last: Any) -> Said:
        """The table beside from an id on, which the server does not infer from the join."""
        if last is None or not self.native:
            return self.say("{side}")
        return self.say("(SELECT * FROM {side} WHERE {id} > {last})", last=self._literal(last))

    def first_beside(self, last: Any) -> Said:
        """The first row of the table beside after an id, which its index finds."""
        return self.say(
            "SELECT s.{id} FROM {side} s{where} ORDER BY s.{id} LIMIT 1",
            where=sql.SQL("")
            if last is None
            else self.say(" WHERE s.{id} > {last}", last=self._literal(last)),
        )

    def after(self, last: Any, size: int) -> Said:
        """The next `size` rows after an id; text ids by code point, whatever the database's own
        order is."""
        where = sql.SQL("WHERE {} > {} ").format(self.key, self._literal(last))
        return self.say(
            "{where}ORDER BY {key} LIMIT {size}",
            where=sql.SQL("") if last is None else where,
            key=self.key,
            size=sql.Literal(size),
        )

    def missing(self, last: Any, size: int) -> Said:
        """Ids of the next `size` rows after an id that have none beside, from the indexes of the
        ids alone."""
        terms = [self.say("m.{id} IS NULL")]
        if last is not None:
            terms.append(sql.SQL("{} > {}").format(self.key, self._literal(last)))
        return self.say(
            "SELECT t.{id} FROM {beside} m RIGHT JOIN {table} t USING ({id}) "
            "WHERE {terms} ORDER BY {key} LIMIT {size}",
            beside=self._side_after(last),
            terms=sql.SQL(" AND ").join(terms),
            key=self.key,
            size=sql.Literal(size),
        )

    @property
    def key(self) -> Said:
        """What rows are ordered by."""
        return self.say("t.{id}" if self.native else 't.{id}::text COLLATE "C"')

    @property
    def native(self) -> bool:
        """Whether the order of the ids is that of their index."""
        return self.integer_ids or self.by_code_point

    def _literal(self, last: Any) -> Said:
        if self.integer_ids or not self.native:
            return sql.Composed([sql.Literal(last)])
        return self.say("{last}::{type}", last=sql.Literal(last))

    def index_name(self, column: str) -> str:
        """What the index of a column of the table beside is called."""
        digest = hashlib.blake2b(f"{self.beside}/{column}".encode(), digest_size=5).hexdigest()
        return f"{PREFIX}{digest}_hnsw"

    def index(self, name: str, column: str) -> Said:
        """The index of a column of the table beside."""
        return self.say(
            "CREATE INDEX CONCURRENTLY {name} ON {side} USING hnsw ({column} {kind})",
            name=sql.Identifier(name),
            column=sql.Identifier(column),
            kind=sql.SQL(_CLASSES[self.metric]),
        )
