"""Upgrade, evaluation and plan of two kinds of users: one has labels, the other lookups."""

from __future__ import annotations

import json

import numpy as np
import pytest

from crossfade import Held, Pairs, Upgrade, evaluate, plan
from crossfade.compatibility.write import finite, record
from crossfade.demo.texts.data import load_texts

HOSTILE = "<script>document.title='taken'</script>"


def write_parts(folder, upgrade, held, metrics, **options):
    """What the commands leave behind."""
    upgrade.save(folder / "upgrade")
    found = evaluate(upgrade, held, metrics=metrics, resamples=200)
    (folder / "evaluation.json").write_text(json.dumps(finite(record(found))))
    plan(upgrade, held, optimize=metrics, orders=["random"], blends=[1.0], **options).save(
        folder / "plan"
    )
    return folder


@pytest.fixture(scope="session")
def labelled(made, tmp_path_factory):
    """Classes; the old model has a name that wants to be a script."""
    data = made(rows=360, seed=3)
    upgrade = Upgrade(solver="closed_form", old_model=HOSTILE, new_model="fine & new")
    upgrade.fit(data.old[:180], data.new[:180], data.labels[:180])
    held = Held.of(Pairs.from_arrays(data.old[180:], data.new[180:], data.labels[180:]))
    folder = tmp_path_factory.mktemp("labelled")
    prices = {"cost_per_1k": 2.0, "items_per_second": 10.0, "items": 50_000}
    return write_parts(folder, upgrade, held, ["cmc@1", "mAP"], **prices)


@pytest.fixture(scope="session")
def lookups(tmp_path_factory):
    """Real texts, and queries that each want one of them back; no label in sight."""
    texts = load_texts()
    unwanted = np.setdiff1d(np.arange(len(texts)), texts.lookups.wanted)[:400]
    pairs, held = texts.vectors.rows(unwanted), texts.vectors.rows(texts.planned_with.wanted)
    upgrade = Upgrade(solver="closed_form", old_model="coarse", new_model="fine")
    upgrade.fit(pairs.old, pairs.new)
    asked = texts.planned_with.vectors
    return write_parts(
        tmp_path_factory.mktemp("lookups"),
        upgrade,
        Held.of(
            Pairs.from_arrays(held.old, held.new),
            Pairs.from_arrays(asked.old, asked.new),
            qrels=np.stack([np.arange(len(asked))] * 2, axis=1),
        ),
        ["mrr@10"],
    )
