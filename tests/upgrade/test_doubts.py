"""`Upgrade.fit` refuses pairs that no upgrade should be learned from, unless it is forced."""

from __future__ import annotations

import numpy as np
import pytest
import safetensors.numpy
from tests.upgrade.conftest import closed, quick

from crossfade import BadInput, Pairs
from crossfade.baselines import Ridge


def shuffled(x, seed=0):
    return x[np.random.default_rng(seed).permutation(len(x))]


def test_five_pairs_are_refused_and_when_forced_say_nothing(made):
    old, new, _ = made(rows=5)
    with pytest.raises(
        BadInput, match=r"pairs: 5 pairs are too few .* → give 50 pairs at the very"
    ):
        closed().fit(old, new)
    upgrade = closed().fit(old, new, force=True)
    assert upgrade.warnings_ == [
        "forced although 5 pairs are too few to learn from and to hold any out"
    ]
    # Two rows are held out, and each can but find the other.
    assert upgrade.config_.fit["validation_rows"] == 2
    assert upgrade.validation_ == upgrade.closed_form_ == {}


def test_two_rows_of_one_class_say_nothing_either(made):
    old, new, _ = made(rows=6)
    upgrade = closed().fit(old, new, np.arange(6) % 2, force=True)
    assert upgrade.validation_ == {}


def test_fifty_pairs_are_enough_to_begin_with(made):
    old, new, labels = made(rows=50)
    with pytest.raises(BadInput, match="49 pairs are too few"):
        closed().fit(old[:49], new[:49], labels[:49])
    assert closed().fit(old, new).warnings_ == [
        "validated on 10 rows: its percentages are good to 31 points, give more pairs"
    ]
    enough = made(rows=500)
    assert closed().fit(*enough).warnings_ == []


def test_ten_held_out_rows_can_be_ranked_wrongly(made):
    old, new, _ = made(rows=50, noise=2.0)
    upgrade = closed().fit(old, new)
    # With ten neighbours of nine rows everything would be right.
    assert upgrade.config_.fit["neighbours"] == 2
    scores = [value for case in upgrade.validation_.values() for value in case.values()]
    assert min(scores) < 60


def test_fewer_pairs_than_dimensions_are_warned_of(made):
    old, new, _ = made(rows=500, n=600)
    assert closed().fit(old, new).warnings_ == [
        "500 pairs for 600 dimensions: in directions that no pair has, the maps are guesses"
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("solver", ["closed_form", "fast", "paper"])
def test_shuffled_rows_are_refused(made, solver, seed):
    old, new, labels = made(rows=300, seed=seed)
    text = r"pairs: row i of 'old' does not belong to row i of 'new': .* → give the same items in"
    with pytest.raises(BadInput, match=text):
        quick(solver=solver).fit(shuffled(old, seed), new, labels)
    with pytest.raises(BadInput, match=text):
        quick(solver=solver).fit(shuffled(old, seed), new)


def test_shuffled_rows_can_be_forced(made):
    old, new, labels = made(rows=300)
    upgrade = closed().fit(shuffled(old), new, labels, force=True)
    assert upgrade.warnings_[0].startswith(
        "forced although row i of 'old' does not belong to row i"
    )


@pytest.mark.parametrize("shift", [1, -2])
def test_rows_that_are_off_by_one_are_told_by_how_much(made, shift):
    old, new, labels = made(rows=300, d=24, n=32)
    text = rf"row i of 'new' matches row i\{shift:+d} of 'old' → look for a row that one side lacks"
    with pytest.raises(BadInput, match=text):
        closed().fit(np.roll(old, shift, axis=0), new, labels)


def test_pairs_that_stream_in_batches_are_looked_at_all_over(tmp_path):
    rng = np.random.default_rng(0)
    new = rng.standard_normal(size=(45_000, 100), dtype=np.float32)
    old = new[:, ::-1] + 0.5 * rng.standard_normal(size=new.shape, dtype=np.float32)
    moved = old.copy()
    moved[30_000:] = np.roll(moved[30_000:], 1, axis=0)
    np.savez(tmp_path / "pairs.npz", old=old, new=new)
    np.savez(tmp_path / "moved.npz", old=moved, new=new)
    pairs = Pairs.open(tmp_path / "pairs.npz")
    assert len(list(pairs.batches())) > 1
    assert closed().fit(pairs).warnings_ == []
    text = r"moved.npz: row i of 'old' does not belong to row i of 'new' about rows 3\d,\d+ to 3"
    with pytest.raises(BadInput, match=text):
        closed().fit(Pairs.open(tmp_path / "moved.npz"))


def test_rows_left_out_leave_the_others_together(made, tmp_path):
    old, new, labels = made(rows=300, d=24, n=32)
    old[40] = np.nan
    new[170] = 0
    np.savez(tmp_path / "pairs.npz", old=old, new=new, labels=labels)
    upgrade = closed().fit(Pairs.open(tmp_path / "pairs.npz", drop_bad_rows=True))
    assert upgrade.config_.fit["rows"] == 298
    # What a reader does who drops each side's own bad rows.
    np.savez(tmp_path / "apart.npz", old=np.delete(old, 40, 0), new=np.delete(new, 170, 0))
    with pytest.raises(BadInput, match=r"about rows \d+ to \d+: row i of 'new' matches row i-1 of"):
        closed().fit(Pairs.open(tmp_path / "apart.npz"))


def test_a_baseline_is_as_careful(made):
    old, new, labels = made(rows=300)
    with pytest.raises(BadInput, match="does not belong"):
        Ridge().fit(shuffled(old), new, labels)
    assert Ridge().fit(shuffled(old), new, labels, force=True).warnings_


def test_a_new_model_that_is_much_worse_looks_swapped(made):
    old, new, labels = made(rows=600, noise=1.2)
    text = (
        r"new is worse than old on these pairs \(mAP [\d.]+ against [\d.]+ on 120 validation rows\)"
        r": are they swapped\? → exchange old and new"
    )
    with pytest.raises(BadInput, match=text):
        closed().fit(new, old, labels)
    assert closed().fit(old, new, labels).warnings_ == []
    assert "are they swapped?" in closed().fit(new, old, labels, force=True).warnings_[0]
    # Without labels nobody can tell which of two models is the better one.
    assert closed().fit(new, old).warnings_ == []


def test_a_new_model_that_is_a_little_worse_is_let_through(made):
    old, _, labels = made(rows=3000, noise=0.8)
    worse = old + 0.8 * np.random.default_rng(1).normal(size=old.shape)
    upgrade = closed().fit(old, worse, labels)
    found = upgrade.validation_
    assert 0.9 < found["new/new"]["mAP"] / found["old/old"]["mAP"] < 0.97
    assert upgrade.warnings_ == []


def files(folder, made, metadata=None, **named):
    """A file for each name, with the vectors of one side."""
    old, new, _ = made(rows=300)
    for name, side in named.items():
        array = {"old": old, "new": new}[side]
        safetensors.numpy.save_file({"vectors": array}, folder / f"{name}.safetensors", metadata)


@pytest.mark.parametrize(
    ("sides", "models", "swapped"),
    [
        (("new", "old"), ("", ""), True),
        (("old", "new"), ("", ""), False),
        # A chain of upgrades has new models on either side, and a plain name says nothing.
        (("new", "newer"), ("", ""), False),
        (("vectors-a", "old"), ("", ""), False),
        (("ada-2", "ada-1"), ("ada-1", "ada-2"), True),
        (("ada-1", "ada-2"), ("ada-1", "ada-2"), False),
        (("ada-2", "ada-1"), ("", "ada-2"), False),
        # One model's name in the other's.
        (("ada-large", "ada"), ("ada", "ada-large"), False),
    ],
)
def test_files_whose_names_contradict_the_sides_are_refused(made, tmp_path, sides, models, swapped):
    files(tmp_path, made, **{sides[0]: "old", sides[1]: "new"})
    old, new = (tmp_path / f"{side}.safetensors" for side in sides)
    upgrade = closed(old_model=models[0], new_model=models[1])
    if swapped:
        text = rf"'old' comes from .*{sides[0]}.* and 'new' from .*{sides[1]}.*: are they swapped"
        with pytest.raises(BadInput, match=text):
            upgrade.fit(Pairs.open(old=old, new=new))
        assert upgrade.fit(Pairs.open(old=old, new=new), force=True).warnings_
    else:
        upgrade.fit(Pairs.open(old=old, new=new))


def test_arrays_and_metadata_that_contradict_the_sides_are_refused(made, tmp_path):
    old, new, _ = made(rows=300)
    np.savez(tmp_path / "both.npz", old_train=new, new_train=old)
    place = f"{tmp_path / 'both.npz'}:"
    # Loaded or not, with a folder of whatever name.
    pairs = Pairs.open(old=place + "new_train", new=place + "old_train")
    for given in (pairs, pairs.load()):
        with pytest.raises(BadInput, match="are they swapped"):
            closed().fit(given)
    closed().fit(Pairs.open(old=place + "old_train", new=place + "new_train"))
    files(tmp_path, made, {"model": "all-MiniLM-L6-v2"}, a="old")
    files(tmp_path, made, {"model": "all-mpnet-base-v2"}, b="new")
    sides = {"old": tmp_path / "b.safetensors", "new": tmp_path / "a.safetensors"}
    upgrade = closed(old_model="MiniLM", new_model="mpnet")
    with pytest.raises(BadInput, match=r"b.safetensors \(vectors all-mpnet-base-v2\)"):
        upgrade.fit(Pairs.open(**sides))
