"""The texts of the example are real, several thousand, and the same every time."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections import Counter

import networkx
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.signal
from examples.texts import PACKAGES, read_corpus


@pytest.fixture(scope="module")
def corpus():
    return read_corpus()


def test_there_are_several_thousand_of_them_from_every_package(corpus):
    assert len(corpus) > 3000
    assert {name.split(".")[0] for name in corpus.ids} == set(PACKAGES)
    for column in (corpus.texts, corpus.labels, corpus.queries, corpus.parts):
        assert len(column) == len(corpus)


def test_no_document_and_no_query_is_there_twice(corpus):
    for column in (corpus.ids, corpus.texts, corpus.queries):
        assert len(set(column)) == len(corpus)


def test_documents_are_prose_of_a_length_that_models_take(corpus):
    for text, query in zip(corpus.texts, corpus.queries, strict=True):
        assert 70 <= len(text) <= 400
        assert 20 <= len(query) <= 160
        assert "\n" not in text + query
        assert "`" not in text + query


@pytest.mark.parametrize(
    ("name", "function", "label"),
    [
        (
            "networkx.algorithms.wiener.schultz_index",
            networkx.schultz_index,
            "networkx.algorithms",
        ),
        ("scipy.signal._peak_finding.peak_widths", scipy.signal.peak_widths, "scipy.signal"),
    ],
)
def test_a_document_and_its_query_are_what_the_function_says(corpus, name, function, label):
    # Asked of the imported package, where the corpus was read from its files.
    row = corpus.ids.index(name)
    words = " ".join(inspect.getdoc(function).replace("`", "").split())
    assert words.startswith(f"{corpus.queries[row]} {corpus.texts[row]}")
    assert corpus.labels[row] == label


def test_labels_are_classes_of_some_size(corpus):
    counts = Counter(corpus.labels)
    assert len(counts) > 50
    assert sum(count for label, count in counts.items() if "." in label) > len(corpus) / 2
    assert all(count >= 10 for label, count in counts.items() if "." in label)


def test_every_document_belongs_to_one_part(corpus):
    rows = np.concatenate([corpus.rows("train"), corpus.rows("held"), corpus.rows("rest")])
    assert sorted(rows.tolist()) == list(range(len(corpus)))
    for part, share in (("train", 0.3), ("held", 0.2), ("rest", 0.5)):
        assert len(corpus.rows(part)) / len(corpus) == pytest.approx(share, abs=0.03)


def test_a_limit_leaves_each_document_in_its_part(corpus):
    some = read_corpus(("networkx", "numpy"), limit=200)
    assert len(some) == 200
    parts = dict(zip(corpus.ids, corpus.parts, strict=True))
    assert [parts.get(name, part) for name, part in zip(some.ids, some.parts, strict=True)] == (
        some.parts
    )
    assert len(set(some.ids) & set(corpus.ids)) > 190


def test_the_same_table_is_written_in_every_process(tmp_path):
    tables = []
    for seed in ("1", "2"):
        path = tmp_path / f"{seed}.parquet"
        script = (
            "import sys\n"
            "from examples.texts import read_corpus, write_corpus\n"
            "write_corpus(read_corpus(('networkx', 'numpy'), limit=300), sys.argv[1])"
        )
        subprocess.run(
            [sys.executable, "-c", script, str(path)],
            check=True,
            capture_output=True,
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        tables.append(pq.read_table(path))
    assert tables[0].equals(tables[1])
    assert tables[0].column_names == ["id", "text", "label", "query", "part"]


def test_a_package_that_is_not_there_is_named():
    with pytest.raises(ModuleNotFoundError, match=r"nothing_of_this_name is not installed: pip"):
        read_corpus(("nothing_of_this_name",))
