"""PostgreSQL's binary format, for rows that are alike and rows that are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from crossfade.files.arrow import to_arrow
from crossfade.stores.pgcopy import decode, encode
from crossfade.stores.rows import matrix

integers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
texts = st.one_of(st.none(), st.text(max_size=5))
numbers = st.one_of(st.none(), st.floats(allow_nan=False))
flags = st.one_of(st.none(), st.booleans())


@given(st.lists(st.tuples(integers, texts, numbers, flags), max_size=6), st.booleans())
def test_what_goes_in_comes_out(rows, without_nulls):
    if without_nulls:
        rows = [(i or 0, t or "x", n or 0.5, bool(f)) for i, t, n, f in rows]
    kinds = ["integer", "text", "number", "boolean"]
    types = [pa.int64(), pa.string(), pa.float64(), pa.bool_()]
    columns = [pa.array([row[i] for row in rows], t) for i, t in enumerate(types)]
    assert [c.to_pylist() for c in decode(encode(columns, kinds), kinds)] == [
        c.to_pylist() for c in columns
    ]


@given(st.integers(0, 5), st.integers(1, 4), st.sets(st.integers(0, 4)), st.booleans())
def test_vectors_come_out_as_they_were(rows, dim, nulls, alike):
    vectors = np.random.default_rng(rows).normal(size=(rows, dim)).astype(np.float32)
    null = np.array([i in nulls for i in range(rows)], bool)
    column = to_arrow(vectors)
    if null.any():
        flat = pa.array(vectors.ravel())
        column = pa.FixedSizeListArray.from_arrays(flat, dim, mask=pa.array(null))
    names = pa.array(["same" if alike else "x" * i for i in range(rows)], pa.string())
    out, again = decode(encode([column, names], ["vector", "text"]), ["vector", "text"], [dim])
    assert again.to_pylist() == names.to_pylist()
    assert out.is_null().to_pylist() == null.tolist()
    np.testing.assert_array_equal(matrix(out)[~null], vectors[~null])
