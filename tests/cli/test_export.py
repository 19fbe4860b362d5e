"""`crossfade export --onnx`."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from crossfade import Upgrade


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Upgrade(solver="closed_form").fit(*made()).save(tmp_path / "mine")


def run(path, x):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"vectors": x})[0]


def test_b_by_default_and_f_when_asked(crossfade, folder, made):
    upgrade, (old, new, _) = Upgrade.load(folder), made()
    ran = crossfade("export", "mine", "--onnx", "b.onnx")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("b.onnx: backward map, largest difference from numpy ")
    assert crossfade("export", "mine", "--onnx", "f.onnx", "--direction", "forward").code == 0
    assert np.allclose(run("b.onnx", new), upgrade.backward(new), atol=1e-5)
    assert np.allclose(run("f.onnx", old), upgrade.forward(old), atol=1e-5)


def test_an_existing_file_is_kept_unless_asked(crossfade, folder, tmp_path):
    (tmp_path / "b.onnx").write_text("precious")
    ran = crossfade("export", "mine", "--onnx", "b.onnx")
    assert ran.code == 2
    assert "b.onnx: already exists → name another file, or add --overwrite" in ran.err
    assert (tmp_path / "b.onnx").read_text() == "precious"
    assert crossfade("export", "mine", "--onnx", "b.onnx", "--overwrite").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing", "--onnx", "b.onnx"), "nothing: is not an upgrade folder → "),
        (("mine", "--onnx", "nowhere/b.onnx"), "nowhere/b.onnx: cannot be written"),
        (("mine", "--onnx", "b.onnx", "--direction", "up"), "up"),
        (("mine",), "--onnx"),
    ],
)
def test_a_wrong_command_writes_nothing(crossfade, folder, tmp_path, arguments, message):
    ran = crossfade("export", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_a_changed_byte_is_found(crossfade, folder, tmp_path):
    text = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(text.replace('"rows": 120', '"rows": 121'))
    ran = crossfade("export", "mine", "--onnx", "b.onnx")
    assert ran.code == 2
    assert "does not match its content hash" in ran.err
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]
