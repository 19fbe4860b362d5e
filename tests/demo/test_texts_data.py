"""What is shipped for the demo: small, readable without pickle, and what it is said to be."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from examples.demo_data import DOCUMENTS, LOOKUPS, PACKAGES, quantized
from examples.texts import read_corpus

from crossfade.demo.models import embed_old
from crossfade.demo.texts import embed_new, load_texts
from crossfade.demo.texts.data import FILE, PLANNED_WITH

SHIPPED = Path(str(files("crossfade.demo.texts")))


def mrr(scores: np.ndarray, wanted: np.ndarray) -> float:
    places = 1 + (scores > scores[np.arange(len(wanted)), wanted][:, None]).sum(axis=1)
    return float(100 * np.where(places <= 10, 1 / places, 0).mean())


def test_it_is_under_two_megabytes_and_holds_no_objects() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.iterdir() if path.is_file()) < 2_000_000
    with np.load(SHIPPED / FILE, allow_pickle=False) as held:
        assert {held[name].dtype.kind for name in held.files} <= set("iuf")


def test_every_lookup_wants_one_document_and_no_two_want_the_same() -> None:
    texts = load_texts()
    assert (len(texts), len(texts.lookups)) == (DOCUMENTS, LOOKUPS)
    assert len(set(texts.ids)) == len(set(texts.texts)) == DOCUMENTS
    assert len(set(texts.lookups.wanted.tolist())) == LOOKUPS
    assert texts.lookups.wanted.max() < DOCUMENTS
    asked = set(texts.asked.wanted.tolist())
    assert len(asked) == LOOKUPS - PLANNED_WITH
    assert not asked & set(texts.planned_with.wanted.tolist())


def test_the_texts_are_those_of_the_packages_that_the_licence_file_names() -> None:
    texts = load_texts()
    owners = {name.split(".")[0] for name in texts.ids}
    assert owners == set(PACKAGES)
    told = (SHIPPED / "LICENCES.txt").read_text(encoding="utf-8")
    for package in owners:
        assert {"sklearn": "scikit-learn"}.get(package, package) in told
    corpus = read_corpus(PACKAGES[:1])
    today = dict(zip(corpus.ids, corpus.texts, strict=True))
    shipped = dict(zip(texts.ids, texts.texts, strict=True))
    mine = [name for name in texts.ids if name.startswith(PACKAGES[0])]
    # Other versions of a package word a few of them otherwise.
    assert sum(today.get(name) == shipped[name] for name in mine) > 0.8 * len(mine) > 80


def test_the_vectors_are_the_old_models_to_the_last_bit_that_int8_keeps() -> None:
    texts = load_texts()
    rows = np.arange(0, DOCUMENTS, 20)
    exact = embed_old([texts.texts[row] for row in rows])
    whole, scales = quantized(exact)
    rounded = whole * scales[:, None]
    assert np.abs(exact - rounded).max() <= scales.max() / 2 + 1e-7
    assert np.vecdot(exact, texts.vectors.old[rows]).min() > 0.9998
    for side in (texts.vectors, texts.lookups.vectors):
        for vectors in (side.old, side.new):
            assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_rounding_costs_no_quality() -> None:
    texts = load_texts()
    documents, lookups = (embed_old(lines) for lines in (texts.texts, texts.lookups.texts))
    wanted = texts.lookups.wanted
    exact = mrr(lookups @ documents.T, wanted)
    rounded = mrr(texts.lookups.vectors.old @ texts.vectors.old.T, wanted)
    assert rounded == pytest.approx(exact, abs=0.5)


def test_the_embedder_gives_the_vector_of_the_text_it_is_given() -> None:
    texts = load_texts()
    assert np.array_equal(embed_new([texts.texts[7], texts.texts[3]]), texts.vectors.new[[7, 3]])
