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

import psycopg

from crossfade.stores.contract import Obstacle
from crossfade.stores.postgres.catalog import Catalog, added_columns
from crossfade.stores.postgres.connection import Connection, sql
from crossfade.stores.postgres.index import LARGEST_INDEXED
from crossfade.stores.postgres.statements import Said, Statements

_TABLE = """
    SELECT c.oid, c.relkind, c.reloftype <> 0, pg_get_userbyid(c.relowner),
           pg_has_role(c.relowner, 'USAGE'), row_security_active(c.oid),
           has_schema_privilege(c.relnamespace, 'CREATE'),
           has_database_privilege(current_database(), 'TEMP'),
           EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)),
           current_user
    FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
_COLUMN = """
    SELECT a.attnum, a.atttypid::regtype::text, a.attnotnull, a.attstorage, a.attcompression,
           coalesce(a.attstattarget, -1), a.attoptions, a.attgenerated <> '',
           pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum),
           ARRAY(SELECT format('%%s|%%s|%%s', privilege_type, is_grantable,
                               CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END)
                 FROM aclexplode(a.attacl))
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = %s AND a.attname = %s
"""
_HANGING = """
    SELECT DISTINCT d.classid::regclass::text, d.objid,
           pg_describe_object(d.classid, d.objid, d.objsubid)
    FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %s
    AND d.refobjsubid = %s AND NOT (d.classid = 'pg_class'::regclass AND d.objid = d.refobjid)
    ORDER BY 3
"""
_INDEX = """
    SELECT c.relname, m.amname, o.opcname, array_to_string(c.reloptions, ', '),
           pg_get_expr(i.indpred, i.indrelid), i.indpred::text ~ format(':varattno %%s ', %s),
           t.spcname, obj_description(c.oid, 'pg_class'),
           i.indnatts = 1 AND i.indexprs IS NULL AND m.amname IN ('hnsw', 'ivfflat'), i.indisvalid
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
    LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace JOIN pg_opclass o ON o.oid = i.indclass[0]
    WHERE i.indexrelid = %s
"""
_CHECK = """
    SELECT contype, conname, pg_get_constraintdef(oid), pg_get_expr(conbin, conrelid), convalidated
    FROM pg_constraint WHERE oid = %s
"""
_POLICY = """
    SELECT polname, polrelid, polpermissive, polcmd,
           ARRAY(SELECT CASE r WHEN 0 THEN '' ELSE pg_get_userbyid(r) END FROM unnest(polroles) r),
           pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid),
           obj_description(oid, 'pg_policy')
    FROM pg_policy WHERE oid = %s
"""
_TRIGGER = """
    SELECT tgname, tgrelid, pg_get_triggerdef(oid), tgenabled, tgconstraint <> 0,
           obj_description(oid, 'pg_trigger')
    FROM pg_trigger WHERE oid = %s
"""
_VIEWS = """
    WITH RECURSIVE v AS (
        SELECT r.ev_class AS oid, 1 AS level FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
        WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = %(table)s AND d.refobjsubid = %(column)s AND r.ev_class <> d.refobjid
        UNION
        SELECT r.ev_class, v.level + 1 FROM v JOIN pg_depend d ON d.refobjid = v.oid
        AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_rewrite'::regclass
        JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_class <> v.oid WHERE v.level < 100
    ), deepest AS (SELECT oid, max(level) AS level FROM v GROUP BY oid)
    SELECT c.oid, n.nspname, c.relname, c.relkind, pg_get_userbyid(c.relowner),
           pg_has_role(c.relowner, 'USAGE'), pg_get_viewdef(c.oid),
           array_to_string(c.reloptions, ', '), obj_description(c.oid, 'pg_class'),
           ARRAY(SELECT format('%%s|%%s|%%s', privilege_type, is_grantable,
                               CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END)
                 FROM aclexplode(c.relacl) WHERE grantee <> c.relowner)
    FROM deepest JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
    ORDER BY deepest.level, c.relname
"""
_VIEW_COLUMNS = """
    SELECT a.attname, col_description(a.attrelid, a.attnum),
           ARRAY(SELECT format('%%s|%%s|%%s', privilege_type, is_grantable,
                               CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END)
                 FROM aclexplode(a.attacl))
    FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 ORDER BY a.attnum
"""
_BY_DEFAULT = """
    SELECT DISTINCT CASE g.grantee WHEN 0 THEN '' ELSE pg_get_userbyid(g.grantee) END
    FROM pg_default_acl d CROSS JOIN aclexplode(d.defaclacl) g
    WHERE d.defaclrole = current_user::regrole AND d.defaclobjtype = 'r'
"""
# What a view has besides its query, and what else names it or its rows.
_VIEW_MORE = """
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
    FROM pg_depend d JOIN pg_class c ON c.oid = %(view)s
    WHERE (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
           OR d.refclassid = 'pg_type'::regclass AND d.refobjid = c.reltype)
    AND NOT (d.classid = 'pg_rewrite'::regclass AND d.objid IN (
        SELECT oid FROM pg_rewrite WHERE rulename = '_RETURN'))
    AND d.classid <> 'pg_type'::regclass ORDER BY 1
"""
_RULES = "SELECT rulename FROM pg_rewrite WHERE ev_class = %s AND rulename <> '_RETURN' ORDER BY 1"
# Row triggers and statement triggers that an UPDATE of a column of ours sets off.
_FIRING = """
    SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal
    AND tgtype & 16 = 16 AND tgenabled <> 'D' AND tgattr = '' ORDER BY tgname
"""
_PUBLISHED = """
    SELECT p.pubname FROM pg_publication_tables p
    WHERE p.schemaname = %s AND p.tablename = %s ORDER BY 1
"""
_REPLICA = """
    SELECT current_setting('is_superuser')::boolean
        OR current_setting('server_version_num')::int >= 150000
        AND has_parameter_privilege('session_replication_role', 'SET')
"""
_TESTED = 1000


@dataclass(frozen=True)
class Grant:
    """A right that somebody was given."""

    privilege: str
    grantable: bool
    grantee: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> tuple[Grant, ...]:
        parts = [text.split("|", 2) for text in texts]
        return tuple(cls(p, grantable.startswith("t"), grantee) for p, grantable, grantee in parts)

    def say(self, on: Said, column: str | None = None) -> Said:
        """Given again, on a table, or on a column of it."""
        return sql.SQL("GRANT {}{} ON {} TO {}{}").format(
            sql.SQL(self.privilege),
            sql.SQL("" if column is None else " ({})").format(sql.Identifier(column or "")),
            on,
            role(self.grantee),
            sql.SQL(" WITH GRANT OPTION" if self.grantable else ""),
        )


@dataclass(frozen=True)
class Index:
    """A vector index on the column alone; `predicate` may be about the column too."""

    name: str
    kind: str
    operators: str
    options: str
    predicate: str
    tablespace: str | None
    comment: str | None

    def create(self, name: str, table: Said, column: str) -> Said:
        """The same index on another column."""
        return sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} USING {} ({} {}){}{}{}").format(
            sql.Identifier(name),
            table,
            sql.SQL(self.kind),
            sql.Identifier(column),
            sql.SQL(self.operators),
            sql.SQL(f" WITH ({self.options})" if self.options else ""),
            sql.SQL("" if self.tablespace is None else " TABLESPACE {}").format(
                sql.Identifier(self.tablespace or "")
            ),
            sql.SQL(" WHERE {}").format(self._predicate(column)) if self.predicate else sql.SQL(""),
        )

    def _predicate(self, column: str) -> Said:
        if self.predicate == _THERE:
            return sql.SQL("{} IS NOT NULL").format(sql.Identifier(column))
        return sql.Composed([sql.SQL(self.predicate)])


# A predicate about the vector itself that can be said of another column too.
_THERE = "the vector is there"


@dataclass(frozen=True)
class Check:
    """A CHECK constraint that names the column."""

    name: str
    definition: str
    expression: str
    valid: bool

    def add(self, table: Said) -> Said:
        """Made again, to be validated when the table is not locked."""
        later = "" if self.definition.endswith(" NOT VALID") else " NOT VALID"
        return sql.SQL("ALTER TABLE {} ADD CONSTRAINT {} {}").format(
            table, sql.Identifier(self.name), sql.SQL(self.definition + later)
        )


@dataclass(frozen=True)
class Remade:
    """Something that is dropped, and made again once the new column has the old one's name.

    `lock` keeps others from it, where the table's own lock does not.
    """

    name: str
    drop: Said
    make: tuple[Said, ...]
    lock: Said | None = None


@dataclass(frozen=True)
class Column:
    """The old column: what the new one has to be like."""

    number: int
    type: str
    not_null: bool
    storage: str
    compression: str
    statistics: int
    options: tuple[str, ...]
    comment: str | None
    grants: tuple[Grant, ...]


@dataclass
class Dependants:
    """All that was found."""

    column: Column
    indexes: list[Index] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    remade: list[Remade] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    may_replicate: bool = False
    """Whether our writes can be kept from setting off the application's triggers."""


def role(name: str) -> sql.SQL | sql.Identifier:
    """A role; none is everybody."""
    return sql.Identifier(name) if name else sql.SQL("PUBLIC")


def find_dependants(
    connection: Connection, words: Statements, catalog: Catalog, *, try_checks: bool = True
) -> Dependants:
    """Everything that hangs on the vector column, and what stands in the way of its end.

    `try_checks` tries constraints on the vectors there are, which takes a look at all of them.
    """
    table = words.say("{table}")
    facts = connection.execute(_TABLE, [table.as_string(None)]).fetchone()
    if facts is None:
        raise psycopg.errors.UndefinedTable(f"there is no table {words.name!r}")
    oid = facts[0]
    row = connection.execute(_COLUMN, [oid, catalog.vector]).fetchone()
    if row is None:
        raise psycopg.errors.UndefinedColumn(f"there is no column {catalog.vector!r}")
    number, kind, not_null, storage, compression, statistics, options = row[:7]
    generated, default, comment, grants = row[7:]
    found = Dependants(
        Column(
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
    replica = connection.execute(_REPLICA).fetchone()
    found.may_replicate = bool(replica and replica[0])
    look = _Look(connection, words, catalog, oid, found, try_checks)
    look.at_table(facts)
    if generated:
        look.refuse(f"{catalog.vector!r} is generated from other columns")
    elif default is not None and not default.upper().startswith("NULL"):
        look.refuse(f"{catalog.vector!r} has a default of the old dimension: {default[:60]}")
    look.at_hanging()
    look.at_views()
    look.at_triggers()
    look.at_replication()
    look.at_dimension()
    return found


class _Look:
    """One look at one table, written down in `found`."""

    def __init__(
        self,
        connection: Connection,
        words: Statements,
        catalog: Catalog,
        oid: int,
        found: Dependants,
        try_checks: bool,
    ) -> None:
        self.connection, self.words, self.catalog = connection, words, catalog
        self.oid, self.found, self.try_checks = oid, found, try_checks
        self.table = words.say("{table}")

    def refuse(self, cause: str, *, final: bool = True) -> None:
        self.found.obstacles.append(Obstacle(cause, final))

    def ask(self, query: str, *values: Any) -> list[Any]:
        return self.connection.execute(query, values).fetchall()

    def at_table(self, facts: Sequence[Any]) -> None:
        _, kind, typed, owner, owns, hidden, may_create, may_stage, related, user = facts
        name = self.words.name
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
            self.refuse(f"{user!r} may not create tables in the schema {self.words.schema!r}")
        if not may_stage:
            self.refuse(f"{user!r} may not create temporary tables in this database")
        if hidden:
            self.refuse(
                f"row-level security hides rows of {name!r} from {user!r}: the owner sees them "
                "(unless it is forced), and so does a role with BYPASSRLS"
            )
        for (rule,) in self.ask(_RULES, self.oid):
            self.refuse(f"the rule {rule!r} rewrites what is said to {name!r}")
        nullable = self.ask(
            "SELECT NOT attnotnull FROM pg_attribute WHERE attrelid = %s AND attname = %s",
            self.oid,
            self.words.id,
        )
        if nullable and nullable[0][0] and not hidden:
            none = "SELECT EXISTS (SELECT FROM {table} WHERE {id} IS NULL)"
            if self.connection.execute(self.words.say(none)).fetchone() == (True,):
                self.refuse(f"rows of {name!r} have no {self.words.id!r}")

    def at_hanging(self) -> None:
        column = self.found.column
        for kind, oid, told in self.ask(_HANGING, self.oid, column.number):
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
                own = self.ask("SELECT adnum FROM pg_attrdef WHERE oid = %s", oid)
                if own == [(column.number,)]:
                    continue
            if kind == "pg_statistic_ext":
                self.refuse(f"{told} goes with the old vectors", final=False)
                continue
            self.refuse(f"{told} depends on {self.catalog.vector!r}")

    def _index(self, oid: int) -> bool:
        rows = self.ask(_INDEX, self.found.column.number, oid)
        if not rows:
            return False
        name, kind, operators, options, predicate, about, space, comment, simple, valid = rows[0]
        if not valid:
            # Nobody can use it, so nobody misses it.
            return True
        if predicate and about:
            there = f"({sql.Identifier(self.catalog.vector).as_string(None)} IS NOT NULL)"
            plain = f"({self.catalog.vector} IS NOT NULL)"
            simple = simple and predicate in (there, plain)
            predicate = _THERE
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
        kind, name, definition, expression, valid = self.ask(_CHECK, oid)[0]
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
        added = added_columns(self.connection, self.words)
        shared = next((n for n, one in added.items() if one.kind == "vector"), None)
        with self.connection.transaction(force_rollback=True):
            try:
                found = self.connection.execute(
                    fails_check(self.words, self.catalog, check, shared)
                ).fetchone()
            except psycopg.Error:
                return False
        return found is None

    def _policy(self, oid: int) -> bool:
        name, on, permissive, command, roles, using, check, comment = self.ask(_POLICY, oid)[0]
        if on != self.oid:
            return False
        named = sql.Identifier(name)
        word = {"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "*": "ALL"}[command]
        make = sql.SQL("CREATE POLICY {} ON {} AS {} FOR {} TO {}{}{}").format(
            named,
            self.table,
            sql.SQL("PERMISSIVE" if permissive else "RESTRICTIVE"),
            sql.SQL(word),
            sql.SQL(", ").join(map(role, roles)),
            sql.SQL(f" USING ({using})" if using else ""),
            sql.SQL(f" WITH CHECK ({check})" if check else ""),
        )
        self._remake(name, f"POLICY {named.as_string(None)} ON", make, comment)
        return True

    def _trigger(self, oid: int) -> bool:
        name, on, definition, enabled, constraint, comment = self.ask(_TRIGGER, oid)[0]
        if on != self.oid or constraint:
            return False
        named = sql.Identifier(name)
        state = {"D": "DISABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}.get(enabled)
        alter = sql.SQL(f"ALTER TABLE {{}} {state} TRIGGER {{}}").format(self.table, named)
        self._remake(
            name,
            f"TRIGGER {named.as_string(None)} ON",
            sql.SQL("{}").format(sql.SQL(definition)),
            comment,
            *([alter] if state else []),
        )
        return True

    def _remake(self, name: str, what: str, make: Said, comment: str | None, *more: Said) -> None:
        drop = sql.SQL("DROP {} {}").format(sql.SQL(what), self.table)
        told = sql.SQL("COMMENT ON {} {} IS {}").format(
            sql.SQL(what), self.table, sql.Literal(comment)
        )
        parts = (make, *more, *([told] if comment else []))
        self.found.remade.append(Remade(name, drop, parts))

    def at_views(self) -> None:
        number = self.found.column.number
        views = self.connection.execute(_VIEWS, {"table": self.oid, "column": number}).fetchall()
        # What default privileges give to others as soon as a view is made.
        given = [name for (name,) in self.ask(_BY_DEFAULT)]
        for oid, schema, name, kind, owner, owns, query, options, comment, grants in views:
            if kind != "v":
                what = "materialized view" if kind == "m" else "rule of"
                self.refuse(f"the {what} {name!r} depends on {self.catalog.vector!r}")
                continue
            if not owns:
                self.refuse(f"the view {name!r} has to be made again, and belongs to {owner!r}")
            more = self.connection.execute(_VIEW_MORE, {"view": oid}).fetchall()
            for (told,) in more:
                self.refuse(f"{told} depends on the view {name!r}, which has to be made again")
            view = sql.Composed([sql.Identifier(schema, name)])
            make = [
                sql.SQL("CREATE VIEW {}{} AS {}").format(
                    view,
                    sql.SQL(f" WITH ({options})" if options else ""),
                    sql.SQL(query.rstrip().rstrip(";")),
                ),
                sql.SQL("ALTER VIEW {} OWNER TO {}").format(view, sql.Identifier(owner)),
                *(
                    sql.SQL("REVOKE ALL ON {} FROM {}").format(view, role(other))
                    for other in given
                    if other != owner
                ),
                *(grant.say(view) for grant in Grant.of(grants)),
            ]
            if comment:
                say = sql.SQL("COMMENT ON VIEW {} IS {}")
                make.append(say.format(view, sql.Literal(comment)))
            for column, told, rights in self.ask(_VIEW_COLUMNS, oid):
                if told:
                    of = sql.Identifier(schema, name, column)
                    make.append(sql.SQL("COMMENT ON COLUMN {} IS {}").format(of, sql.Literal(told)))
                make += [grant.say(view, column) for grant in Grant.of(rights)]
            drop = sql.SQL("DROP VIEW {}").format(view)
            # It has this owner already. LOCK would ask what its owner may do to the table.
            lock = sql.SQL("ALTER VIEW {} OWNER TO {}").format(view, sql.Identifier(owner))
            self.found.remade.append(Remade(name, drop, tuple(make), lock))

    def at_triggers(self) -> None:
        for name, enabled in self.ask(_FIRING, self.oid):
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
        for (name,) in self.ask(_PUBLISHED, self.words.schema, self.words.name):
            self.refuse(
                f"the publication {name!r} sends the table on: subscribers need the new column",
                final=False,
            )
        if self.ask("SELECT FROM pg_subscription_rel WHERE srrelid = %s", self.oid):
            self.refuse("a subscription fills the table with old vectors", final=False)

    def at_dimension(self) -> None:
        """Whether the indexes can be built, once the new dimension is known."""
        most = LARGEST_INDEXED["halfvec" if "halfvec" in self.found.column.type else "vector"]
        dims = [one.dim for one in added_columns(self.connection, self.words).values()]
        if max(dims, default=0) > most:
            for index in self.found.indexes:
                self.refuse(
                    f"the index {index.name!r} cannot be made of {max(dims)} dimensions: "
                    f"pgvector's limit is {most}",
                    final=False,
                )
            self.found.indexes.clear()


def fails_check(
    words: Statements,
    catalog: Catalog,
    check: Check,
    shared: str | None,
    among: Said | None = None,
) -> Said:
    """A row that a constraint refuses once it has its new vector.

    `shared` is the column of new vectors: of the application's table where `among` says which rows,
    else of the table beside. Without one, old vectors with another dimension are tried.
    """
    names = [sql.Identifier(name) for name in catalog.kinds if name != catalog.vector]
    others = sql.SQL("").join(sql.SQL(", t.{}").format(name) for name in names)
    if shared is None:
        vector = sql.SQL("t.{0} || (ARRAY[0]::real[])::{1}").format(
            sql.Identifier(catalog.vector), sql.SQL("halfvec" if catalog.halves else "vector")
        )
        home = words.say("{table} t LIMIT {rows}", rows=sql.Literal(_TESTED))
    elif among is None:
        vector = sql.SQL("s.{}{}").format(
            sql.Identifier(shared), sql.SQL("::halfvec" if catalog.halves else "")
        )
        home = words.say("{side} s JOIN {table} t USING ({id})")
    else:
        vector = sql.SQL("t.{}").format(sql.Identifier(shared))
        home = words.say("{table} t {among}", among=among)
    return words.say(
        "SELECT 1 FROM (SELECT {vector} AS {old}{others} FROM {home}) AS {name} "
        "WHERE NOT ({expression}) LIMIT 1",
        vector=vector,
        old=sql.Identifier(catalog.vector),
        others=others,
        home=home,
        name=sql.Identifier(words.name),
        expression=sql.SQL(check.expression),
    )
