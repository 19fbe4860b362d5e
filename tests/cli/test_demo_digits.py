"""`crossfade demo --digits`, run for real: what it prints and leaves, and that it is true."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from crossfade import Upgrade
from crossfade.cases import CASES
from crossfade.errors import BadInput

FILES = {"upgrade", "pairs.npz", "test.npz", "demo.json", "spaces.png"}


def crossfade(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "from crossfade.cli import main; main()", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONUTF8": "1"},
    )


@dataclass(frozen=True)
class Ran:
    cwd: Path
    stdout: str
    stderr: str

    @property
    def folder(self) -> Path:
        return self.cwd / "demo"

    @property
    def record(self) -> dict:
        return json.loads((self.folder / "demo.json").read_text(encoding="utf-8"))

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        with np.load(self.folder / name) as file:
            return dict(file)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    cwd = tmp_path_factory.mktemp("demo")
    done = crossfade("demo", "--digits", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return Ran(cwd, done.stdout, done.stderr)


def test_it_leaves_its_files_and_nothing_else(ran: Ran) -> None:
    assert {path.name for path in ran.cwd.iterdir()} == {"demo"}
    assert {path.name for path in ran.folder.iterdir()} == FILES


def test_it_shows_progress_on_stderr_and_the_story_on_stdout(ran: Ran) -> None:
    assert "training the old model" in ran.stderr and "learning B" in ran.stderr
    for case, scores in ran.record["cases"].items():
        row = next(line for line in ran.stdout.splitlines() if line.startswith(f"│ {case} "))
        assert [f"{scores[m]:.1f}" for m in ("cmc@1", "mAP")] == row.replace("│", " ").split()[1:3]
    assert "next: crossfade inspect demo/upgrade" in ran.stdout
    assert "crossfade fit pairs.npz -o upgrade" in ran.stdout


def test_the_table_equals_scikit_learns_count(ran: Ran) -> None:
    test, upgrade = ran.arrays("test.npz"), Upgrade.load(ran.folder / "upgrade")
    vectors = {
        "old": test["old"],
        "new": test["new"],
        "F(old)": upgrade.forward(test["old"]),
        "B(new)": upgrade.backward(test["new"]),
    }
    labels = test["labels"]
    assert list(ran.record["cases"]) == list(CASES)
    for case, scores in ran.record["cases"].items():
        query, gallery = (vectors[side].astype(np.float64) for side in case.split("/"))
        similarity = cosine_similarity(query, gallery)
        first, precision = [], []
        for i in range(len(labels)):
            others = np.arange(len(labels)) != i
            relevant, score = labels[others] == labels[i], similarity[i, others]
            first.append(relevant[score.argmax()])
            precision.append(average_precision_score(relevant, score))
        # One query in 540 may fall the other way where two float32 scores are all but equal.
        assert scores["cmc@1"] == pytest.approx(100 * np.mean(first), abs=0.2)
        assert scores["mAP"] == pytest.approx(100 * np.mean(precision), abs=0.01)


def test_training_and_test_rows_are_all_the_images_and_share_none(ran: Ran) -> None:
    pairs, test = ran.arrays("pairs.npz"), ran.arrays("test.npz")
    digits = load_digits().target
    both = np.concatenate([pairs["labels"], test["labels"]])
    assert np.array_equal(np.bincount(both), np.bincount(digits))
    seen = {row.tobytes() for row in pairs["new"]}
    assert len(seen) == len(pairs["new"])
    assert not seen & {row.tobytes() for row in test["new"]}


def test_the_maps_do_what_the_story_is_about(ran: Ran) -> None:
    cases = ran.record["cases"]
    assert cases["B(new)/B(new)"] == cases["new/new"]
    assert cases["new/old"]["cmc@1"] < cases["old/old"]["cmc@1"] < cases["new/new"]["cmc@1"]
    assert cases["B(new)/F(old)"]["cmc@1"] > cases["old/old"]["cmc@1"]


def test_the_three_kinds_of_backward_map_differ_as_the_figure_says(ran: Ran) -> None:
    spaces = ran.record["spaces"]
    weight = {kind: np.array(space["weight"]) for kind, space in spaces.items()}
    for kind, w in weight.items():
        assert spaces[kind]["deviation"] == pytest.approx(np.linalg.norm(w @ w.T - np.eye(2)), 1e-4)
    assert np.allclose(weight["orthogonal"] @ weight["orthogonal"].T, np.eye(2), atol=1e-6)
    assert spaces["near-orthogonal"]["deviation"] == pytest.approx(1.0, abs=1e-3)
    order = ("affine", "near-orthogonal", "orthogonal")
    condition = [np.linalg.cond(weight[kind]) for kind in order]
    distance = [spaces[kind]["distance_to_old"] for kind in order]
    assert condition == sorted(condition, reverse=True) and condition[0] > 2
    assert distance == sorted(distance)


def test_the_picture_opens_and_its_panels_are_full(ran: Ran) -> None:
    from matplotlib.image import imread

    picture = imread(ran.folder / "spaces.png")
    assert picture.shape[:2] == (552, 1920)
    panels = np.array_split(picture[60:440, :, :3], 5, axis=1)
    coloured = [int((np.ptp(panel, axis=2) > 0.3).sum()) for panel in panels]
    assert min(coloured) > 200


def test_the_commands_it_names_next_work(ran: Ran) -> None:
    shown = crossfade("inspect", "demo/upgrade", cwd=ran.cwd)
    assert shown.returncode == 0, shown.stderr
    fit = ("fit", "demo/pairs.npz", "-o", "my-upgrade", "--solver", "closed_form")
    fitted = crossfade(*fit, cwd=ran.cwd)
    assert fitted.returncode == 0, fitted.stderr
    apply = ("apply", "my-upgrade", "demo/test.npz", "lifted.npy", "--column", "old")
    lifted = crossfade(*apply, "--direction", "forward", cwd=ran.cwd)
    assert lifted.returncode == 0, lifted.stderr
    assert len(np.load(ran.cwd / "lifted.npy")) == len(ran.arrays("test.npz")["old"])
    for name in ("my-upgrade/config.json", "my-upgrade/README.md"):
        assert (ran.cwd / name).is_file()


def test_a_second_run_replaces_the_files_and_tells_the_same_story(ran: Ran, tmp_path: Path) -> None:
    from crossfade.demo.digits.folder import FILES as REPLACED
    from crossfade.demo.folder import check_folder

    folder = tmp_path / "demo"
    folder.mkdir()
    (folder / "mine.txt").write_text("kept")
    (folder / "demo.json").write_text("{}")
    check_folder(folder, REPLACED)
    done = crossfade("demo", "--digits", "--json", "-", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ran.record
    assert json.loads((folder / "demo.json").read_text(encoding="utf-8")) == ran.record
    assert {path.name for path in folder.iterdir()} == FILES | {"mine.txt"}
    assert Upgrade.load(folder / "upgrade").hash_ == Upgrade.load(ran.folder / "upgrade").hash_


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (("-o", "a-file"), "a-file: is a file, not a folder"),
        (("-o", "a-file/demo"), "a-file/demo: cannot be written"),
        (("-o", "nowhere/demo"), "nowhere/demo: cannot be written"),
        (("-o", "other"), "other/upgrade: is there and is not an upgrade"),
        (("--json", "nowhere/out.json"), "nowhere/out.json: cannot be written"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, arguments: tuple[str, ...], cause: str
) -> None:
    (tmp_path / "a-file").write_text("mine")
    (tmp_path / "other" / "upgrade").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    done = crossfade("demo", "--digits", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert cause in done.stderr and "→" in done.stderr
    assert "training" not in done.stderr and done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_disk_that_fills_up_leaves_no_folder(
    ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossfade.demo.digits import folder
    from crossfade.demo.digits.spaces import map_spaces
    from crossfade.demo.digits.story import Embedded, Story

    train, test = (Embedded(**ran.arrays(name)) for name in ("pairs.npz", "test.npz"))
    flat = [(rows.old[:, :2], rows.new[:, :2]) for rows in (train, test)]
    spaces = map_spaces(*flat, train.labels, test.labels, seed=0)
    upgrade = Upgrade.load(ran.folder / "upgrade")
    story = Story(0, upgrade, train, test, ran.record["cases"], spaces)

    def full(_: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folder, "draw", full)
    with pytest.raises(BadInput, match="the disk is full"):
        folder.fill(tmp_path / "demo", story)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["sklearn", "torch", "matplotlib"])
def test_a_missing_extra_is_named_with_the_install_command(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossfade.demo.digits import story

    monkeypatch.setattr(story, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(BadInput, match=r"pip install 'crossfade\[digits\]'"):
        story.run_story()
