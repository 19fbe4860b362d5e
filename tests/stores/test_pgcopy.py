"""Rows in bulk, through a real server: what goes in comes out, alike or not, null or not."""

from __future__ import annotations

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.stores.postgres import fresh_database

from crossfade.files.arrow import to_arrow
from crossfade.stores.postgres.copy import encode, scattered
from crossfade.stores.postgres.statements import gathered
from crossfade.stores.rows import matrix

KINDS = ("integer", "text", "number", "boolean", "vector")
TYPES = (pa.int64(), pa.string(), pa.float64(), pa.bool_())
integers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
# PostgreSQL's text holds everything but the character zero.
letters = st.characters(exclude_characters="\0", codec="utf-8")
texts = st.one_of(st.none(), st.text(letters, max_size=5))
numbers = st.one_of(st.none(), st.floats(allow_nan=False))
flags = st.one_of(st.none(), st.booleans())
rows_of = st.lists(st.tuples(integers, texts, numbers, flags, st.booleans()), max_size=6)


@pytest.fixture(scope="module")
def connection():
    with psycopg.connect(fresh_database(), autocommit=True) as opened:
        opened.execute(
            "CREATE TABLE t (place serial, c0 bigint, c1 text, c2 float8, c3 boolean, c4 vector(3))"
        )
        yield opened


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows_of, st.booleans())
def test_what_goes_in_comes_out(connection, rows, alike):
    if alike:
        rows = [(i or 0, "same", n or 0.5, bool(f), False) for i, _, n, f, _ in rows]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(TYPES)]
    vectors = np.random.default_rng(len(rows)).normal(size=(len(rows), 3)).astype(np.float32)
    null = np.array([row[4] for row in rows], bool)
    columns.append(
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3, mask=pa.array(null))
        if null.any()
        else to_arrow(vectors)
    )
    connection.execute("TRUNCATE t RESTART IDENTITY")
    with connection.cursor() as cursor:
        with cursor.copy("COPY t (c0, c1, c2, c3, c4) FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(encode(columns, KINDS))
        selected = ", ".join(one for i, kind in enumerate(KINDS) for one in gathered(f"c{i}", kind))
        query = f"SELECT {selected} FROM (SELECT * FROM t ORDER BY place) q"  # noqa: S608
        cursor.execute(query, binary=True)
        values = iter(cursor.fetchone())
    for column, kind in zip(columns[:4], KINDS[:4], strict=True):
        found = scattered([next(values) for _ in gathered("", kind)], kind)
        assert found.to_pylist() == column.to_pylist()
    found = scattered([next(values) for _ in gathered("", "vector")], "vector", 3)
    assert found.is_null().to_pylist() == null.tolist()
    np.testing.assert_array_equal(matrix(found)[~null], vectors[~null])
