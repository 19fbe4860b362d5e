"""The eight cases and the vectors each one compares."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.cases import CASES, case_vectors, check_case
from crossfade.errors import BadInput

VECTORS = {
    "old": np.full((2, 3), 1.0),
    "new": np.full((2, 5), 2.0),
    "F(old)": np.full((2, 5), 3.0),
    "B(new)": np.full((2, 5), 4.0),
}


def test_the_cases_are_those_of_the_papers_tables():
    assert set(CASES) == {
        "old/old",
        "new/old",
        "new/new",
        "F(old)/old",
        "F(old)/F(old)",
        "B(new)/F(old)",
        "B(new)/old",
        "B(new)/B(new)",
    }
    assert len(CASES) == 8


@pytest.mark.parametrize("case", CASES)
def test_a_case_compares_its_query_with_its_gallery_in_the_dimensions_both_have(case):
    query_name, gallery_name = case.split("/")
    query, gallery = case_vectors(case, VECTORS)
    dim = 3 if "old" in (query_name, gallery_name) else 5
    assert query.shape == gallery.shape == (2, dim)
    assert (query == VECTORS[query_name][0, 0]).all()
    assert (gallery == VECTORS[gallery_name][0, 0]).all()


@pytest.mark.parametrize("name", ["old", "old/new", "B(new)", "b(new)/old", ""])
def test_a_case_that_does_not_exist_is_refused_with_those_that_do(name):
    with pytest.raises(BadInput, match=r"there is no case named .* → use one of old/old, new/old"):
        check_case(name)
