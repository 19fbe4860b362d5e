"""Imports go downwards only, and docs/architecture.md shows them as they are."""

from __future__ import annotations

import pytest
from tests.architecture import BEGIN, END, LAYERS, PAGE, PICTURE, drawn, imports, picture

DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}


def test_every_package_has_a_layer():
    found = imports()
    assert set(found) == set(DEPTH), set(found) ^ set(DEPTH)


@pytest.mark.parametrize("name", sorted(DEPTH))
def test_imports_go_downwards_only(name):
    upwards = {other for other in imports()[name] if DEPTH[other] <= DEPTH[name]}
    assert not upwards, f"{name} imports {upwards}"


def test_the_page_is_current():
    shown = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert shown == drawn(), "run: python -m tests.architecture --write"


def test_the_picture_is_current():
    assert PICTURE.read_text() == picture(), "run: python -m tests.architecture --write"
