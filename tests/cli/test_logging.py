"""Steps are logged under the name crossfade; a library says nothing until it is asked to."""

from __future__ import annotations

import logging
import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade import Migration, Upgrade
from crossfade.files.arrow import to_arrow


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    new = (rng.normal(size=(60, 6)) + 1).astype("f4")
    Upgrade(solver="closed_form").fit(new[:, :4], new).save(tmp_path / "up")
    rows = pa.table({"id": range(60), "vector": to_arrow(np.ascontiguousarray(new[:, :4]))})
    lance.write_dataset(rows, tmp_path / "items.lance")
    return tmp_path / "items.lance", tmp_path / "up"


def test_a_step_is_logged_with_its_store_and_its_name(table, caplog):
    migration = Migration(*table)
    with caplog.at_level(logging.INFO, "crossfade"):
        migration.start(force=True)
        migration.forward()
    found = [(record.step, record.store) for record in caplog.records]
    assert found == [("start", migration.store.name), ("forward", migration.store.name)]
    assert "60 rows lifted" in caplog.records[-1].getMessage()
    migration.close()


@pytest.mark.parametrize("asked", [[], ["--verbose"], ["-v"]])
def test_the_command_shows_the_log_where_it_is_asked_to(table, asked):
    store, upgrade = map(str, table)
    ran = subprocess.run(
        [sys.executable, "-m", "crossfade", *asked, "migrate", "start", store, upgrade, "--force"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("info crossfade.migration.migration: " in ran.stderr) == bool(asked)
