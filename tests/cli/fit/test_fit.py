"""`crossfade fit`: pairs in, an upgrade folder out."""

from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy
from tests.cli.fit.conftest import QUICK, write

from crossfade import Upgrade
from crossfade.cases import CASES


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


def test_what_the_numbers_are_is_said_with_and_without_labels(crossfade, pairs, tmp_path):
    write(pairs, tmp_path / "pairs.npz")
    labelled = crossfade("fit", "pairs.npz", "-o", "one", "--json", "one.json", *QUICK)
    blind = crossfade("fit", "pairs.npz", "-o", "two", "--no-labels", "--json", "two.json", *QUICK)
    titles = [" ".join(ran.out.split("┏")[0].split()) for ran in (labelled, blind)]
    assert titles == [
        "in percent, on 24 validation rows: relevance from labels",
        "in percent, on 24 validation rows: agreement with the new model's 5 nearest neighbours, "
        "not judged",
    ]
    told = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two")]
    assert [one["relevance"] for one in told] == ["labels", "neighbours"]
    assert [one["validation_rows"] for one in told] == [24, 24]
    cards = [(tmp_path / name / "README.md").read_text("utf-8") for name in ("one", "two")]
    assert "## Compatibility on validation" in cards[0]
    assert "ompatib" not in cards[1]
    assert "## Agreement with the new model on validation" in cards[1]
    assert "favours new queries by construction and judges nothing" in " ".join(cards[1].split())


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
