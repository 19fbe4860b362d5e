"""The answer of a quickstart, carried out by its own commands, is what came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from examples.carry_out import Lookups, carry_out
from tests.lookups import models
from tests.stores.apps import LanceApp, PostgresApp

from crossfade.lookups.text import lookup_of
from crossfade.stores import open_store

ROWS = 600
NEW, OLD = "tests.lookups.models:new", "tests.lookups.models:old"


@pytest.mark.parametrize("kind", [LanceApp, PostgresApp])
def test_every_stage_keeps_what_the_answer_promised(crossfade, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The commands run in this process, which goes on with other tests at its own priority.
    monkeypatch.setattr("os.nice", lambda by: 0)
    texts = models.texts_of(ROWS)
    app = kind(tmp_path)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    sizes = ("--rows", 200, "--held", 250, "--lookups", 250)
    ran = crossfade(
        *("quickstart", app.address, "--embed", NEW, "--embed-old", OLD, *sizes, "-o", "out")
    )
    assert ran.code == 0, ran.err
    answer = json.loads(Path("out/answer.json").read_text())
    wanted = list(range(0, ROWS, 3))
    asked = [str(lookup_of(texts[row])) for row in wanted]
    lookups = Lookups(models.old(asked), models.new(asked), wanted)
    found = carry_out(answer, app.address, lookups)
    assert [one.stage for one in found] == ["started", "lifted", "filled", "finished"]
    # Two samples of queries, each with its interval: what was promised and what came must meet.
    for one in found:
        assert one.promised_ci95[0] <= one.measured_ci95[1], str(one)
        assert one.measured_ci95[0] <= one.promised_ci95[1], str(one)
    # Between them a stage may be below today's search, as far as its interval says; not at the end.
    assert found[-1].measured_ci95[0] > 0
    store = open_store(app.address)
    assert store.describe().dim == models.N
    assert store.describe().added == ()
    store.close()
