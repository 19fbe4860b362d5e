"""The exported graph computes what numpy does."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from crossfade import BadInput, Upgrade
from crossfade.upgrade.onnx import export_onnx

MAPS = [
    ("orthogonal", "affine"),
    ("near-orthogonal", "mlp"),
    ("affine", "mlp"),
]


@pytest.fixture(scope="module")
def upgrade(made):
    return Upgrade(solver="closed_form").fit(*made())


def run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x})
    return y


@pytest.mark.parametrize(("backward", "forward"), MAPS)
@pytest.mark.parametrize("how", ["l2", "none"])
@pytest.mark.parametrize("solver", ["fast", "paper"])
def test_the_graph_is_the_map(tmp_path, made, backward, forward, how, solver):
    old, new, labels = made(noise=0.8)
    upgrade = Upgrade(
        solver=solver,
        backward_map=backward,
        forward_map=forward,
        hidden=(5, 4),
        epochs=2,
        normalize_old=how,
        normalize_new=how,
    ).fit(old, new, labels)
    for direction, apply, x in (
        ("backward", upgrade.backward, new),
        ("forward", upgrade.forward, old),
    ):
        path = tmp_path / f"{direction}.onnx"
        difference = export_onnx(upgrade, path, direction=direction)
        expected = apply(x)
        scale = max(1.0, float(np.abs(expected).max()))
        assert difference <= 1e-5 * scale
        for rows in (1, 7, len(x)):
            assert np.abs(run(path, x[:rows]) - expected[:rows]).max() <= 1e-5 * scale


def test_the_file_says_what_it_is(tmp_path, upgrade):
    for direction, side in (("backward", "new"), ("forward", "old")):
        export_onnx(upgrade, tmp_path / f"{direction}.onnx", direction=direction)
        model = onnx.load(tmp_path / f"{direction}.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert {prop.key: prop.value for prop in model.metadata_props} == {
            "crossfade.direction": direction,
            "crossfade.reads": side,
            "crossfade.writes": "shared",
            "crossfade.upgrade": upgrade.hash_,
        }
        (given,), (made,) = model.graph.input, model.graph.output
        dims = [given.type.tensor_type.shape.dim[1], made.type.tensor_type.shape.dim[1]]
        assert [d.dim_value for d in dims] == [{"new": 8, "old": 6}[side], 8]


def test_an_existing_file_is_kept_unless_asked(tmp_path, upgrade):
    path = tmp_path / "b.onnx"
    path.write_text("precious")
    with pytest.raises(BadInput, match=r"b.onnx: already exists → .*--overwrite"):
        export_onnx(upgrade, path)
    assert path.read_text() == "precious"
    export_onnx(upgrade, path, overwrite=True)
    onnx.checker.check_model(onnx.load(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["b.onnx"]


def test_a_place_that_cannot_be_written_is_named(tmp_path, upgrade):
    with pytest.raises(BadInput, match=r"b.onnx: cannot be written"):
        export_onnx(upgrade, tmp_path / "missing" / "b.onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_upgrade_that_is_not_fitted_cannot_be_exported(tmp_path):
    with pytest.raises(BadInput, match="this upgrade is not fitted"):
        export_onnx(Upgrade(), tmp_path / "b.onnx")


def test_a_direction_that_does_not_exist_is_refused(tmp_path, upgrade):
    with pytest.raises(BadInput, match="sideways"):
        export_onnx(upgrade, tmp_path / "b.onnx", direction="sideways")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_extra_is_named_with_the_line_that_installs_it(tmp_path, upgrade, package):
    upgrade.save(tmp_path / "upgrade")
    script = (
        "import sys\n"
        "sys.modules[sys.argv[3]] = None\n"
        "from crossfade import Upgrade\n"
        "from crossfade.errors import MissingExtra\n"
        "from crossfade.upgrade.onnx import export_onnx\n"
        "try:\n"
        "    export_onnx(Upgrade.load(sys.argv[1]), sys.argv[2])\n"
        "except MissingExtra as error:\n"
        "    print(error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "upgrade", tmp_path / "b.onnx", package],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.stdout == (
        f"exporting to ONNX needs {package}, which is not installed "
        "→ pip install 'crossfade[onnx]'\n"
    ), ran.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["upgrade"]
