"""The package root is the API."""

from __future__ import annotations

import importlib
from importlib.metadata import version
from types import ModuleType

import pytest

import crossfade


def test_all_is_exactly_what_is_public():
    assert crossfade.__all__ == [
        "Answer",
        "BadInput",
        "BudgetSpent",
        "Compatibility",
        "CrossfadeError",
        "EmbedderError",
        "Held",
        "Migration",
        "MissingExtra",
        "NotCompatible",
        "NotProven",
        "Pairs",
        "Plan",
        "Range",
        "Searcher",
        "StoreError",
        "Upgrade",
        "__version__",
        "evaluate",
        "evaluate_on_store",
        "open_store",
        "plan",
        "plan_on_store",
        "quickstart",
        "read_held",
        "sample_pairs",
        "serve",
        "write_report",
    ]
    assert dir(crossfade) == sorted(crossfade.__all__)


def test_every_public_name_imports():
    for name in crossfade.__all__:
        assert getattr(crossfade, name) is not None
    namespace: dict[str, object] = {}
    exec("from crossfade import *", namespace)  # noqa: S102
    assert set(crossfade.__all__) <= set(namespace)


def test_nothing_of_ours_is_public_by_accident():
    ours = {
        name
        for name, value in vars(crossfade).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and getattr(value, "__module__", "").startswith("crossfade")
    }
    assert ours <= set(crossfade.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'crossfade' has no attribute 'Downgrade'"):
        _ = crossfade.Downgrade


def test_the_version_is_the_distributions():
    assert crossfade.__version__ == version("crossfade")


def test_every_error_says_its_exit_code():
    errors = importlib.import_module("crossfade.errors")
    codes = {
        name: value.exit_code
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.CrossfadeError)
    }
    assert codes["BadInput"] == codes["BadRow"] == codes["MissingExtra"] == codes["BadUpgrade"] == 2
    assert codes["NotCompatible"] == 1
    assert codes["StoreError"] == codes["EmbedderError"] == codes["MissingVectors"] == 3
    assert codes["BudgetSpent"] == 0
