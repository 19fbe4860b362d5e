"""Cases whose scores are exact in float32, ties and all, and brute force over them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import strategies as st

# Vectors of length 1 or 2 with whole coordinates: their cosines are exact in float32.
GRID = np.array(list(np.ndindex(3, 3, 3, 3))) - 1.0
EXACT = GRID[np.isin((GRID**2).sum(axis=1), (1, 4))]


def exact_score(q, g, distance):
    q, g = [int(v) for v in q], [int(v) for v in g]
    inner = sum(a * b for a, b in zip(q, g, strict=True))
    if distance == "dot":
        return Fraction(inner)
    if distance == "l2":
        return -Fraction(sum((a - b) ** 2 for a, b in zip(q, g, strict=True)))
    return Fraction(inner, math.isqrt(sum(a * a for a in q)) * math.isqrt(sum(b * b for b in g)))


def brute_order(query, gallery, grades, own, distance="cosine"):
    """Gallery items from first to last; `grades` maps the relevant ones to their grade."""
    items = [j for j in range(len(gallery)) if j != own]
    items.sort(key=lambda j: (-exact_score(query, gallery[j], distance), grades.get(j, 0)))
    return items


@st.composite
def drawn(draw):
    """Queries, a gallery, a grade for some pairs, and which gallery item each query is."""
    queries, gallery = draw(st.integers(1, 8)), draw(st.integers(2, 12))
    pick = st.integers(0, len(EXACT) - 1)
    q = EXACT[draw(st.lists(pick, min_size=queries, max_size=queries))]
    g = EXACT[draw(st.lists(pick, min_size=gallery, max_size=gallery))]
    grade = st.integers(0, 3)
    table = draw(
        st.lists(
            st.lists(grade, min_size=gallery, max_size=gallery),
            min_size=queries,
            max_size=queries,
        )
    )
    own = draw(st.lists(st.integers(-1, gallery - 1), min_size=queries, max_size=queries))
    grades = [
        {j: value for j, value in enumerate(row) if value and j != mine}
        for row, mine in zip(table, own, strict=True)
    ]
    return q, g, grades, np.array(own)


def qrels_of(grades):
    rows = [(i, j, grade) for i, row in enumerate(grades) for j, grade in row.items()]
    return np.array(rows or np.empty((0, 3)), dtype=np.int64).reshape(-1, 3)


@pytest.fixture(scope="session")
def searches():
    return drawn()


@pytest.fixture(scope="session")
def brute():
    return brute_order


@pytest.fixture(scope="session")
def qrels():
    return qrels_of


@pytest.fixture
def random_case():
    def made(seed, rows=60, dim=5, classes=6):
        rng = np.random.default_rng(seed)
        labels = rng.integers(classes, size=rows)
        queries = rng.normal(size=(rows, dim))
        return queries, queries + 0.3 * rng.normal(size=(rows, dim)), labels

    return made
