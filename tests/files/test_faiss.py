"""FAISS indexes as files of vectors: what FAISS wrote is read, and what is written FAISS reads."""

from __future__ import annotations

import struct
import subprocess
import sys

import faiss
import numpy as np
import pytest

from crossfade.errors import BadInput
from crossfade.files import Layout, left_out, list_arrays, open_source, read_values, write_batches

ROWS, DIM = 300, 8
HEADER = 4 + 33


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype("f4")


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(1).permutation(5 * ROWS)[:ROWS].astype(np.int64) - 100


def flat(x, metric=faiss.METRIC_INNER_PRODUCT):
    index = faiss.IndexFlat(x.shape[1], metric)
    index.add(x)
    return index


def with_ids(index, x, ids, kind=faiss.IndexIDMap):
    mapped = kind(index)
    mapped.add_with_ids(x, ids)
    return mapped


def trained(x, factory):
    index = faiss.index_factory(x.shape[1], factory)
    index.train(x)
    return index


def saved(index, path):
    faiss.write_index(index, str(path))
    return path


def read(path, size=70):
    source = open_source(path)
    return np.concatenate(list(source.vectors(size)))


@pytest.mark.parametrize(
    "factory", ["Flat", "IVF4,Flat", "HNSW8,Flat", "IDMap,Flat", "IVF4,SQfp16"]
)
@pytest.mark.parametrize("ending", ["faiss", "index"])
def test_an_index_gives_its_vectors_in_the_order_they_were_added(tmp_path, x, factory, ending):
    index = trained(x, factory)
    index.add_with_ids(x, np.arange(ROWS)) if "IDMap" in factory else index.add(x)
    source = open_source(saved(index, tmp_path / f"gallery.{ending}"))
    assert (source.rows, source.dim, source.dtype, source.column) == (ROWS, DIM, "f4", "vector")
    for size in (1, 70, ROWS, 10_000):
        blocks = list(source.vectors(size))
        assert max(map(len, blocks)) <= size
        atol = 2e-3 if "SQ" in factory else 0
        assert np.allclose(np.concatenate(blocks), x, atol=atol, rtol=0)


@pytest.mark.parametrize("kind", [faiss.IndexIDMap, faiss.IndexIDMap2])
@pytest.mark.parametrize("factory", ["Flat", "HNSW8,Flat", "IVF4,Flat"])
def test_ids_are_a_column(tmp_path, x, ids, kind, factory):
    path = saved(with_ids(trained(x, factory), x, ids, kind), tmp_path / "g.faiss")
    assert [str(one) for one in list_arrays(path)] == [
        f"'vector' ({ROWS} × {DIM} float32)",
        f"'id' ({ROWS} int64)",
    ]
    assert read_values(path).to_pylist() == ids.tolist()
    assert read_values(path, "id").to_pylist() == ids.tolist()
    batches = list(open_source(path).batches(64))
    assert [key for b in batches for key in b.column("id").to_pylist()] == ids.tolist()
    assert np.array_equal(read(path), x)


def test_ids_that_an_ivf_index_keeps_itself_come_in_their_order(tmp_path, x, ids):
    index = trained(x, "IVF4,Flat")
    index.add_with_ids(x, ids)
    path = saved(index, tmp_path / "g.index")
    order = np.argsort(ids)
    assert read_values(path).to_pylist() == ids[order].tolist()
    assert np.array_equal(read(path), x[order])


@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_written_is_what_faiss_itself_writes(tmp_path, x, ids, metric, mapped):
    index = with_ids(faiss.IndexFlat(DIM, metric), x, ids) if mapped else flat(x, metric)
    given = saved(index, tmp_path / "given.index")
    source = open_source(given)
    write_batches(
        tmp_path / "written.faiss",
        source.batches(70),
        Layout(source.schema, source.column, source.rows),
    )
    assert (tmp_path / "written.faiss").read_bytes() == given.read_bytes()
    found = faiss.read_index(str(tmp_path / "written.faiss"))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(found.search(x[:20], 5), index.search(x[:20], 5), strict=True)
    )


def test_a_table_keeps_its_whole_numbers_as_ids_and_says_what_it_leaves_out(tmp_path, x, ids):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from crossfade.files.arrow import to_arrow

    columns = {"id": pa.array(ids), "vector": to_arrow(x), "body": pa.array(["text"] * ROWS)}
    pq.write_table(pa.table(columns), tmp_path / "g.parquet")
    source = open_source(tmp_path / "g.parquet")
    layout = Layout(source.schema, source.column, source.rows)
    path = tmp_path / "g.faiss"
    assert left_out(path, layout) == ("body",)
    write_batches(path, source.batches(70), layout)
    index = faiss.read_index(str(path))
    assert index.metric_type == faiss.METRIC_INNER_PRODUCT
    best = np.argmax(x[:20] @ x.T, axis=1)
    assert np.array_equal(index.search(x[:20], 1)[1].ravel(), ids[best])


def test_ids_that_are_text_are_left_out(tmp_path, x):
    import pyarrow as pa

    from crossfade.files.arrow import to_arrow

    table = pa.table({"id": [str(n) for n in range(ROWS)], "vector": to_arrow(x)})
    layout = Layout(table.schema, "vector", ROWS)
    assert left_out(tmp_path / "g.faiss", layout) == ("id",)
    write_batches(tmp_path / "g.faiss", table.to_batches(), layout)
    assert faiss.read_index(str(tmp_path / "g.faiss")).ntotal == ROWS
    assert [one.name for one in list_arrays(tmp_path / "g.faiss")] == ["vector"]


def test_a_row_without_an_id_is_refused(tmp_path, x):
    import pyarrow as pa

    from crossfade.files.arrow import to_arrow

    table = pa.table({"id": [None, *range(1, ROWS)], "vector": to_arrow(x)})
    with pytest.raises(BadInput, match="a row has no id"):
        write_batches(
            tmp_path / "g.faiss", table.to_batches(), Layout(table.schema, "vector", ROWS)
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("PQ4x4", "is an IndexPQ, which does not give its vectors back"),
        ("OPQ4_8,Flat", "is an IndexPreTransform"),
        ("LSH", "is an IndexLSH"),
    ],
)
def test_what_cannot_give_its_vectors_back_is_refused(tmp_path, x, factory, message):
    index = trained(x, factory)
    index.add(x)
    with pytest.raises(BadInput, match=message):
        open_source(saved(index, tmp_path / "g.index"))


def test_another_metric_is_refused(tmp_path, x):
    for factory in ("Flat", "HNSW8,Flat"):
        index = faiss.index_factory(DIM, factory, faiss.METRIC_L1)
        index.add(x)
        with pytest.raises(BadInput, match="inner product or L2"):
            open_source(saved(index, tmp_path / "g.index"))


def test_an_empty_index_is_refused(tmp_path):
    with pytest.raises(BadInput, match="is empty"):
        open_source(saved(faiss.IndexFlatL2(3), tmp_path / "g.index"))


def changed(data, at, value):
    out = bytearray(data)
    out[at : at + len(value)] = value
    return bytes(out)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d[:20], "is truncated: it ends within its header"),
        (lambda d: d[: HEADER + 4], "is truncated: it ends within its header"),
        (lambda d: d[:-10], "is truncated: 10 bytes are missing"),
        (lambda d: d + b"more", "is damaged: 4 bytes more than it says"),
        (lambda d: changed(d, 8, struct.pack("<q", 2**60)), "is damaged: "),
        (lambda d: changed(d, 8, struct.pack("<q", -1)), "is damaged: "),
        (lambda d: changed(d, 4, struct.pack("<i", -DIM)), "is damaged: "),
        (lambda d: changed(d, HEADER, struct.pack("<Q", 2**62)), "is damaged: "),
        (lambda d: changed(d, HEADER - 4, struct.pack("<i", 7)), "compares by metric 7"),
        (lambda d: b"", "is empty"),
        (lambda d: b"IxF", "is not an index of FAISS, or is damaged"),
        (lambda d: b"hello, world, what a day", "is not an index of FAISS, or is damaged"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path, x, damage, message):
    good = saved(flat(x), tmp_path / "good.index").read_bytes()
    path = tmp_path / "bad.index"
    path.write_bytes(damage(good))
    with pytest.raises(BadInput, match=message) as raised:
        open_source(path)
    assert str(raised.value).startswith(str(path))


def test_ids_that_are_not_as_many_as_rows_are_found(tmp_path, x, ids):
    path = saved(with_ids(faiss.IndexFlatL2(DIM), x, ids), tmp_path / "g.index")
    data = path.read_bytes()
    path.write_bytes(changed(data, len(data) - 8 * ROWS - 8, struct.pack("<Q", ROWS - 1)))
    with pytest.raises(BadInput, match="not one id for each row"):
        read_values(path)


FUZZ = """
import sys
import numpy as np
from crossfade.errors import BadInput
from crossfade.files import open_source
rng, good = np.random.default_rng(0), open(sys.argv[1], "rb").read()
refused = 0
for _ in range(150):
    data = bytearray(good)
    for _ in range(int(rng.integers(1, 4))):
        data[int(rng.integers(0, min(len(data), 400)))] = int(rng.integers(256))
    data = data[: len(data) - int(rng.integers(0, 2) * rng.integers(0, len(data)))]
    open(sys.argv[2], "wb").write(data)
    try:
        for block in open_source(sys.argv[2]).vectors(64):
            assert block.dtype == np.float32
    except BadInput:
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("factory", ["Flat", "IDMap,Flat", "IVF4,Flat", "HNSW8,Flat"])
def test_no_damage_ends_the_process(tmp_path, x, factory):
    index = trained(x, factory)
    index.add_with_ids(x, np.arange(ROWS)) if "IDMap" in factory else index.add(x)
    path = saved(index, tmp_path / "good.index")
    ran = subprocess.run(
        [sys.executable, "-c", FUZZ, path, tmp_path / "bad.index"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) > 50


def test_a_flat_index_needs_no_faiss_and_another_names_the_extra(tmp_path, x):
    saved(flat(x), tmp_path / "flat.index")
    hnsw = faiss.IndexHNSWFlat(DIM, 8)
    hnsw.add(x)
    saved(hnsw, tmp_path / "hnsw.index")
    script = (
        "import sys\n"
        "sys.modules['faiss'] = None\n"
        "from crossfade.errors import MissingExtra\n"
        "from crossfade.files import open_source\n"
        "print(open_source(sys.argv[1]).rows)\n"
        "try:\n"
        "    open_source(sys.argv[2])\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "flat.index", tmp_path / "hnsw.index"],
        capture_output=True,
        text=True,
    )
    assert ran.stdout.splitlines() == [
        str(ROWS),
        "reading this FAISS index needs faiss, which is not installed → "
        "pip install 'crossfade[faiss]'",
    ], ran.stderr
