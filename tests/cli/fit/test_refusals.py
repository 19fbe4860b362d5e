"""`crossfade fit` refuses with a clear error and leaves nothing at all."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tests.cli.fit.conftest import QUICK, write


def nan(pairs):
    pairs["new"][17, 2] = np.nan


def infinite(pairs):
    pairs["old"][5, 0] = -np.inf


def zero(pairs):
    pairs["old"][8] = 0


def unequal(pairs):
    pairs["new"] = pairs["new"][:-1]


def other_length(pairs):
    pairs["labels"] = pairs["labels"][:-2]


def one_class(pairs):
    pairs["labels"] = np.zeros(120, int)


def single_item(pairs):
    pairs["labels"][30] = 99


def integers(pairs):
    pairs["old"] = pairs["old"].astype(np.int32)


def no_new(pairs):
    pairs["ada"] = pairs.pop("new")


def no_rows(pairs):
    pairs.update({name: array[:0] for name, array in pairs.items()})


BAD = [
    (nan, "row 17 of 'new' has a NaN → drop it with --drop-bad-rows or re-embed it"),
    (infinite, "row 5 of 'old' has an infinite value → drop it with --drop-bad-rows or re-embed"),
    (zero, "row 8 of 'old' is all zeros → drop it with --drop-bad-rows or re-embed it"),
    (unequal, "'old' has 120 rows and 'new' has 119 → give the same items in the same order"),
    (other_length, "'labels' has 118 values for 120 rows → give one label per row"),
    (one_class, "the labels have only one class → give labels of at least two classes"),
    (single_item, "class 99 has a single item, row 30 → drop it with --drop-bad-rows"),
    (integers, "'old' (120 × 6 int32) holds int32, not floats → give the model's own"),
    (no_new, "has no 'new', only 'old' (120 × 6 float32), 'labels' (120 int64), 'ada'"),
    (no_rows, "is empty → give at least one vector"),
]


@pytest.mark.parametrize(("spoil", "message"), BAD, ids=lambda case: getattr(case, "__name__", ""))
@pytest.mark.parametrize("solver", ["closed_form", "fast"])
def test_bad_pairs_are_named_and_nothing_is_written(
    crossfade, pairs, tmp_path, spoil, message, solver
):
    spoil(pairs)
    np.savez(tmp_path / "pairs.npz", **pairs)
    ran = crossfade("fit", "pairs.npz", "-o", "mine", "--solver", solver, "--json", "r.json")
    assert ran.code == 2
    assert ran.out == ""
    assert "error pairs.npz: " in ran.err
    assert message in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.npz"]


@pytest.mark.parametrize("extension", ["npz", "safetensors", "parquet"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_an_empty_or_truncated_file_is_named(crossfade, pairs, tmp_path, extension, share):
    path = write(pairs, tmp_path / f"pairs.{extension}")
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    ran = crossfade("fit", path.name, *QUICK)
    assert ran.code == 2
    assert f"error {path.name}: is " in ran.err
    assert ("is empty" in ran.err) == (share == 0)
    assert " → " in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no pairs are named → name a file, or --old, --new and --labels"),
        (("missing.npz",), "missing.npz: no such file → check the path"),
        (("pairs.txt",), "the extension '.txt' is not known → name a file that ends in"),
        (("--old", "pairs.npz:old"), "no new vectors were named"),
        (("pairs.npz", "--old", "pairs.npz:old"), "pairs are named twice"),
        (("pairs.npz", "--lambda", "twelve"), "Input should be a valid number"),
        (("pairs.npz", "--lambda", "-1"), "lam=-1.0 must not be negative"),
        (("pairs.npz", "--epochs", "0"), "--epochs"),
        (("pairs.npz", "--select-metric", "f1"), "there is no metric named 'f1'"),
        (("pairs.npz", "--select-case", "a/b"), "there is no case named 'a/b'"),
        (("pairs.npz", "--rotate-old"), "rotate_old is for an old model of more dimensions"),
        (("pairs.npz", "--device", "abacus"), "device='abacus' is not known"),
        (("pairs.npz", "--forward", "mlp", *QUICK), "the closed form has no mlp"),
        (("pairs.npz", "-o", "nowhere/mine"), "nowhere: is not a folder → make it"),
        (("pairs.npz", "-o", "pairs.npz"), "pairs.npz: already exists"),
        (("pairs.npz", "-o", "pairs.npz", "--overwrite"), "is there and is not an upgrade"),
        (("pairs.npz", "-o", "pairs.npz/mine"), "pairs.npz: is not a folder"),
        (("pairs.npz", "--backward", "diagonal"), "diagonal"),
        (("pairs.npz", "--seed", "-3"), "--seed"),
    ],
)
def test_a_wrong_command_is_answered_and_nothing_is_written(
    crossfade, pairs, tmp_path, arguments, message
):
    write(pairs, tmp_path / "pairs.npz")
    ran = crossfade("fit", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.npz"]


def test_an_unwritable_report_is_named_before_any_work(crossfade, pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    ran = crossfade("fit", "pairs.npz", *QUICK, "--json", "nowhere/report.json")
    assert ran.code == 2
    assert "nowhere/report.json: cannot be written" in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.npz"]


def python(first, *arguments, cwd):
    """The command in a process of its own, in which something is done first."""
    script = f"{first}; from crossfade.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
    )


def test_a_full_disk_leaves_nothing(pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")

    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    ran = python(limit, "fit", "pairs.npz", "-o", "mine", *QUICK, cwd=tmp_path)
    assert ran.returncode == 2
    assert "error mine: " in ran.stderr
    assert "nothing was written → " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.npz"]


def test_a_missing_torch_is_answered_with_the_line_that_installs_it(pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    ran = python("import sys; sys.modules['torch'] = None", "fit", "pairs.npz", cwd=tmp_path)
    assert ran.returncode == 2
    assert "pip install 'crossfade[train]'" in ran.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.npz"]


def spoiled(pairs, how):
    if how == "shuffled":
        pairs["old"] = pairs["old"][np.random.default_rng(0).permutation(len(pairs["old"]))]
    elif how == "few":
        for name in pairs:
            pairs[name] = pairs[name][:12]
    else:
        pairs["old"], pairs["new"] = pairs["new"], pairs["old"]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("shuffled", "pairs.npz: row i of 'old' does not belong to row i of 'new': "),
        ("few", "pairs.npz: 12 pairs are too few to learn from and to hold any out → give 50"),
        ("swapped", "pairs.npz: new is worse than old on these pairs (mAP "),
    ],
)
def test_pairs_nothing_should_be_learned_from_exit_with_2_unless_forced(
    crossfade, made, tmp_path, monkeypatch, how, message
):
    monkeypatch.chdir(tmp_path)
    pairs = made(rows=600, noise=1.2)._asdict()
    spoiled(pairs, how)
    write(pairs, tmp_path / "pairs.npz")
    ran = crossfade("fit", "pairs.npz", "-o", "mine", *QUICK)
    assert ran.code == 2
    assert f"error {message}" in " ".join(ran.err.split())
    assert "or fit all the same with --force" in " ".join(ran.err.split())
    assert [entry.name for entry in tmp_path.iterdir()] == ["pairs.npz"]
    ran = crossfade("fit", "pairs.npz", "-o", "mine", "--force", *QUICK)
    assert ran.code == 0, ran.err
    assert "warning: forced although" in ran.err
    assert "Warning: forced although" in (tmp_path / "mine" / "README.md").read_text("utf-8")


def test_a_forced_fit_of_five_pairs_shows_no_hundred(crossfade, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pairs = {name: x[:5] for name, x in made(rows=60)._asdict().items() if name != "labels"}
    np.savez(tmp_path / "pairs.npz", **pairs)
    for command in (
        ("fit", "pairs.npz", "-o", "mine", "--force", *QUICK),
        ("inspect", "mine"),
    ):
        ran = crossfade(*command)
        assert ran.code == 0, ran.err
        assert "2 validation rows: too few to measure anything" in ran.out
        assert "100.0" not in ran.out
    card = (tmp_path / "mine" / "README.md").read_text(encoding="utf-8")
    assert "They are too few to measure anything." in card
    assert "100.0" not in card
