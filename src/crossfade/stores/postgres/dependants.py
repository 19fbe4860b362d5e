"""What hangs on the application's vector column, and whether it can go on hanging there.

The new vectors are another column in the end, with the name of the old one. What names the old one
is of three kinds: things that are made again with it (its indexes, views, policies, triggers,
checks), things that cannot be, which are told with their names before anything is changed, and
things that are lost, which somebody has to agree to. PostgreSQL keeps account of it in `pg_depend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from crossfade.stores.contract import Obstacle
from crossfade.stores.postgres.catalog import Catalog, added_columns
from crossfade.stores.postgres.connection import Connection
from crossfade.stores.postgres.driver import psycopg
from crossfade.stores.postgres.index import LARGEST_INDEXED
from crossfade.stores.postgres.statements import (
    COLUMN_FACTS,
    COLUMN_OF_DEFAULT,
    COLUMNS_OF_VIEW,
    CONSTRAINT_FACTS,
    DEPENDING_ON_COLUMN,
    DEPENDING_ON_VIEW,
    FIRING_TRIGGERS,
    GRANTED_BY_DEFAULT,
    ID_MAY_BE_NULL,
    INDEX_FACTS,
    MAY_WRITE_AS_REPLICA,
    POLICY_FACTS,
    PUBLICATIONS,
    RULES,
    SUBSCRIPTIONS,
    TABLE_FACTS,
    TRIGGER_FACTS,
    VIEWS_OF_COLUMN,
    Check,
    Grant,
    Index,
    Remade,
    Statements,
    VectorColumn,
)


@dataclass
class Dependants:
    """All that was found."""

    column: VectorColumn
    indexes: list[Index] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    remade: list[Remade] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    may_replicate: bool = False
    """Whether our writes can be kept from setting off the application's triggers."""


def find_dependants(
    connection: Connection,
    statements: Statements,
    catalog: Catalog,
    *,
    dim: int = 0,
    try_checks: bool = True,
) -> Dependants:
    """Everything that hangs on the vector column, and what stands in the way of its end.

    `dim` is that of the new vectors, where no added column tells it yet. `try_checks` tries
    constraints on the vectors there are, which takes a look at all of them.
    """
    facts = connection.execute(TABLE_FACTS, [statements.table_name]).fetchone()
    if facts is None:
        raise psycopg.errors.UndefinedTable(f"there is no table {statements.name!r}")
    oid = facts[0]
    row = connection.execute(COLUMN_FACTS, [oid, catalog.vector]).fetchone()
    if row is None:
        raise psycopg.errors.UndefinedColumn(f"there is no column {catalog.vector!r}")
    number, kind, not_null, storage, compression, statistics, options = row[:7]
    generated, default, comment, grants = row[7:]
    found = Dependants(
        VectorColumn(
            number,
            kind,
            not_null,
            storage,
            compression,
            statistics,
            tuple(options or ()),
            comment,
            Grant.of(grants),
        )
    )
    replica = connection.execute(MAY_WRITE_AS_REPLICA).fetchone()
    found.may_replicate = bool(replica and replica[0])
    look = _Look(connection, statements, catalog, oid, found, try_checks)
    look.at_table(facts)
    if generated:
        look.refuse(f"{catalog.vector!r} is generated from other columns")
    elif default is not None and not default.upper().startswith("NULL"):
        look.refuse(f"{catalog.vector!r} has a default of the old dimension: {default[:60]}")
    look.at_hanging()
    look.at_views()
    look.at_triggers()
    look.at_replication()
    look.at_dimension(dim)
    return found


class _Look:
    """One look at one table, written down in `found`."""

    def __init__(
        self,
        connection: Connection,
        statements: Statements,
        catalog: Catalog,
        oid: int,
        found: Dependants,
        try_checks: bool,
    ) -> None:
        self.connection, self.statements, self.catalog = connection, statements, catalog
        self.oid, self.found, self.try_checks = oid, found, try_checks

    def refuse(self, cause: str, *, final: bool = True) -> None:
        self.found.obstacles.append(Obstacle(cause, final))

    def ask(self, query: str, *values: Any) -> list[Any]:
        return self.connection.execute(query, values).fetchall()

    def at_table(self, facts: Sequence[Any]) -> None:
        _, kind, typed, owner, owns, hidden, may_create, may_stage, related, user = facts
        name = self.statements.name
        if kind != "r":
            what = {"p": "partitioned", "f": "foreign", "v": "a view"}.get(kind, "no plain table")
            self.refuse(f"{name!r} is {what}, which is not supported")
        if kind == "r" and related:
            self.refuse(f"{name!r} is a partition, or has parents or children, not supported")
        if typed:
            self.refuse(f"{name!r} is a typed table: no column can be added to it")
        if not owns:
            self.refuse(f"{user!r} does not own {name!r}: {owner!r} does, and may change it")
        if not may_create:
            self.refuse(f"{user!r} may not create tables in the schema {self.statements.schema!r}")
        if not may_stage:
            self.refuse(f"{user!r} may not create temporary tables in this database")
        if hidden:
            self.refuse(
                f"row-level security hides rows of {name!r} from {user!r}: the owner sees them "
                "(unless it is forced), and so does a role with BYPASSRLS"
            )
        for (rule,) in self.ask(RULES, self.oid):
            self.refuse(f"the rule {rule!r} rewrites what is said to {name!r}")
        nullable = self.ask(ID_MAY_BE_NULL, self.oid, self.statements.id)
        if nullable and nullable[0][0] and not hidden:
            without = self.connection.execute(self.statements.any_without_id()).fetchone()
            if without == (True,):
                self.refuse(f"rows of {name!r} have no {self.statements.id!r}")

    def at_hanging(self) -> None:
        column = self.found.column
        for kind, oid, described in self.ask(DEPENDING_ON_COLUMN, self.oid, column.number):
            if kind == "pg_rewrite":
                continue  # A view, or a rule of the table: looked at apart.
            if kind == "pg_class" and self._index(oid):
                continue
            if kind == "pg_constraint" and self._constraint(oid):
                continue
            if kind == "pg_policy" and self._policy(oid):
                continue
            if kind == "pg_trigger" and self._trigger(oid):
                continue
            if kind == "pg_attrdef":
                own = self.ask(COLUMN_OF_DEFAULT, oid)
                if own == [(column.number,)]:
                    continue
            if kind == "pg_statistic_ext":
                self.refuse(f"{described} goes with the old vectors", final=False)
                continue
            self.refuse(f"{described} depends on {self.catalog.vector!r}")

    def _index(self, oid: int) -> bool:
        rows = self.ask(INDEX_FACTS, self.found.column.number, oid)
        if not rows:
            return False
        name, kind, operators, options, predicate, about, space, comment, simple, valid = rows[0]
        if not valid:
            # Nobody can use it, so nobody misses it.
            return True
        if predicate and about:
            simple = simple and predicate in Index.is_there(self.catalog.vector)
            predicate = Index.THERE
        if simple:
            self.found.indexes.append(
                Index(name, kind, operators, options or "", predicate or "", space, comment)
            )
        else:
            self.refuse(
                f"the index {name!r} goes with the old vectors: make it again after finish",
                final=False,
            )
        return True

    def _constraint(self, oid: int) -> bool:
        kind, name, definition, expression, valid = self.ask(CONSTRAINT_FACTS, oid)[0]
        if kind == "n":
            return True
        if kind != "c":
            return False
        check = Check(name, definition, expression, valid)
        if not self.try_checks or self._holds(check):
            self.found.checks.append(check)
        else:
            self.refuse(f"the constraint {name!r} would not hold of the new vectors: {definition}")
        return True

    def _holds(self, check: Check) -> bool:
        """Of the shared vectors there are; before there are any, of old ones made longer."""
        added = added_columns(self.connection, self.statements)
        shared = next((n for n, one in added.items() if one.kind == "vector"), None)
        with self.connection.transaction(force_rollback=True):
            try:
                refused = self.statements.refused_by(check, self.catalog, shared=shared)
                found = self.connection.execute(refused).fetchone()
            except psycopg.Error:
                return False
        return found is None

    def _policy(self, oid: int) -> bool:
        name, on, permissive, command, roles, using, check, comment = self.ask(POLICY_FACTS, oid)[0]
        if on != self.oid:
            return False
        self.found.remade.append(
            Remade.policy(
                self.statements.table,
                name,
                permissive=permissive,
                command=command,
                roles=roles,
                using=using,
                check=check,
                comment=comment,
            )
        )
        return True

    def _trigger(self, oid: int) -> bool:
        name, on, definition, enabled, constraint, comment = self.ask(TRIGGER_FACTS, oid)[0]
        if on != self.oid or constraint:
            return False
        self.found.remade.append(
            Remade.trigger(self.statements.table, name, definition, enabled, comment)
        )
        return True

    def at_views(self) -> None:
        which = {"table": self.oid, "column": self.found.column.number}
        views = self.connection.execute(VIEWS_OF_COLUMN, which).fetchall()
        # What default privileges give to others as soon as a view is made.
        given = [name for (name,) in self.ask(GRANTED_BY_DEFAULT)]
        for oid, schema, name, kind, owner, owns, query, options, comment, grants in views:
            if kind != "v":
                what = "materialized view" if kind == "m" else "rule of"
                self.refuse(f"the {what} {name!r} depends on {self.catalog.vector!r}")
                continue
            if not owns:
                self.refuse(f"the view {name!r} has to be made again, and belongs to {owner!r}")
            more = self.connection.execute(DEPENDING_ON_VIEW, {"view": oid}).fetchall()
            for (other,) in more:
                self.refuse(f"{other} depends on the view {name!r}, which has to be made again")
            self.found.remade.append(
                Remade.view(
                    schema,
                    name,
                    query=query,
                    options=options,
                    owner=owner,
                    revoked=[other for other in given if other != owner],
                    grants=Grant.of(grants),
                    comment=comment,
                    columns=[
                        (column, about, Grant.of(rights))
                        for column, about, rights in self.ask(COLUMNS_OF_VIEW, oid)
                    ],
                )
            )

    def at_triggers(self) -> None:
        for name, enabled in self.ask(FIRING_TRIGGERS, self.oid):
            if not self.found.may_replicate:
                if enabled != "R":
                    self.refuse(
                        f"the trigger {name!r} fires when vectors are brought over: only a "
                        "superuser, or a role that may set session_replication_role, can "
                        "write without it",
                        final=False,
                    )
            elif enabled in "AR":
                self.refuse(f"the trigger {name!r} fires even for replicated writes", final=False)

    def at_replication(self) -> None:
        for (name,) in self.ask(PUBLICATIONS, self.statements.schema, self.statements.name):
            self.refuse(
                f"the publication {name!r} sends the table on: subscribers need the new column",
                final=False,
            )
        if self.ask(SUBSCRIPTIONS, self.oid):
            self.refuse("a subscription fills the table with old vectors", final=False)

    def at_dimension(self, dim: int) -> None:
        """Whether the indexes can be built, once the new dimension is known."""
        most = LARGEST_INDEXED["halfvec" if "halfvec" in self.found.column.type else "vector"]
        added = added_columns(self.connection, self.statements).values()
        dim = max([dim, *(one.dim for one in added)])
        if dim > most:
            for index in self.found.indexes:
                self.refuse(
                    f"the index {index.name!r} cannot be made of {dim} dimensions: "
                    f"pgvector's limit is {most}",
                    final=False,
                )
            self.found.indexes.clear()
