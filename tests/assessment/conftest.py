"""A table of texts in use, with two little models, and what a quickstart says of it."""

from __future__ import annotations

import pytest
from tests.lookups import models
from tests.stores.apps import LanceApp

import crossfade

ROWS = 400
NEW, OLD = "tests.lookups.models:new", "tests.lookups.models:old"
SIZES = {"rows": 200, "held": 150, "lookups": 120}


def create(app, rows=ROWS):
    texts = models.texts_of(rows)
    app.create(list(range(rows)), texts, [n % 4 for n in range(rows)], models.old(texts))
    return app


def ask(app, folder, **options):
    given = {"embed": NEW, "embed_old": OLD, "solver": "closed_form"} | SIZES | options
    return crossfade.quickstart(app.address, folder, **given)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A store, the folder of its quickstart, and the answer."""
    place = tmp_path_factory.mktemp("asked")
    app = create(LanceApp(place))
    return app, place / "answer", ask(app, place / "answer")
