"""Stores, upgrades and plans at s3://, against a real S3 protocol."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines import letters
from tests.engines.conftest import MODEL, assert_same, create, table, written
from tests.remote.conftest import BUCKET, KEY_ID, SECRET, client

from crossfade import Plan, Upgrade
from crossfade.errors import BadInput, StoreBusy, StoreError
from crossfade.migration import Migration
from crossfade.stores import ledger, open_store
from crossfade.stores.ledger import Ledger
from crossfade.stores.registry import kept_value

ROWS = 300
KINDS = ["lancedb", "parquet"]


def put_table(moto: str, kind: str, address: str, rows: int = ROWS) -> str:
    """The application's own rows, written by its own client and not through a proxy."""
    made = table(rows)
    if kind == "lancedb":
        import lance

        options = {"aws_endpoint": moto}
        where = f"{address}/items.lance"
        lance.write_dataset(made, where, max_rows_per_file=rows // 2, storage_options=options)
        return where
    prefix = f"{address}/items".removeprefix(f"s3://{BUCKET}/")
    for part in range(2):
        held = io.BytesIO()
        pq.write_table(made.slice(part * (rows // 2), rows // 2), held)
        client(moto).put_object(Bucket=BUCKET, Key=f"{prefix}/{part}.parquet", Body=held.getvalue())
    return f"{address}/items"


def migrated(address: str, upgrade) -> Migration:
    migration = Migration(address, upgrade)
    migration.start(source="body", force=True)
    migration.forward(size=200)
    migration.backfill(MODEL, share=0.6, batch=100)
    return migration


def objects(moto: str, address: str) -> dict[str, bytes]:
    prefix = address.removeprefix(f"s3://{BUCKET}/")
    found = client(moto).list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
    return {
        one["Key"]: client(moto).get_object(Bucket=BUCKET, Key=one["Key"])["Body"].read()
        for one in found
    }


def final_vectors(moto: str, kind: str, address: str) -> pa.Table:
    if kind == "lancedb":
        import lance

        return lance.dataset(address, storage_options={"aws_endpoint": moto}).to_table()
    prefix = f"{address}/".removeprefix(f"s3://{BUCKET}/")
    files = {k: v for k, v in objects(moto, address).items() if k.endswith(".parquet")}
    own = sorted(k for k in files if "/" not in k.removeprefix(prefix))
    return pa.concat_tables([pq.read_table(io.BytesIO(files[k])) for k in own])


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_request_in_twenty_failing_all_is_as_on_a_disk(
    kind,
    flaky,
    moto,
    tmp_path,
    upgrade_folder,
):
    address, proxy = flaky
    here = migrated(create(kind, tmp_path / "here", ROWS), upgrade_folder)
    Upgrade.load(upgrade_folder).save(f"{address}/upgrade")
    there = migrated(put_table(moto, kind, address), f"{address}/upgrade")
    assert_same(written(there), written(here))
    assert there.verify(embed=MODEL).passed
    here.finish(force=True)
    there.finish(force=True)
    assert there.journal.stage == "finished"
    found = final_vectors(moto, kind, there.store.name).select(["id", "vector"]).sort_by("id")
    assert_same(found.combine_chunks(), final_rows(here).cast(found.schema))
    # Each of the three ways in which a request can fail was met.
    assert min(proxy.failed.values()) >= 2


def test_listings_that_break_off_stop_nothing(cutting, moto, tmp_path, upgrade_folder):
    address, proxy = cutting
    here = migrated(create("lancedb", tmp_path / "here", ROWS), upgrade_folder)
    there = migrated(put_table(moto, "lancedb", address), upgrade_folder)
    assert_same(written(there), written(here))
    assert there.verify(embed=MODEL).passed
    there.finish(force=True)
    here.finish(force=True)
    # In what order rows lie after `finish` depends on when they were moved.
    found = final_vectors(moto, "lancedb", there.store.name).select(["id", "vector"]).sort_by("id")
    assert_same(found.combine_chunks(), final_rows(here).cast(found.schema))
    assert proxy.failed["cut"] > 10


def final_rows(migration: Migration) -> pa.Table:
    rows = pa.Table.from_batches(migration.store.stream([migration.store.vector]))
    return rows.select(["id", "vector"]).combine_chunks()


@pytest.mark.parametrize("kind", KINDS)
def test_rollback_leaves_the_rows_as_they_were(kind, s3, moto, upgrade_folder):
    address = put_table(moto, kind, s3)
    migration = migrated(address, upgrade_folder)
    migration.rollback()
    assert final_vectors(moto, kind, address).equals(table(ROWS))
    assert migration.store.describe().added == ()
    assert kept_value(address, "migration") is not None


def test_keys_are_in_no_message_and_in_no_object(
    s3,
    moto,
    tmp_path,
    upgrade_folder,
    monkeypatch,
    caplog,
):
    address = put_table(moto, "parquet", s3)
    migrated(address, upgrade_folder)
    secrets = [SECRET.encode(), KEY_ID.encode()]
    for name, data in objects(moto, s3).items():
        assert not any(secret in data for secret in secrets), name
    errors = []
    for wrong in (f"s3://no-such-{BUCKET}/items", f"{s3}/nothing.lance", f"{s3}/nothing"):
        with pytest.raises((BadInput, StoreError)) as raised:
            Migration(wrong, upgrade_folder)
        errors.append(raised)
    # A service that says what it was asked with.
    repeating = StoreError(
        Ledger(Path("s3://x"), "x")._failed(OSError(f"403 {KEY_ID}:{SECRET}")).cause
    )
    words = [str(repeating), caplog.text]
    for raised in errors:
        words.append(str(raised.value))
        assert raised.value.__cause__ is None or SECRET not in str(raised.value.__cause__)
    assert not any(SECRET in text or KEY_ID in text for text in words)


def test_a_plan_in_an_object_store_is_carried_out(
    s3,
    moto,
    tmp_path,
    upgrade_folder,
):
    from crossfade import Held, Pairs, plan

    texts = letters.texts_of(200, seed=4)
    pairs = Pairs.from_arrays(letters.old(texts), letters.new(texts), np.arange(200) % 10)
    upgrade = Upgrade.load(upgrade_folder)
    made = plan(upgrade, Held.of(pairs), orders=["random"], blends=[1.0])
    made.save(f"{s3}/plan")
    made.save(tmp_path / "plan")
    found, local = (Plan.load(folder, upgrade) for folder in (f"{s3}/plan", tmp_path / "plan"))
    assert found.record == local.record
    with pytest.raises(BadInput, match="already exists"):
        made.save(f"{s3}/plan")
    migration = Migration(put_table(moto, "lancedb", s3), upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    assert migration.backfill(MODEL, plan=f"{s3}/plan", share=0.2, batch=100).filled == 60
    # Later runs find it, and the order they go on by, where they are.
    assert Migration(migration.store.name).backfill(MODEL, share=0.5, batch=200).filled == 150
    assert migration.journal.backfill.plan_folder == f"{s3}/plan"
    assert migration.journal.backfill.order_file.startswith(f"{s3}/plan/orders/")


def test_who_comes_second_is_told_so_and_a_lease_that_ran_out_is_taken(s3, upgrade_folder):
    one, two = (Ledger(Path(f"{s3}/ledger"), "items", seconds=1.0) for _ in range(2))
    with one.lease():
        one.put("stage", "mine")
        time.sleep(1.5)
        # It was renewed meanwhile.
        with pytest.raises(StoreBusy, match="another process is migrating"), two.lease():
            pass
    with two.lease():
        assert two.get("stage") == "mine"


SLEEPER = """
import sys
from crossfade.stores import ledger
ledger.LEASE_SECONDS = 1.0
from crossfade.errors import StoreError
from crossfade.migration import Migration
print("begun", flush=True)
try:
    Migration(sys.argv[1]).backfill(
        "tests.engines.letters:slow", share=1.0, batch=60,
        progress=lambda done, total: print("at", done, flush=True),
    )
except StoreError as error:
    print("refused:", error, flush=True)
    raise SystemExit(3)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_holder_that_sleeps_past_its_lease_and_wakes_up_damages_nothing(
    kind,
    s3,
    moto,
    tmp_path,
    upgrade_folder,
    monkeypatch,
):
    monkeypatch.setattr(ledger, "LEASE_SECONDS", 1.0)
    address = put_table(moto, kind, s3)
    migration = Migration(address, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward(size=200)
    # The order is made, so that what is put to sleep is in the midst of filling.
    migration.backfill(MODEL, share=1.0, items=1)
    here = Migration(create(kind, tmp_path / "here", ROWS), upgrade_folder)
    here.start(source="body", force=True)
    here.forward(size=200)
    here.backfill(MODEL, share=1.0, batch=100)
    asleep = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, address], stdout=subprocess.PIPE, text=True
    )
    try:
        line = ""
        while not line.startswith("at"):
            line = asleep.stdout.readline()
            assert line, "it ended before it was put to sleep"
        os.kill(asleep.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while True:
            try:
                done = migration.backfill(MODEL, share=1.0, batch=200)
                break
            except StoreBusy:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        os.kill(asleep.pid, signal.SIGCONT)
        said, _ = asleep.communicate(timeout=60)
    finally:
        asleep.kill()
        asleep.stdout.close()
    assert asleep.returncode == 3, said
    assert "another has taken over" in said
    assert done.filled == ROWS
    journal = migration.journal
    assert journal.events[-1].what.endswith("ended by the share of 100%")
    assert_same(written(migration), written(here))
    assert migration.verify(embed=MODEL).passed


def test_a_folder_of_tables_names_them(s3, moto):
    put_table(moto, "lancedb", f"{s3}/shop")
    put_table(moto, "parquet", f"{s3}/shop")
    said = f"{s3}/shop: names no table → add #TABLE to the address: there are items$"
    with pytest.raises(BadInput, match=said):
        open_store(f"{s3}/shop")
    assert open_store(f"{s3}/shop#items").describe().rows == ROWS
    assert open_store(f"{s3}/shop/items").describe().rows == ROWS


@pytest.mark.parametrize("kind", KINDS)
def test_apply_reads_and_writes_object_stores(kind, s3, moto, tmp_path, upgrade_folder):
    from crossfade.upgrade.apply import apply_file

    upgrade = Upgrade.load(upgrade_folder)
    address = put_table(moto, kind, s3)
    target = f"{s3}/out.lance" if kind == "lancedb" else f"{s3}/out"
    report = apply_file(upgrade, address, target, direction="forward")
    assert report.rows == ROWS
    found = final_vectors(moto, kind, target)
    expected = upgrade.forward(letters.old(letters.texts_of(ROWS)))
    np.testing.assert_allclose(np.array(found["vector"].to_pylist()), expected, atol=1e-6)
    assert found["id"].to_pylist() == list(range(ROWS))
    with pytest.raises(BadInput, match="already exists"):
        apply_file(upgrade, address, target, direction="forward")
