"""Every statement that PostgreSQL is given: those about the server and its catalogue as constants,
those about one table as methods of `Statements`.

Identifiers and values go in through psycopg's own quoting, never as text. What a dry run prints is
made here too, by the same methods, with `UNKNOWN` where a value is not known beforehand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from crossfade.distance import Distance
from crossfade.stores.contract import TOKEN, Column
from crossfade.stores.names import PREFIX, Range
from crossfade.stores.postgres.copy import Kind
from crossfade.stores.postgres.driver import sql

if TYPE_CHECKING:
    from crossfade.stores.postgres.catalog import Catalog

Statement = sql.Composed
UNKNOWN = sql.SQL("…")
"""Stands in a dry run for a value that is not known before the step is under way."""

# How each kind travels in binary, and how the server turns a value into its bytes, with what stands
# for null.
KINDS: dict[Kind, str] = {
    "integer": "bigint",
    "text": "text",
    "vector": "vector",
    "number": "double precision",
    "boolean": "boolean",
}
_SEND: dict[Kind, tuple[str, str]] = {
    "integer": ("int8send", "0"),
    "number": ("float8send", "0"),
    "boolean": ("boolsend", "false"),
}
_OPERATORS: dict[Distance, str] = {"cosine": "<=>", "l2": "<->", "dot": "<#>"}
_CLASSES: dict[Distance, str] = {
    "cosine": "vector_cosine_ops",
    "l2": "vector_l2_ops",
    "dot": "vector_ip_ops",
}
_TYPES = {"text": "text", "integer": "bigint"}
_STORAGES = {"p": "PLAIN", "e": "EXTERNAL", "m": "MAIN", "x": "EXTENDED"}
_COMPRESSIONS = {"p": "pglz", "l": "lz4"}
_COMMANDS = {"r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE", "*": "ALL"}
_TRIGGER_STATES = {"D": "DISABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}
_NOT_NULL = f"{PREFIX}not_null"

# A session and its transactions.

# Loads the library: its settings do not exist before.
LOAD_VECTOR = "SELECT '[1]'::vector"
# A busy server looks this often whether we are still there; not every system's can.
CHECK_FOR_CLIENT = "SET client_connection_check_interval = '500ms'"
# What we write is handed to the disk bit by bit, not all at once at the next checkpoint, which
# everybody's commits would wait for.
FLUSH_STEADILY = "SET backend_flush_after = '256kB'"
LIST_SETTINGS = "SELECT name FROM pg_settings WHERE name LIKE '%.%' OR name LIKE '%timeout'"
WHOSE_PROCESS = "SELECT pg_backend_pid()"
PING = "SELECT 1"
BEGIN, COMMIT = "BEGIN", "COMMIT"
COMMIT_WITHOUT_WAITING = "SET LOCAL synchronous_commit = off"
# The application's triggers are about its own changes.
WRITE_AS_REPLICA = "SET LOCAL session_replication_role = replica"
HORIZON = "SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text"

# One migration at a time.

TRY_LOCK = "SELECT pg_try_advisory_lock(%s)"
UNLOCK = "SELECT pg_advisory_unlock(%s)"
LOCK_SHARED = "SELECT pg_advisory_lock_shared(%s)"
TRY_LOCK_SHARED = "SELECT pg_try_advisory_lock_shared(%s)"
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
# An advisory lock of one 64-bit number is shown as its halves.
END_OTHERS = """
    SELECT pg_terminate_backend(l.pid) FROM pg_locks l
    JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
    WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
    AND (l.classid::bigint << 32 | l.objid::bigint) = %s
"""
LONGEST_HOLDER = """
    SELECT a.pid, a.usename, a.state, a.xact_start FROM pg_locks l
    JOIN pg_stat_activity a USING (pid)
    WHERE l.relation = to_regclass(%s) AND l.granted AND a.pid <> pg_backend_pid()
    ORDER BY a.xact_start LIMIT 1
"""

# The catalogue: a table, its columns and indexes.

# Of the types that are vectors to whoever names them without a schema, as our statements do.
TABLES_WITH_VECTORS = """
    SELECT CASE WHEN NOT pg_table_is_visible(c.oid) OR strpos(c.relname, '.') > 0
                THEN n.nspname END, c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
    AND NOT starts_with(c.relname, %s)
    AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
    AND EXISTS (SELECT FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                AND t.typname IN ('vector', 'halfvec') AND pg_type_is_visible(t.oid))
    ORDER BY NOT pg_table_is_visible(c.oid), n.nspname, c.relname LIMIT %s
"""
NAME_OF_TABLE = """
    SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass(%s)
"""
COLUMNS = """
    SELECT n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
           coalesce(l.collname IN ('C', 'POSIX', 'ucs_basic') OR l.collname = 'default' AND (
               SELECT datcollate IN ('C', 'POSIX') AND datlocprovider = 'c'
               FROM pg_database WHERE datname = current_database()
           ), false),
           CASE WHEN l.collname <> 'default' THEN format(' COLLATE %%I.%%I', ln.nspname, l.collname)
                ELSE '' END,
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
                   AND i.indnkeyatts = 1 AND a.attnum = i.indkey[0]),
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique
                   AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
                   AND a.attnum = i.indkey[0])
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid LEFT JOIN pg_collation l ON l.oid = a.attcollation
    LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
    WHERE c.oid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
ADDED_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped
    AND a.attname <> %s ORDER BY a.attnum
"""
TYPE_OF_COLUMN = """
    SELECT format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = to_regclass(%s) AND attname = %s AND NOT attisdropped
"""
VECTOR_INDEXES = """
    SELECT a.attname, o.opcname, (SELECT option_value::int FROM pg_options_to_table(ic.reloptions)
                                  WHERE option_name = 'lists' AND m.amname = 'ivfflat')
    FROM pg_index i
    JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_am m ON m.oid = ic.relam
    JOIN pg_opclass o ON o.oid = i.indclass[0]
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
    WHERE i.indrelid = to_regclass(%s) AND m.amname IN ('hnsw', 'ivfflat') AND i.indisvalid
    ORDER BY ic.relname
"""
INDEX_IS_VALID = """
    SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""
ROWS_AND_DEAD = """
    SELECT greatest(reltuples, 0)::bigint, pg_stat_get_dead_tuples(oid) FROM pg_class
    WHERE oid = to_regclass(%s)
"""
PAGES = "SELECT pg_relation_size(to_regclass(%s)) / current_setting('block_size')::int"
MEMORY_AND_WORKERS = """
    SELECT pg_size_bytes(current_setting('maintenance_work_mem')),
           pg_size_bytes(current_setting('effective_cache_size')),
           current_setting('max_parallel_maintenance_workers')::int
"""
INDEXING_WORKERS = """
    SELECT current_setting('max_parallel_maintenance_workers')::int FROM pg_index i
    JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
    WHERE i.indrelid = to_regclass(%s) AND m.amname = 'hnsw'
"""

# The catalogue: what hangs on a column.

TABLE_FACTS = """
    SELECT c.oid, c.relkind, c.reloftype <> 0, pg_get_userbyid(c.relowner),
           pg_has_role(c.relowner, 'USAGE'), row_security_active(c.oid),
           has_schema_privilege(c.relnamespace, 'CREATE'),
           has_database_privilege(current_database(), 'TEMP'),
           EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)),
           current_user
    FROM pg_class c WHERE c.oid = to_regclass(%s)
"""
COLUMN_FACTS = """
    SELECT a.attnum, a.atttypid::regtype::text, a.attnotnull, a.attstorage, a.attcompression,
           coalesce(a.attstattarget, -1), a.attoptions, a.attgenerated <> '',
           pg_get_expr(d.adbin, d.adrelid), col_description(a.attrelid, a.attnum),
           ARRAY(SELECT format('%%s|%%s|%%s', privilege_type, is_grantable,
                               CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END)
                 FROM aclexplode(a.attacl))
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = %s AND a.attname = %s
"""
ID_MAY_BE_NULL = "SELECT NOT attnotnull FROM pg_attribute WHERE attrelid = %s AND attname = %s"
DEPENDING_ON_COLUMN = """
    SELECT DISTINCT d.classid::regclass::text, d.objid,
           pg_describe_object(d.classid, d.objid, d.objsubid)
    FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %s
    AND d.refobjsubid = %s AND NOT (d.classid = 'pg_class'::regclass AND d.objid = d.refobjid)
    ORDER BY 3
"""
COLUMN_OF_DEFAULT = "SELECT adnum FROM pg_attrdef WHERE oid = %s"
INDEX_FACTS = """
    SELECT c.relname, m.amname, o.opcname, array_to_string(c.reloptions, ', '),
           pg_get_expr(i.indpred, i.indrelid), i.indpred::text ~ format(':varattno %%s ', %s),
           t.spcname, obj_description(c.oid, 'pg_class'),
           i.indnatts = 1 AND i.indexprs IS NULL AND m.amname IN ('hnsw', 'ivfflat'), i.indisvalid
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
    LEFT JOIN pg_tablespace t ON t.oid = c.reltablespace JOIN pg_opclass o ON o.oid = i.indclass[0]
    WHERE i.indexrelid = %s
"""
CONSTRAINT_FACTS = """
    SELECT contype, conname, pg_get_constraintdef(oid), pg_get_expr(conbin, conrelid), convalidated
    FROM pg_constraint WHERE oid = %s
"""
POLICY_FACTS = """
    SELECT polname, polrelid, polpermissive, polcmd,
           ARRAY(SELECT CASE r WHEN 0 THEN '' ELSE pg_get_userbyid(r) END FROM unnest(polroles) r),
           pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid),
           obj_description(oid, 'pg_policy')
    FROM pg_policy WHERE oid = %s
"""
TRIGGER_FACTS = """
    SELECT tgname, tgrelid, pg_get_triggerdef(oid), tgenabled, tgconstraint <> 0,
           obj_description(oid, 'pg_trigger')
    FROM pg_trigger WHERE oid = %s
"""
VIEWS_OF_COLUMN = """
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
COLUMNS_OF_VIEW = """
    SELECT a.attname, col_description(a.attrelid, a.attnum),
           ARRAY(SELECT format('%%s|%%s|%%s', privilege_type, is_grantable,
                               CASE grantee WHEN 0 THEN '' ELSE pg_get_userbyid(grantee) END)
                 FROM aclexplode(a.attacl))
    FROM pg_attribute a WHERE a.attrelid = %s AND a.attnum > 0 ORDER BY a.attnum
"""
GRANTED_BY_DEFAULT = """
    SELECT DISTINCT CASE g.grantee WHEN 0 THEN '' ELSE pg_get_userbyid(g.grantee) END
    FROM pg_default_acl d CROSS JOIN aclexplode(d.defaclacl) g
    WHERE d.defaclrole = current_user::regrole AND d.defaclobjtype = 'r'
"""
# What a view has besides its query, and what else names it or its rows.
DEPENDING_ON_VIEW = """
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
    FROM pg_depend d JOIN pg_class c ON c.oid = %(view)s
    WHERE (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
           OR d.refclassid = 'pg_type'::regclass AND d.refobjid = c.reltype)
    AND NOT (d.classid = 'pg_rewrite'::regclass AND d.objid IN (
        SELECT oid FROM pg_rewrite WHERE rulename = '_RETURN'))
    AND d.classid <> 'pg_type'::regclass ORDER BY 1
"""
RULES = "SELECT rulename FROM pg_rewrite WHERE ev_class = %s AND rulename <> '_RETURN' ORDER BY 1"
# Row triggers and statement triggers that an UPDATE of a column of ours sets off.
FIRING_TRIGGERS = """
    SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = %s AND NOT tgisinternal
    AND tgtype & 16 = 16 AND tgenabled <> 'D' AND tgattr = '' ORDER BY tgname
"""
PUBLICATIONS = """
    SELECT p.pubname FROM pg_publication_tables p
    WHERE p.schemaname = %s AND p.tablename = %s ORDER BY 1
"""
SUBSCRIPTIONS = "SELECT FROM pg_subscription_rel WHERE srrelid = %s"
MAY_WRITE_AS_REPLICA = """
    SELECT current_setting('is_superuser')::boolean
        OR current_setting('server_version_num')::int >= 150000
        AND has_parameter_privilege('session_replication_role', 'SET')
"""


def literal(value: Any) -> sql.Composable:
    """A value, or what stands for one."""
    return value if isinstance(value, sql.Composable) else sql.Literal(value)


def set_option(name: str, value: str | None) -> Statement:
    """A setting of the session, or back to the server's own with None."""
    # A setting's name may have two parts, which are no table and column.
    text = "RESET {}" if value is None else "SET {} = {}"
    return sql.SQL(text).format(sql.SQL(name), sql.Literal(value))


def set_for_transaction(name: str, value: int | str) -> Statement:
    """A setting until the transaction ends."""
    return sql.SQL("SET LOCAL {} = {}").format(sql.SQL(name), sql.Literal(value))


def set_known_options(values: Mapping[str, str]) -> Statement:
    """Settings of the session, as far as the server has them."""
    wanted = sql.SQL(", ").join(
        sql.SQL("({}, {})").format(sql.Literal(n), sql.Literal(v)) for n, v in values.items()
    )
    return sql.SQL(
        "SELECT set_config(s.name, w.value, false) FROM pg_settings s "
        "JOIN (VALUES {}) AS w(name, value) USING (name)"
    ).format(wanted)


def gathered(name: str, kind: Kind) -> list[str]:
    """What to select so that a column of rows comes as one value: which are null, the bytes, and
    for text the lengths. `name` is quoted already."""
    nulls = f"string_agg(boolsend({name} IS NULL), '')"
    if kind == "vector":
        return [nulls, f"string_agg(vector_send({name}), '')"]
    if kind == "text":
        return [
            nulls,
            f"string_agg(textsend({name}), '')",
            f"string_agg(int4send(octet_length({name})), '')",
        ]
    send, nothing = _SEND[kind]
    return [nulls, f"string_agg({send}(coalesce({name}, {nothing})), '')"]


def drop_index(schema: str, name: str) -> Statement:
    return sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(schema, name))


def drop_index_at_once(schema: str, name: str) -> Statement:
    """For a transaction that has the table for itself."""
    return sql.SQL("DROP INDEX IF EXISTS {}").format(sql.Identifier(schema, name))


def rename_index(schema: str, name: str, to: str) -> Statement:
    both = sql.Identifier(schema, name), sql.Identifier(to)
    return sql.SQL("ALTER INDEX {} RENAME TO {}").format(*both)


def comment_on_index(schema: str, name: str, comment: str) -> Statement:
    named = sql.Identifier(schema, name)
    return sql.SQL("COMMENT ON INDEX {} IS {}").format(named, sql.Literal(comment))


def role(name: str) -> sql.SQL | sql.Identifier:
    """A role; none is everybody."""
    return sql.Identifier(name) if name else sql.SQL("PUBLIC")


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

    def give(self, on: Statement, column: str | None = None) -> Statement:
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

    # A predicate about the vector itself that can be said of another column too.
    THERE = "the vector is there"

    name: str
    kind: str
    operators: str
    options: str
    predicate: str
    tablespace: str | None
    comment: str | None

    @staticmethod
    def is_there(column: str) -> tuple[str, str]:
        """How a server may put that a column is not null."""
        quoted = sql.Identifier(column).as_string(None)
        return f"({quoted} IS NOT NULL)", f"({column} IS NOT NULL)"

    def create(self, name: str, table: Statement, column: str) -> Statement:
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

    def _predicate(self, column: str) -> Statement:
        if self.predicate == self.THERE:
            return sql.SQL("{} IS NOT NULL").format(sql.Identifier(column))
        return sql.Composed([sql.SQL(self.predicate)])

    def stand_in(self, statements: Statements, column: str) -> str:
        """What the index of the new column is called until it gets this one's name."""
        text = self.create(statements.name, statements.table, column)
        what = f"{self.name}/{text.as_string(None)}"
        digest = hashlib.blake2b(what.encode(), digest_size=5).hexdigest()
        return f"{PREFIX}{digest}_{self.kind}"


@dataclass(frozen=True)
class Check:
    """A CHECK constraint that names the column."""

    name: str
    definition: str
    expression: str
    valid: bool

    def add(self, table: Statement) -> Statement:
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
    drop: Statement
    make: tuple[Statement, ...]
    lock: Statement | None = None

    @classmethod
    def policy(
        cls,
        table: Statement,
        name: str,
        *,
        permissive: bool,
        command: str,
        roles: Sequence[str],
        using: str | None,
        check: str | None,
        comment: str | None,
    ) -> Remade:
        named = sql.Identifier(name)
        make = sql.SQL("CREATE POLICY {} ON {} AS {} FOR {} TO {}{}{}").format(
            named,
            table,
            sql.SQL("PERMISSIVE" if permissive else "RESTRICTIVE"),
            sql.SQL(_COMMANDS[command]),
            sql.SQL(", ").join(map(role, roles)),
            sql.SQL(f" USING ({using})" if using else ""),
            sql.SQL(f" WITH CHECK ({check})" if check else ""),
        )
        return cls._on_table(table, name, "POLICY", [make], comment)

    @classmethod
    def trigger(
        cls, table: Statement, name: str, definition: str, enabled: str, comment: str | None
    ) -> Remade:
        make = [sql.SQL("{}").format(sql.SQL(definition))]
        if state := _TRIGGER_STATES.get(enabled):
            alter = sql.SQL("ALTER TABLE {} {} TRIGGER {}")
            make.append(alter.format(table, sql.SQL(state), sql.Identifier(name)))
        return cls._on_table(table, name, "TRIGGER", make, comment)

    @classmethod
    def _on_table(
        cls, table: Statement, name: str, kind: str, make: list[Statement], comment: str | None
    ) -> Remade:
        what = sql.SQL("{} {} ON {}").format(sql.SQL(kind), sql.Identifier(name), table)
        if comment:
            told = sql.SQL("COMMENT ON {} IS {}").format(what, sql.Literal(comment))
            make = [*make, told]
        return cls(name, sql.SQL("DROP {}").format(what), tuple(make))

    @classmethod
    def view(
        cls,
        schema: str,
        name: str,
        *,
        query: str,
        options: str | None,
        owner: str,
        revoked: Iterable[str],
        grants: Sequence[Grant],
        comment: str | None,
        columns: Iterable[tuple[str, str | None, Sequence[Grant]]],
    ) -> Remade:
        """`revoked` are roles that default privileges give rights to; `columns` have comments and
        rights of their own."""
        view = sql.Composed([sql.Identifier(schema, name)])
        # It has this owner already. LOCK would ask what its owner may do to the table.
        own = sql.SQL("ALTER VIEW {} OWNER TO {}").format(view, sql.Identifier(owner))
        make = [
            sql.SQL("CREATE VIEW {}{} AS {}").format(
                view,
                sql.SQL(f" WITH ({options})" if options else ""),
                sql.SQL(query.rstrip().rstrip(";")),
            ),
            own,
            *(sql.SQL("REVOKE ALL ON {} FROM {}").format(view, role(one)) for one in revoked),
            *(grant.give(view) for grant in grants),
        ]
        if comment:
            make.append(sql.SQL("COMMENT ON VIEW {} IS {}").format(view, sql.Literal(comment)))
        for column, told, rights in columns:
            if told:
                of = sql.Identifier(schema, name, column)
                make.append(sql.SQL("COMMENT ON COLUMN {} IS {}").format(of, sql.Literal(told)))
            make += [grant.give(view, column) for grant in rights]
        return cls(name, sql.SQL("DROP VIEW {}").format(view), tuple(make), lock=own)


@dataclass(frozen=True)
class VectorColumn:
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


@dataclass(frozen=True)
class Statements:
    """The application's table `t`, and the table beside it, `s`, that holds added columns."""

    schema: str
    name: str
    id: str
    id_type: str
    distance: Distance
    by_code_point: bool = False
    collation: str = ""

    @classmethod
    def of(cls, catalog: Catalog, distance: Distance) -> Statements:
        c = catalog
        return cls(c.schema, c.table, c.id, c.id_type, distance, c.by_code_point, c.collation)

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

    @property
    def table(self) -> Statement:
        return self.compose("{table}")

    @property
    def table_name(self) -> str:
        """The application's table, quoted, as the catalogue takes it."""
        return self.compose("{table}").as_string(None)

    @property
    def side_name(self) -> str:
        """The table beside, likewise."""
        return self.compose("{side}").as_string(None)

    @property
    def state_name(self) -> str:
        """The table of values, likewise."""
        return self.compose("{state}").as_string(None)

    @property
    def key(self) -> Statement:
        """What rows are ordered by."""
        return self.compose("t.{id}" if self.native else 't.{id}::text COLLATE "C"')

    @property
    def native(self) -> bool:
        """Whether the order of the ids is that of their index."""
        return self.integer_ids or self.by_code_point

    def compose(self, text: str, **parts: Any) -> Statement:
        """A statement with the names of this table and `parts` filled in."""
        return sql.SQL(text).format(
            table=sql.Identifier(self.schema, self.name),
            side=sql.Identifier(self.schema, self.beside),
            state=sql.Identifier(self.schema, f"{PREFIX}state"),
            store=sql.Literal(self.name),
            id=sql.Identifier(self.id),
            type=sql.SQL(self.id_type),
            cast=sql.SQL("" if self.integer_ids else "::text"),
            **parts,
        )

    # The table of values.

    def state_exists(self) -> Statement:
        return self.compose(
            "SELECT to_regclass({named}) IS NOT NULL", named=sql.Literal(self.state_name)
        )

    def create_state(self) -> Statement:
        return self.compose(
            "CREATE TABLE IF NOT EXISTS {state} "
            "(store text, key text, value text NOT NULL, PRIMARY KEY (store, key))"
        )

    def read_value(self, key: str) -> Statement:
        return self.compose(
            "SELECT value FROM {state} WHERE store = {store} AND key = {key}", key=literal(key)
        )

    def hold_value(self, key: str) -> Statement:
        """Read it so that nobody changes it before the transaction ends."""
        return self.compose(
            "SELECT value FROM {state} WHERE store = {store} AND key = {key} FOR UPDATE",
            key=literal(key),
        )

    def first_value(self, key: str, value: str) -> Statement:
        """Put a value where there is none."""
        return self.compose(
            "INSERT INTO {state} VALUES ({store}, {key}, {value}) ON CONFLICT DO NOTHING",
            key=literal(key),
            value=literal(value),
        )

    def put_value(self, key: Any, value: Any) -> Statement:
        return self.compose(
            "INSERT INTO {state} VALUES ({store}, {key}, {value}) "
            "ON CONFLICT (store, key) DO UPDATE SET value = EXCLUDED.value",
            key=literal(key),
            value=literal(value),
        )

    def lock_state(self) -> Statement:
        return self.compose("LOCK TABLE {state}")

    def delete_value(self, key: Any) -> Statement:
        return self.compose(
            "DELETE FROM {state} WHERE store = {store} AND key = {key}", key=literal(key)
        )

    def no_values_but(self, key: str) -> Statement:
        return self.compose(
            "SELECT NOT EXISTS (SELECT FROM {state} WHERE key <> {key})", key=literal(key)
        )

    def drop_state(self) -> Statement:
        return self.compose("DROP TABLE {state}")

    def delete_values(self) -> Statement:
        """All that is kept of this table."""
        return self.compose("DELETE FROM {state} WHERE store = {store}")

    # A copy of some rows, for a trial.

    def copy_some(self, copy: str, rows: int) -> list[Statement]:
        """Make a table of the same columns, constraints and indexes, and fill it with some rows."""
        made = sql.Identifier(self.schema, copy)
        return [
            # What another table's sequence or formula would give has been given already.
            self.compose(
                "CREATE TABLE {copy} (LIKE {table} INCLUDING ALL EXCLUDING DEFAULTS "
                "EXCLUDING GENERATED EXCLUDING IDENTITY)",
                copy=made,
            ),
            self.compose(
                "INSERT INTO {copy} SELECT * FROM {table} LIMIT {rows}",
                copy=made,
                rows=sql.Literal(rows),
            ),
            self.compose("ANALYZE {copy}", copy=made),
        ]

    def drop_table(self) -> Statement:
        return self.compose("DROP TABLE IF EXISTS {table}")

    def bytes(self) -> Statement:
        """What the table takes with the one beside, and all indexes of both."""
        return self.compose(
            "SELECT pg_total_relation_size({own}) + "
            "coalesce(pg_total_relation_size(to_regclass({beside})), 0)",
            own=sql.Literal(self.table_name),
            beside=sql.Literal(self.side_name),
        )

    # The table beside, as a whole.

    def add_columns(self, columns: Sequence[Column]) -> list[Statement]:
        make = self.compose(
            # Nobody but us writes there, and an index is built anew sooner than it is vacuumed.
            "CREATE TABLE IF NOT EXISTS {side} ({id} {type}{collation} PRIMARY KEY) WITH "
            "(autovacuum_enabled = false, toast.autovacuum_enabled = false, parallel_workers = 8)",
            collation=sql.SQL(self.collation),
        )
        return [
            make,
            *(
                self.compose(
                    "ALTER TABLE {side} ADD COLUMN IF NOT EXISTS {name} {kind}",
                    name=sql.Identifier(c.name),
                    kind=sql.SQL(_TYPES.get(c.kind, f"vector({c.dim})")),
                )
                for c in columns
            ),
        ]

    def drop_side(self) -> Statement:
        return self.compose("DROP TABLE IF EXISTS {side}")

    def drop_added(self, column: str) -> Statement:
        return self.compose(
            "ALTER TABLE {side} DROP COLUMN IF EXISTS {name}", name=sql.Identifier(column)
        )

    def delete_orphans(self) -> Statement:
        """Rows beside whose item has gone."""
        return self.compose(
            "DELETE FROM {side} s WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id})"
        )

    def vacuum_side(self, *, indexes: bool) -> Statement:
        """Dead rows out, from `indexes` too, and the planner told what is in there."""
        return self.compose(
            "VACUUM (ANALYZE, INDEX_CLEANUP {cleanup}) {side}",
            cleanup=sql.SQL("AUTO" if indexes else "OFF"),
        )

    def index_name(self, column: str) -> str:
        """What the index of a column of the table beside is called."""
        digest = hashlib.blake2b(f"{self.beside}/{column}".encode(), digest_size=5).hexdigest()
        return f"{PREFIX}{digest}_hnsw"

    def create_index(self, name: str, column: str) -> Statement:
        """The index of a column of the table beside."""
        return self.compose(
            "CREATE INDEX CONCURRENTLY {name} ON {side} USING hnsw ({column} {kind})",
            name=sql.Identifier(name),
            column=sql.Identifier(column),
            kind=sql.SQL(_CLASSES[self.distance]),
        )

    # Counting.

    def count(self) -> Statement:
        return self.compose("SELECT count(*) FROM {table}")

    def tally(self, column: str) -> Statement:
        # Ids of the application's table come from its index, without a look at its vectors.
        return self.compose(
            "SELECT s.{name}, count(*) FROM {side} s "
            "WHERE EXISTS (SELECT FROM {table} t WHERE t.{id} = s.{id}) GROUP BY 1",
            name=sql.Identifier(column),
        )

    def any_without_id(self) -> Statement:
        return self.compose("SELECT EXISTS (SELECT FROM {table} WHERE {id} IS NULL)")

    # Writing to the table beside.

    def create_staging(self, added: Mapping[str, Kind]) -> Statement:
        """A table of this connection's own that goes at the end of the transaction."""
        fields = [
            sql.SQL("{} {}, ").format(sql.Identifier(name), sql.SQL(_TYPES.get(kind, "vector")))
            for name, kind in added.items()
        ]
        return self.compose(
            "CREATE TEMP TABLE crossfade_staging ({id} {key}, {fields}{token} bigint) "
            "ON COMMIT DROP",
            key=sql.SQL(KINDS[self.id_kind]),
            fields=sql.SQL("").join(fields),
            token=sql.Identifier(TOKEN),
        )

    def empty_staging(self) -> Statement:
        return self.compose("TRUNCATE crossfade_staging")

    def drop_staging(self) -> Statement:
        return self.compose("DROP TABLE crossfade_staging")

    def copy_in(self, names: Sequence[str], into: str = "staging") -> Statement:
        """COPY into the staging table, or straight into the one beside (`side`)."""
        return self.compose(
            f"COPY {'{side}' if into == 'side' else 'crossfade_staging'} ({{fields}}) "
            "FROM STDIN (FORMAT BINARY)",
            fields=sql.SQL(", ").join(map(sql.Identifier, names)),
        )

    def is_there(self, id: Any) -> Statement:
        """Whether the table beside has a row of that id."""
        return self.compose(
            "SELECT EXISTS (SELECT FROM {side} s WHERE s.{id} = {key}::{type})", key=literal(id)
        )

    def any_there(self, span: tuple[Any, Any] | None) -> Statement:
        """Whether the table beside has any of the rows in staging."""
        return self.compose(
            "SELECT EXISTS (SELECT FROM crossfade_staging g JOIN {side} s "
            "ON s.{id} = g.{id}::{type}{within})",
            within=self._within("s", span),
        )

    def unchanged(self, span: tuple[Any, Any] | None) -> Statement:
        """How many rows in staging have an item that is as it was read."""
        return self.compose(
            "SELECT count(*) FROM crossfade_staging g JOIN {table} t "
            "ON t.{id} = g.{id}::{type}{within} WHERE t.xmin::text::bigint = g.{token}",
            token=sql.Identifier(TOKEN),
            within=self._within("t", span),
        )

    def take_out_changed(self) -> Statement:
        """Out of the table beside, rows in staging whose item is not."""
        return self.compose(
            "DELETE FROM {side} s USING crossfade_staging g WHERE s.{id} = g.{id}::{type} "
            "AND NOT EXISTS (SELECT FROM {table} t WHERE t.{id} = g.{id}::{type} "
            "AND t.xmin::text::bigint = g.{token})",
            token=sql.Identifier(TOKEN),
        )

    def take_out_unchanged(self) -> Statement:
        """Out of the table beside, rows in staging whose item is as it was read."""
        return self.compose(
            "DELETE FROM {side} s USING crossfade_staging g, {table} t "
            "WHERE s.{id} = g.{id}::{type} AND t.{id} = s.{id} "
            "AND t.xmin::text::bigint = g.{token}",
            token=sql.Identifier(TOKEN),
        )

    def _within(self, table: str, span: tuple[Any, Any] | None) -> Statement:
        """The first and the last id of a batch spare the server a look at the whole table."""
        if span is None:
            return sql.Composed([])
        return self.compose(
            f" AND {table}.{{id}} BETWEEN {{low}} AND {{high}}",
            low=literal(span[0]),
            high=literal(span[1]),
        )

    def merge(
        self, names: Sequence[str], *, token: bool, span: tuple[Any, Any] | None = None
    ) -> Statement:
        """From staging into the table beside, where the application's row is as it was read; in the
        order in which rows are in staging, whatever way the server joins them."""
        fields = [sql.Identifier(name) for name in names]
        return self.compose(
            "INSERT INTO {side} ({id}, {listed}) SELECT t.{id}, {taken} "
            "FROM crossfade_staging g JOIN {table} t ON t.{id} = g.{id}::{type}{within}{unchanged} "
            "ORDER BY g.ctid ON CONFLICT ({id}) DO UPDATE SET {sets}",
            listed=sql.SQL(", ").join(fields),
            taken=sql.SQL(", ").join(sql.SQL("g.{}").format(f) for f in fields),
            within=self._within("t", span),
            unchanged=sql.SQL(f" WHERE t.xmin::text::bigint = g.{TOKEN}" if token else ""),
            sets=sql.SQL(", ").join(sql.SQL("{f} = EXCLUDED.{f}").format(f=f) for f in fields),
        )

    # Reading rows.

    def gather(
        self,
        columns: Mapping[str, tuple[Kind, bool]],
        tail: Statement,
        *,
        last: Any = None,
        due: Statement | None = None,
    ) -> Statement:
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
        inner = self.compose(
            "SELECT {fields} FROM {first}{table} t{using} {tail}",
            fields=sql.SQL(", ").join(
                [
                    self.compose("t.{id}::{key} AS c0", key=sql.SQL(KINDS[self.id_kind])),
                    *fields,
                    sql.SQL("t.xmin::text::bigint AS c{}").format(sql.SQL(str(len(columns) + 1))),
                ]
            ),
            first=first,
            using=self.compose(" USING ({id})" if first.as_string(None) else ""),
            tail=tail,
        )
        return sql.SQL("SELECT {} FROM ({}) q").format(sql.SQL(", ").join(parts), inner)

    def _side_after(self, last: Any) -> Statement:
        """The table beside from an id on, which the server does not infer from the join."""
        if last is None or not self.native:
            return self.compose("{side}")
        return self.compose("(SELECT * FROM {side} WHERE {id} > {last})", last=self._id(last))

    def first_beside(self, last: Any) -> Statement:
        """The first row of the table beside after an id, which its index finds."""
        return self.compose(
            "SELECT s.{id} FROM {side} s{where} ORDER BY s.{id} LIMIT 1",
            where=sql.SQL("")
            if last is None
            else self.compose(" WHERE s.{id} > {last}", last=self._id(last)),
        )

    def after(self, last: Any, size: int) -> Statement:
        """The tail that names the next `size` rows after an id; text ids by code point, whatever
        the database's own order is."""
        where = sql.SQL("WHERE {} > {} ").format(self.key, self._id(last))
        return self.compose(
            "{where}ORDER BY {key} LIMIT {size}",
            where=sql.SQL("") if last is None else where,
            key=self.key,
            size=sql.Literal(size),
        )

    def in_order(self) -> Statement:
        """The tail that names all rows, in the order of their ids."""
        return self.compose("ORDER BY {key}", key=self.key)

    def activity(self) -> Statement:
        """What the server has counted of rows that came, changed and went, and the last id: a
        session that goes on has its latest rows counted up to ten seconds late."""
        return self.compose(
            "SELECT concat_ws('/', pg_stat_get_tuples_inserted(c), pg_stat_get_tuples_updated(c), "
            "pg_stat_get_tuples_deleted(c), "
            "(SELECT t.{id}::text FROM {table} t ORDER BY t.{id} DESC LIMIT 1)) "
            "FROM (SELECT {name}::regclass::oid AS c) AS t "
            "WHERE current_setting('track_counts')::boolean",
            name=sql.Literal(self.table_name),
        )

    def rows_of(self, ids: Any) -> Statement:
        """The tail that names these ids."""
        given = ids if isinstance(ids, sql.Composable) else sql.Literal(list(ids))
        return self.compose("WHERE t.{id} = ANY({ids}::{type}[])", ids=given)

    def missing(self, last: Any, size: int) -> Statement:
        """Ids of the next `size` rows after an id that have none beside, from the indexes of the
        ids alone."""
        terms = [self.compose("m.{id} IS NULL")]
        if last is not None:
            terms.append(sql.SQL("{} > {}").format(self.key, self._id(last)))
        return self.compose(
            "SELECT t.{id} FROM {beside} m RIGHT JOIN {table} t USING ({id}) "
            "WHERE {terms} ORDER BY {key} LIMIT {size}",
            beside=self._side_after(last),
            terms=sql.SQL(" AND ").join(terms),
            key=self.key,
            size=sql.Literal(size),
        )

    def _id(self, last: Any) -> Statement:
        if self.integer_ids or not self.native:
            return sql.Composed([sql.Literal(last)])
        return self.compose("{last}::{type}", last=sql.Literal(last))

    # Searching two columns at once.

    def score(
        self,
        near: Statement,
        *,
        old: str,
        halves: bool,
        shared: str | None,
        state: str,
        columns: Sequence[str],
    ) -> Statement:
        """Rows that one of two searches has found (`Nearest.candidates`), and how far each is: from
        $1 and $2 by its old vector, from $3 by its shared one, where there is one. The old vector
        itself comes as the bytes that the server sends it as."""
        operator, exact = sql.SQL(_OPERATORS[self.distance]), sql.SQL("::vector" if halves else "")
        on_old = [
            sql.SQL("t.{}{} {} ${}::vector").format(sql.Identifier(old), exact, operator, number)
            for number in (sql.SQL("1"), sql.SQL("2"))
        ]
        on_old.append(sql.SQL("vector_send(t.{}{})").format(sql.Identifier(old), exact))
        on_shared = []
        if shared is not None:
            on_shared = [
                sql.SQL("s.{} {} $3::vector").format(sql.Identifier(shared), operator),
                sql.SQL("s.{}").format(sql.Identifier(state)),
            ]
        # Whoever locks both tables begins with the one beside, and so does this.
        beside = shared is not None or any(map(is_added, columns))
        return self.compose(
            "SELECT t.{id}{cast}, crossfade_distance, {fields} FROM {home} "
            "({near}) c JOIN {table} t ON t.{id} = crossfade_key{using}",
            fields=sql.SQL(", ").join([*on_old, *on_shared, *map(_qualified, columns)]),
            home=self.compose("{side} s RIGHT JOIN (" if beside else ""),
            near=near,
            using=self.compose(") ON s.{id} = t.{id}" if beside else ""),
        )

    # Letting a new column take the place of the old one.

    def lock_calmly(self) -> Statement:
        """A vacuum gives way to whoever waits a second for it. This lock is in nobody else's way,
        and keeps the next one off."""
        return self.compose("LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")

    def lock_table(self) -> Statement:
        return self.compose("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")

    def lock_side(self) -> Statement:
        return self.compose("LOCK TABLE {side} IN ACCESS EXCLUSIVE MODE")

    def add_new_column(self, new: NewColumn) -> list[Statement]:
        """Like the old one in everything that is not its values."""
        like, alter = new.like, [f"SET STORAGE {_STORAGES[new.like.storage]}"]
        if like.compression:
            alter.append(f"SET COMPRESSION {_COMPRESSIONS[like.compression]}")
        if like.statistics >= 0:
            alter.append(f"SET STATISTICS {like.statistics}")
        if like.options:
            alter.append(f"SET ({', '.join(like.options)})")
        out = [
            self.compose(
                "ALTER TABLE {table} ADD COLUMN {name} {kind}",
                name=new.identifier,
                kind=sql.SQL(new.type),
            ),
            *(
                self.compose(
                    "ALTER TABLE {table} ALTER COLUMN {name} {act}",
                    name=new.identifier,
                    act=sql.SQL(one),
                )
                for one in alter
            ),
            *(grant.give(self.table, new.name) for grant in like.grants),
        ]
        if like.comment:
            out.append(
                self.compose(
                    "COMMENT ON COLUMN {table}.{name} IS {comment}",
                    name=new.identifier,
                    comment=sql.Literal(like.comment),
                )
            )
        return out

    def drop_new_column(self, name: str) -> Statement:
        return self.compose(
            "ALTER TABLE {table} DROP COLUMN IF EXISTS {name}", name=sql.Identifier(name)
        )

    def _wanted(self, new: NewColumn) -> Statement:
        """What a row should have in the new column: of a null or a zero vector nothing can be made,
        and a column that has to have something gets zeros of the new dimension."""
        kind = sql.SQL(new.type)
        shared = sql.SQL("s.{}::{}").format(new.identifier, kind)
        if not new.like.not_null:
            return shared
        return sql.SQL(
            "CASE WHEN s.{} IS NULL AND vector_norm(t.{}::vector) = 0 "
            "THEN array_fill(0, ARRAY[{}])::{} ELSE {} END"
        ).format(new.identifier, sql.Identifier(new.old), sql.Literal(new.dim), kind, shared)

    def due_on_pages(self, new: NewColumn, first: int, last: int) -> Statement:
        """Rows of a stretch of pages that have nothing in the new column, one row of each page at a
        time."""
        return self.compose(
            "SELECT t.{id}{cast}, row_number() OVER (PARTITION BY "
            "(t.ctid::text::point)[0] ORDER BY t.ctid) FROM {table} t "
            "WHERE t.ctid >= {first}::tid AND t.ctid < {last}::tid AND t.{name} IS NULL "
            "ORDER BY 2, t.ctid",
            first=sql.Literal(f"({first},0)"),
            last=sql.Literal(f"({last},0)"),
            name=new.identifier,
        )

    def behind(self, new: NewColumn, most: int) -> Statement:
        """Rows, at one moment, that have another vector than they should have."""
        return self.compose(
            "SELECT t.{id}{cast} FROM {side} s RIGHT JOIN {table} t USING ({id}) "
            "WHERE t.{name} IS DISTINCT FROM {wanted} LIMIT {most}",
            name=new.identifier,
            wanted=self._wanted(new),
            most=sql.Literal(most),
        )

    def lock_free_rows(self, ids: Any) -> Statement:
        """These rows, but for those that others have locked."""
        return self.compose(
            "SELECT t.{id}{cast} FROM {table} t {these} FOR NO KEY UPDATE SKIP LOCKED",
            these=self.rows_of(ids),
        )

    def bring_over(self, new: NewColumn, ids: Any) -> Statement:
        """Vectors from the table beside into the new column of these rows."""
        return self.compose(
            "UPDATE {table} t SET {name} = q.wanted FROM (SELECT t.{id}, {wanted} AS wanted "
            "FROM {side} s RIGHT JOIN {table} t USING ({id}) {these}) q "
            "WHERE q.{id} = t.{id} AND t.{name} IS DISTINCT FROM q.wanted",
            name=new.identifier,
            wanted=self._wanted(new),
            these=self.rows_of(ids),
        )

    def since(self, horizon: str) -> Statement:
        """Rows that came or changed since; a transaction's number goes round, its age does not."""
        return self.compose(
            "SELECT t.{id}{cast} FROM {table} t WHERE age(t.xmin) <= age({horizon}::xid)",
            horizon=sql.Literal(horizon),
        )

    def before(self, horizon: str) -> Statement:
        """The tail that names the other ones."""
        return self.compose(
            "WHERE NOT age(t.xmin) <= age({horizon}::xid)", horizon=sql.Literal(horizon)
        )

    def lost(self, new: NewColumn, among: Statement) -> Statement:
        """A row that has an old vector and no new one."""
        return self.compose(
            "SELECT t.{id}{cast} FROM {table} t {among} AND t.{name} IS NULL "
            "AND vector_norm(t.{old}::vector) > 0 LIMIT 1",
            among=among,
            name=new.identifier,
            old=sql.Identifier(new.old),
        )

    def refused_by(
        self,
        check: Check,
        catalog: Catalog,
        *,
        shared: str | None,
        among: Statement | None = None,
        tried: int = 1000,
    ) -> Statement:
        """A row that a constraint refuses once it has its new vector.

        `shared` is the column of new vectors: of the application's table where `among` says which
        rows, else of the table beside. Without one, `tried` old vectors with another dimension are.
        """
        names = [sql.Identifier(name) for name in catalog.kinds if name != catalog.vector]
        others = sql.SQL("").join(sql.SQL(", t.{}").format(name) for name in names)
        if shared is None:
            vector = sql.SQL("t.{0} || (ARRAY[0]::real[])::{1}").format(
                sql.Identifier(catalog.vector), sql.SQL("halfvec" if catalog.halves else "vector")
            )
            home = self.compose("{table} t LIMIT {rows}", rows=sql.Literal(tried))
        elif among is None:
            vector = sql.SQL("s.{}{}").format(
                sql.Identifier(shared), sql.SQL("::halfvec" if catalog.halves else "")
            )
            home = self.compose("{side} s JOIN {table} t USING ({id})")
        else:
            vector = sql.SQL("t.{}").format(sql.Identifier(shared))
            home = self.compose("{table} t {among}", among=among)
        return self.compose(
            "SELECT 1 FROM (SELECT {vector} AS {old}{others} FROM {home}) AS {name} "
            "WHERE NOT ({expression}) LIMIT 1",
            vector=vector,
            old=sql.Identifier(catalog.vector),
            others=others,
            home=home,
            name=sql.Identifier(self.name),
            expression=sql.SQL(check.expression),
        )

    def forget_indexes(self, new: NewColumn, indexes: Sequence[Index]) -> list[Statement]:
        """Rows that are written in the last moment need no entries in indexes that go in it."""
        names = [self.index_name(new.name), *(index.name for index in indexes)]
        return [drop_index_at_once(self.schema, name) for name in names]

    def exchange(
        self,
        new: NewColumn,
        *,
        indexes: Sequence[Index],
        checks: Sequence[Check],
        remade: Sequence[Remade],
    ) -> list[Statement]:
        """Out with the old column, in with the new one, and with all that hung on it."""
        out = [one.drop for one in reversed(remade)]
        for act in (
            "ALTER TABLE {table} DROP COLUMN {old}",
            "ALTER TABLE {table} RENAME COLUMN {name} TO {old}",
            "DROP TABLE {side}",
        ):
            out.append(self.compose(act, name=new.identifier, old=sql.Identifier(new.old)))
        for index in indexes:
            out.append(rename_index(self.schema, index.stand_in(self, new.name), index.name))
            if index.comment:
                out.append(comment_on_index(self.schema, index.name, index.comment))
        if new.like.not_null:
            # Valid at once it would be a look at every row.
            out.append(
                self.compose(
                    "ALTER TABLE {table} ADD CONSTRAINT {ours} CHECK ({old} IS NOT NULL) NOT VALID",
                    ours=sql.Identifier(_NOT_NULL),
                    old=sql.Identifier(new.old),
                )
            )
        out += [check.add(self.table) for check in checks]
        return out + [one for each in remade for one in each.make]

    def validate(self, checks: Sequence[str], *, not_null: bool) -> list[Statement]:
        """Constraints that hold already are looked at, which keeps nobody from the table."""
        return [
            self.compose(
                "ALTER TABLE {table} VALIDATE CONSTRAINT {name}", name=sql.Identifier(name)
            )
            for name in [*checks, *([_NOT_NULL] if not_null else [])]
        ]

    def set_not_null(self, column: str) -> list[Statement]:
        """Once a constraint says so, the server takes its word and does not look."""
        return [
            self.compose(
                "ALTER TABLE {table} ALTER COLUMN {name} SET NOT NULL", name=sql.Identifier(column)
            ),
            self.compose(
                "ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {ours}",
                ours=sql.Identifier(_NOT_NULL),
            ),
        ]


@dataclass(frozen=True)
class NewColumn:
    """The column of the application's table that takes the place of the one called `old`."""

    name: str
    old: str
    dim: int
    like: VectorColumn

    @property
    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.name)

    @property
    def type(self) -> str:
        return f"{self.like.type}({self.dim})"


def is_added(column: str) -> bool:
    """Whether a column is one of the table beside."""
    return column.startswith(PREFIX)


def written_out(statement: Statement) -> Statement:
    """The same statement in one piece: to put a hundred together takes as long as a search."""
    return sql.Composed([sql.SQL(cast(Any, statement.as_string(None)))])


def _qualified(column: str) -> Statement:
    return sql.SQL("{}.{}").format(
        sql.SQL("s" if is_added(column) else "t"), sql.Identifier(column)
    )


@dataclass(frozen=True)
class Nearest:
    """The `k` rows whose vectors are nearest to one that is bound as a parameter of that number.

    `where` is as `check_where` gives it; `halves` says that the application's vectors are.
    """

    statements: Statements
    column: str
    k: int
    columns: tuple[str, ...]
    halves: bool
    where: Mapping[str, list[Any] | Range] = field(default_factory=dict, hash=False)
    missing: bool = False
    parameter: int = 1

    @property
    def aside(self) -> bool:
        """Whether it is a column of the table beside."""
        return is_added(self.column)

    def by_index(self, depth: int) -> Statement:
        """Of the nearest `depth` rows the nearest that pass."""
        return self._select(*self._near(depth))

    def exact(self) -> Statement:
        """By going through all rows that pass."""
        return self._select(*self._all())

    def candidates(self, depth: int | None) -> Statement:
        """Ids and distances alone, by an index or, without `depth`, exact."""
        home = self._all() if depth is None else self._near(depth)
        return self._select(*home, bare=True)

    def explain(self) -> Statement:
        return sql.SQL("EXPLAIN (FORMAT JSON) {}").format(self.exact())

    def _near(self, depth: int) -> tuple[Statement, Statement, list[Statement]]:
        near = sql.SQL(
            "(SELECT n.*, {distance} AS crossfade_distance FROM {home} n "
            "WHERE {vector} IS NOT NULL ORDER BY {distance} LIMIT {depth})"
        ).format(
            distance=self._distance("n"),
            home=self._home,
            vector=self._vector("n"),
            depth=sql.Literal(depth),
        )
        return near, sql.SQL("{}.crossfade_distance").format(sql.SQL(self._letter)), []

    def _all(self) -> tuple[Statement, Statement, list[Statement]]:
        # An expression that no index is made of.
        distance = sql.SQL("({} + 0)").format(self._distance(self._letter))
        there = sql.SQL("{} IS NOT NULL").format(self._vector(self._letter))
        return self._home, distance, [there]

    @property
    def _letter(self) -> str:
        return "s" if self.aside else "t"

    @property
    def _home(self) -> Statement:
        return self.statements.compose("{side}" if self.aside else "{table}")

    def _select(
        self, home: Statement, distance: Statement, terms: list[Statement], *, bare: bool = False
    ) -> Statement:
        compose = self.statements.compose
        joined = "{home} s JOIN {table} t USING ({id})" if self.aside else "{home} t"
        if self.missing:
            # Whoever locks both tables begins with the one beside, and so does this.
            joined = "{side} s RIGHT JOIN {home} t USING ({id})"
            terms = [compose("s.{id} IS NULL"), *terms]
        elif not self.aside and any(map(is_added, self.columns)):
            joined = "{side} s RIGHT JOIN {home} t USING ({id})"
        terms = [
            *(term for name, values in self.where.items() for term in _kept(name, values)),
            *terms,
        ]
        fields = compose(
            "t.{id} AS crossfade_key, {distance} AS crossfade_distance", distance=distance
        )
        if not bare:
            values = [sql.SQL(", {}").format(_qualified(name)) for name in self.columns]
            fields = compose(
                "t.{id}{cast}, {distance}{values}",
                distance=distance,
                values=sql.SQL("").join(values),
            )
        return compose(
            "SELECT {fields} FROM {joined}{where} ORDER BY {distance} LIMIT {k}",
            fields=fields,
            joined=compose(joined, home=home),
            where=sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(terms))
            if terms
            else sql.SQL(""),
            distance=distance,
            k=sql.Literal(self.k),
        )

    def _vector(self, letter: str) -> Statement:
        return sql.SQL("{}.{}").format(sql.SQL(letter), sql.Identifier(self.column))

    def _distance(self, letter: str) -> Statement:
        return sql.SQL("({} {} ${}::vector{})").format(
            self._vector(letter),
            sql.SQL(_OPERATORS[self.statements.distance]),
            sql.SQL(str(self.parameter)),
            sql.SQL("::halfvec" if self.halves and not self.aside else ""),
        )


def _kept(name: str, values: list[Any] | Range) -> list[Statement]:
    """The terms of a filter on one column."""
    column = sql.Identifier(name)
    if isinstance(values, Range):
        return [
            sql.SQL("t.{} {} {}").format(column, sql.SQL(sign), sql.Literal(end))
            for sign, end in values.ends
        ]
    return [sql.SQL("t.{} = ANY({})").format(column, sql.Literal(values))]
