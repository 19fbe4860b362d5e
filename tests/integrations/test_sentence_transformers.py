"""The new model with B behind it, loaded by sentence-transformers itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.demo.texts.data import load_texts
from crossfade.errors import BadInput
from crossfade.integrations.sentence_transformers import (
    export_sentence_transformers,
    is_served_alike,
)

TEXTS = ["How do I open a file?", "The mean of a sample.", "x" * 400, "Größe, déjà vu, 日本語"]


@pytest.fixture(scope="module")
def load():
    """Loads a folder as its user would."""
    # What imports transformers where torchvision was built for another torch.
    from crossfade.demo.models import _minilm

    _minilm()
    from sentence_transformers import SentenceTransformer

    def load(folder):
        return SentenceTransformer(str(folder), device="cpu", local_files_only=True)

    return load


@pytest.fixture(scope="module")
def new(load, minilm):
    return load(minilm).encode(TEXTS)


@pytest.fixture(scope="module")
def biased():
    vectors = load_texts().vectors
    return Upgrade(solver="closed_form", backward_map="affine").fit(
        vectors.old[:1500], vectors.new[:1500]
    )


def close(found, expected) -> bool:
    return found.shape == expected.shape and bool(np.abs(found - expected).max() < 1e-5)


def test_encode_gives_queries_for_the_old_index(tmp_path, load, minilm, new, text_upgrade):
    assert export_sentence_transformers(text_upgrade, minilm, tmp_path / "model") < 1e-5
    model = load(tmp_path / "model")
    found = model.encode(TEXTS)
    assert found.shape == (len(TEXTS), 256)
    assert close(found, text_upgrade.query_for_old(new))
    assert model.get_embedding_dimension() == 256


def test_they_find_in_the_old_index_what_the_upgrade_finds(tmp_path, load, minilm, text_upgrade):
    export_sentence_transformers(text_upgrade, minilm, tmp_path / "model")
    texts = load_texts()
    asked = texts.asked.rows(slice(40))
    scores = load(tmp_path / "model").encode(asked.texts) @ texts.vectors.old.T
    expected = text_upgrade.query_for_old(asked.vectors.new) @ texts.vectors.old.T
    found = np.argsort(-scores, axis=1)[:, :10]
    shared = [
        len(set(a) & set(b)) / 10
        for a, b in zip(found, np.argsort(-expected, axis=1)[:, :10], strict=True)
    ]
    # The shipped vectors are rounded to a byte for each number.
    assert np.mean(shared) > 0.9
    assert (found == asked.wanted[:, None]).any(axis=1).mean() > 0.5


def test_the_folder_is_of_standard_modules_alone(tmp_path, minilm, text_upgrade):
    folder = tmp_path / "model"
    export_sentence_transformers(text_upgrade, minilm, folder)
    modules = json.loads((folder / "modules.json").read_text())
    assert [one["type"].rsplit(".", 1) for one in modules] == [
        ["sentence_transformers.models", kind]
        for kind in ("Transformer", "Pooling", "Normalize", "Dense")
    ]
    assert modules[:3] == json.loads((minilm / "modules.json").read_text())
    assert json.loads((folder / "3_Dense" / "config.json").read_text()) == {
        "in_features": 384,
        "out_features": 256,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    for name in ("config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"):
        assert (folder / name).read_bytes() == (minilm / name).read_bytes()
    assert not list(folder.rglob("*.py"))
    assert "256 numbers each" in (folder / "README.md").read_text()


def test_in_the_shared_space_where_asked(tmp_path, load, minilm, new, text_upgrade):
    export_sentence_transformers(text_upgrade, minilm, tmp_path / "model", space="shared")
    assert close(load(tmp_path / "model").encode(TEXTS), text_upgrade.backward(new))


@pytest.mark.parametrize("space", ["old", "shared"])
def test_a_bias_is_added_to_unit_vectors(tmp_path, load, minilm, new, biased, space):
    export_sentence_transformers(biased, minilm, tmp_path / "model", space=space)
    expected = biased.query_for_old(new) if space == "old" else biased.backward(new)
    assert close(load(tmp_path / "model").encode(TEXTS), expected)


def test_only_a_bias_makes_servers_differ(text_upgrade, biased, made):
    assert is_served_alike(text_upgrade)
    assert not is_served_alike(biased)
    old, new, _ = made()
    as_they_are = Upgrade(solver="closed_form", backward_map="affine", normalize_new="none")
    assert is_served_alike(as_they_are.fit(old, new))


def test_a_model_that_does_not_normalize_gets_the_module(tmp_path, load, minilm, new, text_upgrade):
    bare = tmp_path / "bare"
    shutil.copytree(minilm, bare)
    modules = json.loads((bare / "modules.json").read_text())
    (bare / "modules.json").write_text(json.dumps(modules[:2]))
    export_sentence_transformers(text_upgrade, bare, tmp_path / "model")
    written = json.loads((tmp_path / "model" / "modules.json").read_text())
    assert [one["path"] for one in written[2:]] == ["2_Normalize", "3_Dense"]
    assert close(load(tmp_path / "model").encode(TEXTS), text_upgrade.query_for_old(new))


def test_a_model_of_the_local_cache_is_found_by_its_name(
    tmp_path, monkeypatch, load, minilm, new, text_upgrade
):
    # As the hub's library lays its cache out: a snapshot of links to what was downloaded.
    cached, commit = tmp_path / "models--someone--mini", "a" * 40
    shutil.copytree(minilm, cached / "blobs")
    for path in (cached / "blobs").iterdir():
        link = cached / "snapshots" / commit / path.name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(path)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    export_sentence_transformers(text_upgrade, "someone/mini", tmp_path / "model")
    assert not any(path.is_symlink() for path in (tmp_path / "model").rglob("*"))
    assert close(load(tmp_path / "model").encode(TEXTS), text_upgrade.query_for_old(new))


def test_graphs_of_the_bare_model_stay_behind(tmp_path, minilm, text_upgrade):
    with_graphs = tmp_path / "with-graphs"
    shutil.copytree(minilm, with_graphs)
    left_out = ("onnx/model.onnx", "openvino/openvino_model.xml", "pytorch_model.bin")
    for name in (*left_out, "2_Extra/weights.bin"):
        (with_graphs / name).parent.mkdir(exist_ok=True)
        (with_graphs / name).write_text("of the model without B")
    export_sentence_transformers(text_upgrade, with_graphs, tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").rglob("*")}
    assert not names & {"onnx", "openvino", "pytorch_model.bin"}
    # Weights that are there once are copied, whatever they are.
    assert "weights.bin" in names


def test_the_models_own_folder_is_never_written_to(tmp_path, minilm, text_upgrade):
    model = tmp_path / "model"
    shutil.copytree(minilm, model)
    before = {path: path.read_bytes() for path in model.rglob("*") if path.is_file()}
    for folder in (model, model / "1_Pooling" / "with-b"):
        with pytest.raises(BadInput, match="lies within the model's own folder"):
            export_sentence_transformers(text_upgrade, model, folder, overwrite=True)
    assert {path: path.read_bytes() for path in model.rglob("*") if path.is_file()} == before


def test_another_model_than_the_upgrades_is_refused(tmp_path, minilm, made):
    old, new, _ = made()
    other = Upgrade(solver="closed_form").fit(old, new)
    with pytest.raises(BadInput, match=r"gives 384 numbers, and the upgrade reads new .* of 8"):
        export_sentence_transformers(other, minilm, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_refused_and_leaves_nothing(tmp_path, text_upgrade, minilm):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer"}]')
    cases = {
        "nowhere/at-all": r"is no folder, and no model of that name .* add --download",
        "not a name!": "no model can have that name",
        tmp_path: "has no modules.json",
        broken: "cannot be loaded by sentence-transformers",
    }
    for model, message in cases.items():
        with pytest.raises(BadInput, match=message):
            export_sentence_transformers(text_upgrade, model, tmp_path / "model")
    for text in ("[", "{}", "[]", "[3]"):
        (broken / "modules.json").write_text(text)
        with pytest.raises(BadInput, match=r"modules.json: is no"):
            export_sentence_transformers(text_upgrade, broken, tmp_path / "model")
    assert [one.name for one in tmp_path.iterdir()] == ["broken"]


def test_a_missing_extra_is_named(tmp_path, text_upgrade, minilm):
    text_upgrade.save(tmp_path / "upgrade")
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys\n"
            "sys.modules['sentence_transformers'] = None\n"
            "from crossfade.cli import main\n"
            "main()\n",
            *map(str, ("export", tmp_path / "upgrade", "--sentence-transformers", minilm)),
            *("-o", str(tmp_path / "model")),
        ],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert "pip install 'crossfade[sentence-transformers]'" in ran.stderr
