"""Every experiment runs from features to JSON, Markdown and a picture."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from experiments import features as reading
from experiments import idx, regularization_figure
from experiments.__main__ import MODULES, seeds
from experiments.backfilling import curve_of
from experiments.fits import Run

from crossfade import Held, Pairs
from crossfade.backfill import positions
from crossfade.losses.orthogonality import lambda_smooth
from crossfade.retrieval import SameClass, measure

RUNS = {
    "extending-classes": [],
    "pretrained": ["--against", "clip"],
    "downstream": ["--against", "cub"],
    "backfilling": [],
    "lambda": [],
    "regularizers": [],
    "losses": ["--backward", "near-orthogonal"],
    "order-metric": [],
    "equal-terms": [],
    "peers": ["--side", "third"],
    "regularization": ["--dim", "8", "--steps", "30"],
    "mnist": ["--network-epochs", "1"],
}


@pytest.fixture(scope="session")
def common(features, cache):
    # Crossfade's own recipe ignores --epochs: shared through the cache, it is fitted once a seed.
    return ["--features", features, "--epochs", "2", "--batch-size", "64", "--cache", cache]


def test_every_experiment_is_run_here():
    assert RUNS.keys() == MODULES.keys()


@pytest.mark.parametrize("name", RUNS)
def test_an_experiment_writes_a_page_its_data_and_a_picture(
    name, experiments, common, digits, tmp_path
):
    own = {"regularization": [], "mnist": ["--idx", digits]}
    options = [*RUNS[name], *own.get(name, common)]
    said = experiments("run", name, *options, "--seeds", "2", "--device", "cpu", "-o", tmp_path)
    (page,) = tmp_path.glob("*.md")
    assert said.strip() == str(page)
    found = json.loads(page.with_suffix(".json").read_text())
    assert page.with_suffix(".png").read_bytes()[:4] == b"\x89PNG"
    assert found["claims"] or name == "peers"
    for row in found["rows"]:
        for values in row["runs"].values():
            assert len(values) == 2
            assert np.isfinite(values).all()
    if name == "downstream":
        assert any("ZS" in row["runs"] for row in found["rows"])
    experiments("render", tmp_path, "-o", tmp_path / "again")
    assert (tmp_path / "again" / page.name).read_text() == page.read_text()
    listed = (tmp_path / "again" / "claims.md").read_text()
    assert all(claim["text"] in listed for claim in found["claims"])


def test_a_fit_in_the_cache_is_not_repeated(features, cache, capsys):
    run = Run(reading.read(features), range(1), "cpu", cache, 2, 64)
    first = run.fit("Ridge", 0)
    capsys.readouterr()
    again = run.fit("Ridge", 0)
    assert capsys.readouterr().err == ""
    assert again.hash_ == first.hash_
    assert type(again) is type(first)


def test_the_list_names_every_experiment(experiments):
    lines = experiments("list").splitlines()
    assert [line.split()[0] for line in lines] == list(MODULES)


def test_seeds_are_a_number_or_a_range():
    assert list(seeds("2")) == [0, 1]
    assert list(seeds("1:3")) == [1, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--features", "nowhere.safetensors"], "nowhere.safetensors: is not there"),
        ([], "name --features FILE, or --images DIR"),
    ],
)
def test_what_cannot_be_run_is_said(arguments, message, experiments, capsys):
    with pytest.raises(SystemExit) as ended:
        experiments("run", "peers", *arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_tensor_that_is_not_there_is_named(features):
    with pytest.raises(reading.BadInput, match="has no tensor 'fourth_train'"):
        reading.read(features, "fourth", "new")


def test_a_sample_has_no_class_with_a_single_row(features):
    some = reading.read(features, rows=30, test_rows=20)
    assert 10 < len(some.train.labels) <= 30
    assert np.unique(some.train.labels, return_counts=True)[1].min() > 1


def test_fastfills_order_makes_its_curve(features, cache):
    found = reading.read(features)
    run = Run(found, range(1), "cpu", cache, 2, 64)
    fill = run.fit("FastFill", 0)
    curve = curve_of(fill, found.held, "uncertainty")
    # Half way, by hand: the less certain half is new, the rest lifted.
    place = positions(fill.uncertainty(found.test.old).astype(float), np.arange(160))
    gallery = np.where(
        (place < 80)[:, None], fill.backward(found.test.new), fill.forward(found.test.old)
    )
    half = measure(
        fill.backward(found.test.new), gallery, SameClass.among(found.test.labels), ["mAP"]
    )
    assert curve.means("mAP")[10] == pytest.approx(half.mean("mAP"), abs=1e-4)
    assert Held.of(Pairs.from_arrays(found.test.old, found.test.new)).source == "neighbours"


def test_figure_2_shows_the_loss_itself():
    drawn = regularization_figure.values(6.0, 2.0)
    weight = torch.diag(torch.tensor([1.0, 2.0]))  # ‖WWᵀ−I‖ = 3
    at = int(np.argmin(np.abs(regularization_figure.AXIS - 3)))
    assert drawn[at] == pytest.approx(float(lambda_smooth(weight, 6.0, 2.0)), rel=1e-4)


def test_idx_files_come_back_as_they_were(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (5, 4, 3), np.uint8), np.arange(5, dtype=np.uint8)
    idx.write(tmp_path / "train-images-idx3-ubyte", images)
    idx.write(tmp_path / "train-labels-idx1-ubyte", labels)
    found = idx.folder(tmp_path, "train")
    assert np.array_equal(found[0], images)
    assert np.array_equal(found[1], labels)
    with pytest.raises(idx.BadInput, match="has no t10k-images-idx3-ubyte"):
        idx.folder(tmp_path, "t10k")
    cut = tmp_path / "train-images-idx3-ubyte"
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(idx.BadInput, match="ends after 59 of 60 bytes"):
        idx.read(cut)


def test_scikit_learns_digits_fill_the_frame_of_mnists():
    images, labels = idx.digits()
    assert images.shape == (1797, 28, 28)
    assert images.max() == 255
    assert not images[:, :4].any()
    assert np.array_equal(np.unique(labels), np.arange(10))
