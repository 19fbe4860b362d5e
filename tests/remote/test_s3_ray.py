"""Ray on data in an object store: the workers read and write it, with the keys that they are given.

The nodes of a cluster have their keys from their own environment. What Ray writes down of itself is
kept in a folder of these tests, and searched for them.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines.conftest import MODEL, _quietly, assert_same, create, node, table, written
from tests.remote.conftest import BUCKET, KEY_ID, SECRET, SETTINGS, Flaky, client
from tests.remote.test_s3 import final_vectors, objects, put_table
from typer.testing import CliRunner

from crossfade import remote
from crossfade.cli import app
from crossfade.files import open_source
from crossfade.migration import Migration

ROWS = 480
FILES = 8


class Stopping(Flaky):
    """One request in fifty fails; and it can be told to take no more than some files of a folder,
    until it is told to go on."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream, each=50)
        self.folder, self.most = "", 0
        self.going, self.taken = threading.Event(), set()

    def stop_at(self, folder: str, most: int) -> None:
        self.going.clear()
        self.taken.clear()
        self.folder, self.most = folder, most

    def go_on(self) -> None:
        self.folder = ""
        self.going.set()

    def next_failure(self, path: str) -> str | None:
        name = path.partition("?")[0]
        if self.folder and f"/{self.folder}/" in name and name.endswith(".parquet"):
            with self.turn:
                if len(self.taken) < self.most:
                    self.taken.add(name)
            if name not in self.taken:
                self.going.wait(60)
        return super().next_failure(path)


@pytest.fixture(scope="module")
def proxy(moto) -> Iterator[Stopping]:
    """A service that fails now and then, and its address and keys in the environment."""
    made = Stopping(moto)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        named = {"AWS_ENDPOINT_URL": made.url, "AWS_ENDPOINT": made.url}
        for key, value in {**SETTINGS, **named}.items():
            patch.setenv(key, value)
        remote.filesystem.cache_clear()
        yield made
        remote.filesystem.cache_clear()
    made.shutdown()
    made.server_close()


@pytest.fixture
def place(proxy, tmp_path) -> str:
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture(scope="module")
def kept() -> Iterator[Path]:
    """Where Ray writes; its sockets are there too, and want a short path."""
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def nodes(proxy, kept) -> Iterator[str]:
    """The address of a cluster whose nodes have the keys."""
    from ray.cluster_utils import Cluster

    told = {**node(2), "temp_dir": str(kept)}
    # Where it notes its address, whatever its folder is; it makes this only when it is not told.
    Path(tempfile.gettempdir(), "ray").mkdir(exist_ok=True)
    made = _quietly(lambda: Cluster(initialize_head=True, head_node_args=told))
    yield made.address
    _quietly(made.shutdown)


@pytest.fixture(autouse=True)
def _nowhere(kept, moto, tmp_path) -> Iterator[None]:
    """No key is in what Ray has written down, nor in an object."""
    yield
    secrets = [SECRET.encode(), KEY_ID.encode()]
    logs = [file for file in kept.rglob("*") if file.is_file()]
    assert any(file.name == "raylet.out" for file in logs)
    for file in logs:
        assert not any(one in file.read_bytes() for one in secrets), file
    for name, data in objects(moto, f"s3://{BUCKET}/{tmp_path.name}").items():
        assert not any(one in data for one in secrets), name


def ran(*command: object) -> dict:
    """What a command says, whose words hold no key."""
    found = CliRunner().invoke(app, [*map(str, command), "--json", "-"])
    assert found.exit_code == 0, found.output
    assert SECRET not in found.output
    assert KEY_ID not in found.output
    return json.loads(found.stdout)


def by_ray(address: str) -> list[str]:
    return ["--engine", "ray", "--address", address, "--num-actors", "2"]


def read(moto: str, address: str) -> pa.Table:
    if address.endswith(".parquet"):
        (data,) = objects(moto, address).values()
        return pq.read_table(io.BytesIO(data))
    return final_vectors(moto, "lancedb" if address.endswith(".lance") else "parquet", address)


def read_here(path: Path) -> pa.Table:
    return pa.Table.from_batches(open_source(path).batches(10_000))


def put_file(moto: str, address: str) -> str:
    held = io.BytesIO()
    pq.write_table(table(ROWS), held, row_group_size=100)
    key = f"{address}/items.parquet".removeprefix(f"s3://{BUCKET}/")
    client(moto).put_object(Bucket=BUCKET, Key=key, Body=held.getvalue())
    return f"{address}/items.parquet"


@pytest.mark.parametrize(
    ("kind", "out"),
    [
        ("parquet", "out"),
        ("lancedb", "out.lance"),
        ("file", "out.parquet"),
    ],
)
def test_apply_by_ray_writes_there_what_a_local_run_writes(
    kind, out, place, nodes, moto, tmp_path, upgrade_folder, monkeypatch
):
    # So that there is more than a part to a file.
    monkeypatch.setattr("crossfade.files.parts._BYTES", 1)
    if kind == "file":
        here, there = tmp_path / "items.parquet", put_file(moto, place)
        pq.write_table(table(ROWS), here, row_group_size=100)
    else:
        here = create(kind, tmp_path / "items", ROWS)
        there = put_table(moto, kind, place, ROWS)
    ran("apply", upgrade_folder, here, tmp_path / out, "--direction", "forward")
    command = ["apply", upgrade_folder, there, f"{place}/{out}", "--direction", "forward"]
    told = ran(*command, *by_ray(nodes))
    assert (told["rows"], told["path"]) == (ROWS, f"{place}/{out}")
    found, expected = read(moto, f"{place}/{out}"), read_here(tmp_path / out)
    assert_same(found.combine_chunks().cast(expected.schema), expected.combine_chunks())


def test_a_migration_by_ray_writes_there_what_a_local_run_writes(
    place, nodes, moto, tmp_path, upgrade_folder
):
    # Of a Lance table workers write the fragments themselves; of other stores they see no file.
    here = Migration(create("lancedb", tmp_path / "items", ROWS), upgrade_folder)
    address = put_table(moto, "lancedb", place, ROWS)
    there = Migration(address, upgrade_folder)
    for one in (here, there):
        one.start(source="body", force=True)
    here.forward()
    told = ran("migrate", "forward", address, "--full-speed", *by_ray(nodes))
    assert told["written"] == ROWS
    assert_same(written(there), written(here))
    here.backfill(MODEL, share=0.5)
    command = ["migrate", "backfill", address, "--embed", MODEL, "--share", "0.5", "--full-speed"]
    assert ran(*command, *by_ray(nodes))["filled"] == ROWS // 2
    assert_same(written(there), written(here))
    assert there.verify(embed=MODEL).passed


def folder_of(moto: str, place: str) -> str:
    made = table(ROWS)
    for part in range(FILES):
        held = io.BytesIO()
        pq.write_table(made.slice(part * (ROWS // FILES), ROWS // FILES), held)
        key = f"{place}/items/{part}.parquet".removeprefix(f"s3://{BUCKET}/")
        client(moto).put_object(Bucket=BUCKET, Key=key, Body=held.getvalue())
    return f"{place}/items"


def test_killed_in_the_middle_it_is_repeated(
    place, proxy, kept, nodes, moto, tmp_path, upgrade_folder
):
    source, target = folder_of(moto, place), f"{place}/out"
    command = ["apply", upgrade_folder, source, target, "--direction", "forward"]
    # Whose workers have the keys from the command, which starts them.
    alone = [sys.executable, "-W", "error", "-m", "crossfade", *command, "--engine", "ray"]
    env = os.environ | {"RAY_TMPDIR": str(kept)}
    ran("apply", upgrade_folder, source, tmp_path / "out", "--direction", "forward")
    expected = read_here(tmp_path / "out").combine_chunks()
    proxy.stop_at("out", 2)
    # Not a pipe, which what it has started would keep open.
    said = tmp_path / "said"
    with (
        said.open("wb") as file,
        subprocess.Popen([*map(str, alone)], env=env, stdout=file, stderr=file) as killed,
    ):
        while len(objects(moto, target)) < 2:
            assert killed.poll() is None, said.read_text()
            time.sleep(0.02)
        killed.kill()
    assert not any(one in said.read_text() for one in (SECRET, KEY_ID))
    # Its Ray goes with it, and with that the workers in the midst of a file.
    until, left = time.monotonic() + 30, _at_work(kept)
    while not all(name.endswith("Agent") for name in left.values()):
        assert time.monotonic() < until, left
        time.sleep(0.05)
        left = _at_work(kept)
    for process in left:
        # Ray's own, which would notice some time later that they are alone.
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    proxy.go_on()
    found = objects(moto, target)
    assert 2 <= len(found) < FILES
    for data in found.values():
        assert pq.read_table(io.BytesIO(data)).num_rows == ROWS // FILES
    assert ran(*command, "--overwrite", *by_ray(nodes))["rows"] == ROWS
    assert len(objects(moto, target)) == FILES
    assert_same(read(moto, target).combine_chunks().cast(expected.schema), expected)


def _at_work(folder: Path) -> dict[int, str]:
    """Processes of a Ray that a command has started in this folder, and what they call themselves.

    The cluster of these tests was given its folder in another way.
    """
    out = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if f"RAY_TMPDIR={folder}".encode() in (entry / "environ").read_bytes():
                out[int(entry.name)] = (entry / "cmdline").read_text().split("\0")[0]
    return out
