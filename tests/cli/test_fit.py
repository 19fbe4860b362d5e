"""`crossfade fit`: pairs in, an upgrade folder out, or a clear error and nothing at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from crossfade import Upgrade
from crossfade.cases import CASES

QUICK = ("--solver", "closed_form")


@pytest.fixture
def pairs(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return made()._asdict()


def write(pairs, path):
    if path.suffix == ".npz":
        np.savez(path, **pairs)
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file(pairs, path)
    else:
        columns = {side: pa.array(list(pairs[side])) for side in ("old", "new")}
        pq.write_table(pa.table(columns | {"labels": pairs["labels"]}), path)
    return path


@pytest.mark.parametrize("extension", ["npz", "safetensors", "parquet"])
def test_pairs_in_any_format_give_the_same_upgrade(crossfade, pairs, tmp_path, extension):
    path = write(pairs, tmp_path / f"pairs.{extension}")
    ran = crossfade("fit", path, "-o", "mine", *QUICK)
    assert ran.code == 0, ran.err
    upgrade = Upgrade.load("mine")
    assert upgrade.hash_ == Upgrade(solver="closed_form").fit(**pairs).hash_
    assert {entry.name for entry in tmp_path.iterdir()} == {path.name, "mine"}
    for case in CASES:
        assert case in ran.out
    assert "written: mine" in ran.out
    assert "next: crossfade inspect mine" in ran.out


def test_sides_and_labels_may_lie_in_files_of_their_own(crossfade, pairs, tmp_path):
    np.save(tmp_path / "old.npy", pairs["old"])
    both = {"ada": pairs["new"], "junk": pairs["old"], "class": pairs["labels"]}
    safetensors.numpy.save_file(both, tmp_path / "more.safetensors")
    sources = ("--old", "old.npy", "--new", "more.safetensors:ada")
    expected = Upgrade(solver="closed_form")
    ran = crossfade("fit", *sources, "--labels", "more.safetensors:class", *QUICK)
    assert ran.code == 0, ran.err
    assert Upgrade.load("upgrade").hash_ == expected.fit(**pairs).hash_
    assert crossfade("fit", *sources, *QUICK, "-o", "blind").code == 0
    assert Upgrade.load("blind").hash_ == expected.fit(pairs["old"], pairs["new"]).hash_


def test_labels_can_be_left_out(crossfade, pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    assert crossfade("fit", "pairs.npz", "--no-labels", *QUICK).code == 0
    assert Upgrade.load("upgrade").config_.fit["classes"] == 0


def test_every_option_reaches_the_fit(crossfade, pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    options = {
        "--backward": ("near-orthogonal", "backward_map", "near-orthogonal"),
        "--lambda": ("inf", "lam", float("inf")),
        "--alpha": ("3", "alpha", 3.0),
        "--regularizer": ("heaviside", "regularizer", "heaviside"),
        "--regularizer-weight": ("0.5", "regularizer_weight", 0.5),
        "--forward": ("affine", "forward_map", "affine"),
        "--solver": ("paper", "solver", "paper"),
        "--seed": ("7", "seed", 7),
        "--device": ("cpu", "device", "cpu"),
        "--w1": ("1", "w1", 1.0),
        "--w2": ("2", "w2", 2.0),
        "--w3": ("3", "w3", 3.0),
        "--w4": ("4", "w4", 4.0),
        "--temperature": ("0.2", "temperature", 0.2),
        "--epochs": ("2", "epochs", 2),
        "--batch-size": ("16", "batch_size", 16),
        "--lr": ("0.01", "lr", 0.01),
        "--weight-decay": ("0.1", "weight_decay", 0.1),
        "--validation": ("0.3", "validation", 0.3),
        "--normalize-old": ("none", "normalize_old", "none"),
        "--normalize-new": ("none", "normalize_new", "none"),
        "--old-model": ("a", "old_model", "a"),
        "--new-model": ("b", "new_model", "b"),
    }
    arguments = [word for option, (text, _, _) in options.items() for word in (option, text)]
    repeated = {
        "hidden": ("--hidden", ("5", "4"), (5, 4)),
        "select_cases": ("--select-case", ("new/new", "old/old"), ("new/new", "old/old")),
        "select_metrics": ("--select-metric", ("cmc@2", "mAP"), ("cmc@2", "mAP")),
    }
    for option, texts, _ in repeated.values():
        arguments += [word for text in texts for word in (option, text)]
    ran = crossfade("fit", "pairs.npz", *arguments)
    assert ran.code == 0, ran.err
    found = Upgrade.load("upgrade").get_params()
    assert {name: found[name] for _, name, _ in options.values()} == {
        name: value for _, name, value in options.values()
    }
    for name, (_, _, value) in repeated.items():
        assert found[name] == value


def test_progress_goes_to_stderr_and_results_to_stdout(crossfade, pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    ran = crossfade("fit", "pairs.npz", "--epochs", "2", "--hidden", "4", "--json", "-")
    assert ran.code == 0, ran.err
    assert "‖WWᵀ−I‖" in ran.err
    assert "forward 2/2" in ran.err
    json.loads(ran.out)


def test_the_report_as_json(crossfade, pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    ran = crossfade("fit", "pairs.npz", "-o", "mine", "--json", "report.json", *QUICK)
    assert ran.code == 0, ran.err
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    upgrade = Upgrade.load("mine")
    assert report["upgrade"] == "mine"
    assert report["hash"] == upgrade.hash_
    assert report["validation"] == upgrade.validation_
    assert report["lambda_reached"] == upgrade.lambda_reached_
    to_stdout = crossfade("fit", "pairs.npz", "-o", "other", "--json", "-", *QUICK)
    assert json.loads(to_stdout.out) == report | {"upgrade": "other"}


def test_bad_rows_are_dropped_when_asked(crossfade, pairs, tmp_path):
    pairs["old"][3] = np.nan
    pairs["new"][9] = 0
    write(pairs, tmp_path / "pairs.npz")
    ran = crossfade("fit", "pairs.npz", "--drop-bad-rows", *QUICK)
    assert ran.code == 0, ran.err
    assert "2 bad rows left out" in ran.err
    assert Upgrade.load("upgrade").config_.fit["dropped_rows"] == 2


def test_an_existing_folder_is_refused_before_any_work(crossfade, pairs, tmp_path):
    (tmp_path / "mine").mkdir()
    # The pairs do not even exist: the folder is looked at first.
    ran = crossfade("fit", "missing.npz", "-o", "mine", *QUICK)
    assert ran.code == 2
    assert "mine: already exists → name another folder, or --overwrite" in ran.err
    write(pairs, tmp_path / "pairs.npz")
    assert crossfade("fit", "pairs.npz", "-o", "again", *QUICK).code == 0
    assert crossfade("fit", "pairs.npz", "-o", "again", *QUICK).code == 2
    assert crossfade("fit", "pairs.npz", "-o", "again", "--overwrite", *QUICK).code == 0


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
        (("pairs.npz", "--lambda", "twelve"), "--lambda 'twelve' is not a number → use e.g. 12"),
        (("pairs.npz", "--lambda", "-1"), "lam=-1.0 must not be negative"),
        (("pairs.npz", "--epochs", "0"), "epochs=0 must be at least 1"),
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


def test_the_installed_command_says_its_version():
    from crossfade import __version__

    program = Path(sys.executable).with_name("crossfade")
    ran = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, f"crossfade {__version__}\n")


@pytest.mark.parametrize("name", ["demo", "fit", "apply", "export", "inspect"])
def test_every_command_has_help(crossfade, name):
    ran = crossfade(name, "--help")
    assert ran.code == 0
    assert f"crossfade {name}" in ran.out
    assert name in crossfade("--help").out


def test_an_unknown_command_is_bad_usage(crossfade):
    assert crossfade("fade").code == 2
