"""What a system refuses, and files of ours that are damaged: one line, exit 2 or 3, no trace."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.migration.conftest import texts_of
from tests.stores.apps import LanceApp, ParquetApp

from crossfade.cli import main
from crossfade.files.arrow import to_arrow
from crossfade.migration import Migration

ROWS = 120
MODULE = """
from tests.migration.conftest import Models
def embed(texts): return Models().new(texts)
"""
MEEK = str(Path(__file__).with_name("meek.py"))


@pytest.fixture
def folder(tmp_path, models, upgrade_folder, plan_folder, monkeypatch):
    """All that a command can be given."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(upgrade_folder, "up")
    # Without the orders that migrations of other tests have left there.
    shutil.copytree(plan_folder, "plan", ignore=shutil.ignore_patterns("orders"))
    (tmp_path / "my_model.py").write_text(MODULE)
    texts = texts_of(200, seed=7)
    arrays = {"old": models.old(texts), "new": models.new(texts)}
    np.savez("pairs.npz", **arrays, labels=[ord(t[0]) for t in texts])
    np.save("old.npy", arrays["old"])
    yield tmp_path
    # So that pytest can take it away.
    for path in sorted(tmp_path.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)


@pytest.fixture(params=["lancedb", "parquet"])
def store(request, folder, models):
    """A store with every row lifted, and the folder that holds all of it."""
    app = {"lancedb": LanceApp, "parquet": ParquetApp}[request.param](folder / "shop")
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [ord(t[0]) for t in texts], models.old(texts))
    migration = Migration(app.address, "up")
    migration.start(source="body", force=True)
    migration.forward()
    migration.close()
    return app.address


def run(*arguments: str | bytes, meek: bool = False) -> tuple[int, str]:
    if not meek and all(isinstance(one, str) for one in arguments):
        return run_here(*arguments)
    start = [MEEK] if meek else ["-m", "crossfade"]
    ran = subprocess.run(
        [sys.executable, *start, *arguments],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())])},
        stdin=subprocess.DEVNULL,
    )
    return ran.returncode, ran.stderr.decode()


def run_here(*arguments: str) -> tuple[int, str]:
    """The command in this process: two hundred starts of Python would be most of the time."""
    said = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["crossfade", *arguments]),
        # A command that gives way does so for good, and the tests that follow are none of it.
        mock.patch.object(os, "nice", return_value=0),
        redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return int(ended.value.code or 0), said.getvalue()


def refused(*arguments: str | bytes, meek: bool = False) -> str:
    code, said = run(*arguments, meek=meek)
    assert code in (2, 3), said
    told = [line for line in said.splitlines() if not line.startswith("warning: forced")]
    assert len(told) == 1, said
    assert told[0].startswith("error "), said
    return told[0]


def lock_up(folder: str | Path, mode: int = 0o555) -> None:
    """Nothing in it may be changed any more."""
    inner = [Path(base) / name for base, names, files in os.walk(folder) for name in names]
    for path in [*inner, Path(folder)]:
        path.chmod(mode)


OUTPUTS = {
    "fit": ["fit", "pairs.npz", "--solver", "closed_form", "-o", "locked/up"],
    "fit json": ["fit", "pairs.npz", "--solver", "closed_form", "--json", "locked/x.json"],
    "evaluate": ["evaluate", "up", "pairs.npz", "--json", "locked/x.json"],
    "plot": ["evaluate", "up", "pairs.npz", "--plot", "locked/x.png"],
    "plan": ["plan", "up", "pairs.npz", "-o", "locked/plan"],
    "apply": ["apply", "up", "old.npy", "locked/x.npy", "--direction", "forward"],
    "apply lance": ["apply", "up", "old.npy", "locked/x.lance", "--direction", "forward"],
    "export": ["export", "up", "--onnx", "locked/x.onnx"],
    "demo": ["demo", "-o", "locked/demo"],
}


# Whether a folder may be entered is found out in one place for all commands.
@pytest.mark.parametrize(("name", "mode"), [*((name, 0o555) for name in OUTPUTS), ("apply", 0)])
def test_an_output_in_a_folder_that_may_not_be_written_to(folder, name, mode):
    (folder / "locked").mkdir()
    lock_up("locked", mode)
    said = refused(*OUTPUTS[name], meek=True)
    assert "locked" in said
    assert "ermission denied" in said or "not writable" in said
    (folder / "locked").chmod(0o755)
    assert list((folder / "locked").iterdir()) == []
    assert not (folder / "upgrade").exists(), "it was found before the work"


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_below_a_file(folder, name):
    arguments = [a.replace("locked", "old.npy") for a in OUTPUTS[name]]
    assert "old.npy" in refused(*arguments)


@pytest.mark.parametrize("place", ["/", "up", "locked" + "x" * 300])
def test_a_file_that_cannot_be_one(folder, place):
    for arguments in (
        OUTPUTS["evaluate"],
        OUTPUTS["fit json"],
        ["migrate", "status", "x", "--json", ""],
    ):
        refused(*arguments[:-1], place)


def steps(place: str) -> dict[str, list[str]]:
    fill = ["migrate", "backfill", place, "--plan", "plan", "--embed", "my_model:embed"]
    return {
        "status": ["migrate", "status", place],
        "inspect": ["inspect", place],
        "verify": ["migrate", "verify", place],
        "forward": ["migrate", "forward", place],
        "backfill": [*fill, "--share", "0.5", "--labels", "kind"],
        "finish": ["migrate", "finish", place, "--yes", "--force"],
        "rollback": ["migrate", "rollback", place],
    }


def test_a_store_that_may_not_be_written_to(store, folder):
    lock_up("shop")
    for step, arguments in steps(store).items():
        if step in ("status", "inspect", "verify"):
            code, said = run(*arguments, meek=True)
            assert code == 0, said
        else:
            said = refused(*arguments, meek=True)
            assert Path(store).name in said
            assert "ermission denied" in said or "cannot be written" in said
    lock_up("shop", 0o755)
    assert Migration(store).journal.stage == "forward"


def test_a_store_that_may_not_be_read(store, folder):
    lock_up("shop", 0o000)
    for arguments in steps(store).values():
        refused(*arguments, meek=True)


def test_a_plan_that_may_not_be_written_to(store, folder):
    lock_up("plan")
    assert "plan" in refused(*steps(store)["backfill"], meek=True)


JOURNALS = {
    "garbage": "garbage",
    "no text": "\udcff\udcfe",
    "nothing": "",
    "a list": "[1, 2]",
    "a number": "5",
    "null": "null",
    "no texts": '{"migration": 5}',
    "no journal": '{"migration": "garbage"}',
    "another journal": '{"migration": "[]"}',
    "an empty journal": '{"migration": "{}"}',
    "no stage": '{"migration": "{\\"stage\\": \\"nonsense\\"}"}',
    "too deep": "[" * 100_000,
}


@pytest.mark.parametrize("kind", JOURNALS)
def test_a_damaged_journal(store, kind):
    if Path(store).suffix == ".lance":
        journal = Path(store).with_name(".items.lance.crossfade.json")
    else:
        journal = Path(store) / "_crossfade" / "values.json"
    assert json.loads(journal.read_text())["migration"]
    journal.write_text(JOURNALS[kind], errors="surrogateescape")
    for step, arguments in steps(store).items():
        if step in ("status", "forward", "finish", "inspect"):
            said = refused(*arguments)
            assert "damaged" in said
            assert Path(store).name in said


def test_a_journal_that_is_a_folder(store):
    journal = Path(store).with_name(".items.lance.crossfade.json")
    if Path(store).suffix != ".lance":
        journal = Path(store) / "_crossfade" / "values.json"
    journal.unlink()
    journal.mkdir()
    assert "Is a directory" in refused(*steps(store)["status"])


@pytest.mark.parametrize(
    "body", ["[]", "5", "{}", '{"columns": 5}', '{"columns": {"a": 5}, "serial": 1}']
)
def test_a_damaged_list_of_columns(folder, models, body):
    app = ParquetApp(folder / "shop")
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    Migration(app.address, "up").start(source="body", force=True)
    (Path(app.address) / "_crossfade" / "columns.json").write_text(body)
    assert "columns.json: what Crossfade keeps" in refused(*steps(app.address)["forward"])


def cut(paths: list[Path], share: float) -> None:
    assert paths
    for path in paths:
        os.truncate(path, int(path.stat().st_size * share))


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("what", ["_versions/*.manifest", "data/*.lance"])
def test_a_lance_table_cut_short(folder, models, what, share):
    app = LanceApp(folder / "shop")
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    migration = Migration(app.address, "up")
    migration.start(source="body", force=True)
    migration.forward()
    cut(list(Path(app.address).glob(what)), share)
    for step, arguments in steps(app.address).items():
        # What touches no row of a table whose rows are gone may well come to its end.
        if what.startswith("data") and step in ("inspect", "rollback"):
            continue
        assert app.address in refused(*arguments)
    assert app.address in refused("migrate", "start", app.address, "up", "--force")


@pytest.mark.parametrize("share", [0.0, 0.95])
@pytest.mark.parametrize("what", ["_versions/*.manifest", "data/*.lance"])
def test_pairs_in_a_lance_dataset_cut_short(folder, what, share):
    import lance

    arrays = np.load("pairs.npz")
    columns = {name: to_arrow(arrays[name]) for name in ("old", "new")}
    table = pa.table(columns | {"labels": arrays["labels"]})
    lance.write_dataset(table, "pairs.lance")
    cut(list(Path("pairs.lance").glob(what)), share)
    for arguments in (
        ["fit", "pairs.lance", "--solver", "closed_form"],
        ["evaluate", "up", "pairs.lance"],
        ["inspect", "pairs.lance"],
        ["apply", "up", "pairs.lance", "x.npy", "--direction", "forward", "--column", "old"],
    ):
        assert "pairs.lance" in refused(*arguments)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_an_order_cut_short(store, share):
    code, said = run(*steps(store)["backfill"])
    assert code == 0, said
    orders = list(Path("plan/orders").glob("*.parquet"))
    cut(orders, share)
    fill = steps(store)["backfill"]
    fill[fill.index("0.5")] = "0.7"
    assert f"{orders[0]}: is no order, or is damaged" in refused(*fill)
    orders[0].unlink()
    code, said = run(*fill)
    assert code == 0, said


def test_an_order_of_something_else(store):
    pq.write_table(pa.table({"key": [1]}), "plan/order.parquet")
    assert "order.parquet: is no order" in refused(*steps(store)["backfill"])


@pytest.mark.parametrize(
    "body",
    [
        "[]",
        "5",
        "{}",
        '{"verdicts": [], "upgrade": {"hash": "x"}}',
        '{"verdicts": {"B(new)/old": 5}, "upgrade": {"hash": "x"}}',
        '{"verdicts": {}, "upgrade": 5}',
    ],
)
def test_an_evaluation_that_is_none(folder, models, body):
    app = LanceApp(folder / "shop")
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [0] * ROWS, models.old(texts))
    Path("evaluation.json").write_text(body)
    asked = ["migrate", "start", app.address, "up", "--evaluation", "evaluation.json"]
    assert "evaluation.json: is no evaluation" in refused(*asked)


ADDRESSES = [
    "postgresql://[bad/db#t",
    "postgresql://[::1/db#t",
    "postgresql:db#t",
    b"postgresql://\xff/db#t",
    "qdrant://[#x",
    "qdrant://[zz]#x",
    "qdrant+https://[::1#x",
    "qdrant:#x",
    "a\nb",
    "a\tb.lance",
    "a" * 300,
    "a" * 300 + "#t",
    "loop/x.lance",
    "/dev/null/x.lance",
    b"\xff.lance",
    "",
    "#",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_none(folder, address):
    Path("loop").symlink_to("loop")
    refused("migrate", "status", address)
    refused("migrate", "start", address, "up")
    refused("inspect", address)


@pytest.mark.parametrize(
    "url",
    [
        "https://[::1/v1",
        "https://[zz]/v1",
        "http://[",
        "https://h:p/v1",
        "https://h\n/v1",
        "https://h/v1\x7f",
        "://",
        "x" * 300,
    ],
)
def test_an_embedder_that_is_none(store, url):
    fill = steps(store)["backfill"]
    fill[fill.index("my_model:embed")] = url
    refused(*fill)
    refused(*fill, "--model", "m")
