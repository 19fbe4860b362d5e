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
from crossfade.stores.pgcatalog import KINDS, Catalog
from crossfade.stores.pgcopy import Kind, gathered
from crossfade.stores.pgsession import sql

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

    @classmethod
    def of(cls, catalog: Catalog, metric: Metric) -> Statements:
        return cls(catalog.schema, catalog.table, catalog.id, catalog.id_type, metric)

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
        make = self.say("CREATE TABLE IF NOT EXISTS {side} ({id} {type} PRIMARY KEY)")
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
        """A table of this connection's own that forgets its rows at the end of each transaction."""
        fields = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_TYPES.get(kind, "vector")))
            for name, kind in added.items()
        ]
        return self.say(
            "CREATE TEMP TABLE IF NOT EXISTS crossfade_staging ({id} {key}, {fields}, "
            "{token} bigint) ON COMMIT DELETE ROWS",
            key=sql.SQL(KINDS[self.id_kind]),
            fields=sql.SQL(", ").join(fields),
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
        """From staging into the table beside, where the application's row is as it was read."""
        fields = [sql.Identifier(name) for name in names]
        return self.say(
            "INSERT INTO {side} ({id}, {listed}) SELECT t.{id}, {taken} "
            "FROM crossfade_staging g JOIN {table} t ON t.{id} = g.{id}::{type}{within}{unchanged} "
            "ON CONFLICT ({id}) DO UPDATE SET {sets}",
            listed=sql.SQL(", ").join(fields),
            taken=sql.SQL(", ").join(sql.SQL("g.{}").format(f) for f in fields),
            within=self._within("t", span),
            unchanged=sql.SQL(f" WHERE t.xmin::text::bigint = g.{TOKEN}" if token else ""),
            sets=sql.SQL(", ").join(sql.SQL("{f} = EXCLUDED.{f}").format(f=f) for f in fields),
        )

    def gather(
        self, columns: Mapping[str, tuple[Kind, bool]], tail: Said, last: Any = None
    ) -> Said:
        """Rows of `columns`, each with its kind and whether it is an added one, gathered into one.

        `last` is the id that all rows come after: the server does not infer it for the table
        beside, and would read that from its beginning for every batch.
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
        beside = any(aside for _, aside in columns.values())
        inner = self.say(
            "SELECT {fields} FROM {table} t{join} {tail}",
            fields=sql.SQL(", ").join(
                [
                    self.say("t.{id}::{key} AS c0", key=sql.SQL(KINDS[self.id_kind])),
                    *fields,
                    sql.SQL("t.xmin::text::bigint AS c{}").format(sql.SQL(str(len(columns) + 1))),
                ]
            ),
            join=self.say(
                " LEFT JOIN {side} s USING ({id})"
                if last is None or not self.integer_ids
                else " LEFT JOIN (SELECT * FROM {side} WHERE {id} > {last}) s USING ({id})",
                last=sql.Literal(last),
            )
            if beside
            else sql.SQL(""),
            tail=tail,
        )
        return sql.SQL("SELECT {} FROM ({}) q").format(sql.SQL(", ").join(parts), inner)

    def first_beside(self, last: Any) -> Said:
        """The first row of the table beside after an id, which its index finds."""
        return self.say(
            "SELECT s.{id} FROM {side} s{where} ORDER BY s.{id} LIMIT 1",
            where=sql.SQL("")
            if last is None
            else self.say(" WHERE s.{id} > {last}", last=sql.Literal(last)),
        )

    def after(self, last: Any, size: int) -> Said:
        """The next `size` rows after an id; text ids by code point, whatever the database's own
        order is."""
        key = self.say("t.{id}" if self.integer_ids else 't.{id}::text COLLATE "C"')
        where = sql.SQL("WHERE {} > {} ").format(key, sql.Literal(last))
        return self.say(
            "{where}ORDER BY {key} LIMIT {size}",
            where=sql.SQL("") if last is None else where,
            key=key,
            size=sql.Literal(size),
        )

    def search(
        self,
        query: str,
        column: str,
        k: int,
        *,
        half: bool,
        where: Mapping[str, list[Any]],
        missing: bool,
        columns: Sequence[str],
    ) -> Said:
        aside = column.startswith(PREFIX)
        vector = sql.SQL("{}.{}").format(sql.SQL("s" if aside else "t"), sql.Identifier(column))
        terms = [
            sql.SQL("t.{} = ANY({})").format(sql.Identifier(name), sql.Literal(values))
            for name, values in where.items()
        ]
        if missing:
            terms.append(self.say("NOT EXISTS (SELECT FROM {side} m WHERE m.{id} = t.{id})"))
        terms.append(sql.SQL("{} IS NOT NULL").format(vector))
        return self.say(
            "SELECT t.{id}{cast}, {distance}{values} FROM {home} WHERE {terms} "
            "ORDER BY {distance} LIMIT {k}",
            cast=sql.SQL("" if self.integer_ids else "::text"),
            distance=sql.SQL("({} {} {}::{})").format(
                vector,
                sql.SQL(OPERATORS[self.metric]),
                sql.Literal(query),
                sql.SQL("halfvec" if half else "vector"),
            ),
            values=sql.SQL("").join(sql.SQL(", t.{}").format(sql.Identifier(c)) for c in columns),
            home=self.say("{side} s JOIN {table} t USING ({id})" if aside else "{table} t"),
            terms=sql.SQL(" AND ").join(terms),
            k=sql.Literal(k),
        )

    def index_name(self, table: str, column: str) -> str:
        digest = hashlib.blake2b(f"{table}/{column}".encode(), digest_size=5).hexdigest()
        return f"{PREFIX}{digest}_hnsw"

    def index(self, table: str, column: str) -> Said:
        return sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} USING hnsw ({} {})").format(
            sql.Identifier(self.index_name(table, column)),
            sql.Identifier(self.schema, table),
            sql.Identifier(column),
            sql.SQL(_CLASSES[self.metric]),
        )

    def drop_index(self, name: str) -> Said:
        return sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(
            sql.Identifier(self.schema, name)
        )
