"""Features of torchvision, timm and open_clip beside what each library gives itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from experiments.images import models
from experiments.images.datasets import Images
from experiments.images.extract import batches, embed
from PIL import Image
from safetensors.numpy import load_file

from crossfade import BadInput
from crossfade.demo.torchvision_import import import_torchvision

torchvision = import_torchvision()
import open_clip  # noqa: E402 - after torchvision, which it imports as it is
import timm  # noqa: E402

CPU = torch.device("cpu")


def pixels(label: int, seed: int) -> np.ndarray:
    """Noise around the class's colour, wider than high."""
    rng = np.random.default_rng([label, seed])
    colour = np.array([60 * label, 200 - 50 * label, 100])
    return (colour + rng.integers(-40, 40, size=(67, 90, 3))).clip(0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def images() -> Images:
    labels = np.repeat(np.arange(4), 3)
    return Images([pixels(c, i) for i, c in enumerate(labels)], labels, tuple("abcd"))


@pytest.fixture(scope="module")
def folder(images, tmp_path_factory):
    """The same pictures in class folders, for training and for test."""
    root = tmp_path_factory.mktemp("pictures")
    for split in ("train", "test"):
        for i, label in enumerate(images.labels):
            path = root / split / str(label) / f"{split}{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            images.open(i).save(path)
    return root


@pytest.fixture(scope="module", autouse=True)
def tiny(tmp_path_factory):
    """`tiny-clip` for open_clip, whose own smallest has 60 million parameters."""
    about = {
        "embed_dim": 24,
        "vision_cfg": {
            "image_size": 32,
            "layers": 1,
            "width": 32,
            "head_width": 16,
            "patch_size": 16,
        },
        "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
    }
    path = tmp_path_factory.mktemp("clip") / "tiny-clip.json"
    path.write_text(json.dumps(about))
    open_clip.add_model_config(path)


def batch_of(model: models.Model, images: Images) -> torch.Tensor:
    return torch.cat([batch for _, batch in batches(images, model.preprocessing, size=5)])


@torch.inference_mode()
def features_of(model: models.Model, batch: torch.Tensor) -> np.ndarray:
    found = model.embed(batch)
    assert found.dtype == torch.float32
    assert torch.isfinite(found).all()
    # Not the same vector for all pictures.
    assert found.std(dim=0).max() > 0
    return found.numpy()


def as_random(make):
    """The library's own model from the same start as `@random`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make().eval()


@pytest.mark.parametrize(
    ("name", "head", "dimension"),
    [("resnet18", "fc", 512), ("mobilenet_v3_small", "classifier.3", 1024)],
)
def test_torchvision_gives_what_its_classifier_reads(name, head, dimension, images):
    found = models.load(f"torchvision:{name}@random", size=64)
    batch = batch_of(found, images)
    assert batch.shape == (12, 3, 64, 64)
    features = features_of(found, batch)
    assert features.shape == (12, dimension)
    own = as_random(lambda: torchvision.models.get_model(name, weights=None))
    read = []
    own.get_submodule(head).register_forward_pre_hook(lambda _, given: read.append(given[0]))
    with torch.inference_mode():
        logits = own(batch).numpy()
    assert features == pytest.approx(read[0].numpy(), abs=1e-5)
    weight, bias = found.classifier
    assert features @ weight.T + bias == pytest.approx(logits, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "size", "dimension"),
    [("test_vit", None, 64), ("test_vit", 64, 64), ("test_efficientnet", 64, 256)],
)
def test_timm_gives_what_its_classifier_reads(name, size, dimension, images):
    found = models.load(f"timm:{name}@random", size=size)
    batch = batch_of(found, images)
    assert batch.shape == (12, 3, size or 160, size or 160)
    features = features_of(found, batch)
    assert features.shape == (12, dimension)
    own = as_random(lambda: timm.create_model(name, pretrained=False))
    if size and name == "test_vit":
        own.set_input_size(img_size=size)
    with torch.inference_mode():
        expected = own.forward_head(own.forward_features(batch), pre_logits=True).numpy()
        logits = own(batch).numpy()
    assert features == pytest.approx(expected, abs=1e-5)
    weight, bias = found.classifier
    assert features @ weight.T + bias == pytest.approx(logits, abs=1e-4)


@pytest.mark.parametrize("size", [None, 48])
def test_open_clip_gives_its_image_embedding(size, images):
    found = models.load("open_clip:tiny-clip@random", size=size)
    batch = batch_of(found, images)
    assert batch.shape == (12, 3, size or 32, size or 32)
    features = features_of(found, batch)
    assert features.shape == (12, 24)
    assert found.classifier is None
    own = as_random(lambda: open_clip.create_model("tiny-clip", force_image_size=size))
    with torch.inference_mode():
        expected = own.encode_image(batch, normalize=False).numpy()
    assert features == pytest.approx(expected, abs=1e-5)


def test_features_of_all_pictures_are_kept_in_half_precision(images):
    found = models.load("timm:test_vit@random", size=64)
    kept = embed(found, images, CPU, "pictures")
    assert kept.dtype == np.float16
    assert kept == pytest.approx(features_of(found, batch_of(found, images)), rel=1e-3, abs=1e-6)


HALF, BICUBIC = (0.5, 0.5, 0.5), Image.Resampling.BICUBIC
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


@pytest.mark.parametrize(
    ("spec", "size", "resized", "crop", "method", "mean", "std"),
    [
        # 90 by 67: the shorter side to what the model's page says, the longer one rounded down.
        ("torchvision:resnet18", None, (343, 256), 224, Image.Resampling.BILINEAR, *IMAGENET),
        ("torchvision:resnet18", 64, (85, 64), 64, Image.Resampling.BILINEAR, *IMAGENET),
        # 160 / 0.95 rounded down.
        ("timm:test_vit", None, (225, 168), 160, BICUBIC, HALF, HALF),
        ("timm:test_vit", 64, (85, 64), 64, BICUBIC, HALF, HALF),
        # Squashed: both sides to 240 / 0.9.
        ("timm:tf_efficientnetv2_b3", None, (266, 266), 240, BICUBIC, HALF, HALF),
        ("open_clip:tiny-clip", None, (42, 32), 32, BICUBIC, *CLIP),
        ("open_clip:tiny-clip", 48, (64, 48), 48, BICUBIC, *CLIP),
    ],
)
def test_a_model_sees_pictures_as_it_was_trained_to(
    spec, size, resized, crop, method, mean, std, images
):
    found = models.load(f"{spec}@random", size=size).preprocessing(images.open(0))
    image = images.open(0).resize(resized, method)
    left, top = (round((side - crop) / 2) for side in resized)
    middle = np.asarray(image)[top : top + crop, left : left + crop] / 255
    assert found.dtype == torch.float32
    assert found.numpy().transpose(1, 2, 0) == pytest.approx((middle - mean) / std, abs=1e-5)


def test_weights_are_those_that_the_name_stands_for(images, tmp_path, monkeypatch):
    own = {
        "torchvision": torchvision.models.shufflenet_v2_x0_5(weights=None),
        "timm": timm.create_model("test_vit"),
        "open_clip": open_clip.create_model("tiny-clip"),
    }
    # Where each library looks before it asks the network.
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    url = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT.url
    kept = tmp_path / "hub" / "checkpoints" / url.rpartition("/")[2]
    kept.parent.mkdir(parents=True)
    torch.save(own["torchvision"].state_dict(), kept)
    timm.models.save_for_hf(own["timm"], tmp_path / "vit")
    torch.save(own["open_clip"].state_dict(), tmp_path / "clip.pt")
    specs = (
        "torchvision:shufflenet_v2_x0_5",
        f"timm:local-dir:{tmp_path}/vit",
        f"open_clip:tiny-clip/{tmp_path}/clip.pt",
    )
    for spec, (library, model) in zip(specs, own.items(), strict=True):
        found = models.load(spec)
        state = model.state_dict()
        loaded = found.module.state_dict()
        assert loaded.keys() <= state.keys()
        assert all(torch.equal(loaded[k], state[k]) for k in loaded), library


def test_pictures_go_from_three_libraries_to_a_table(folder, experiments, tmp_path):
    cache = tmp_path / "cache"
    options = ["--images", folder, "--size", "32", "--device", "cpu", "--cache", cache]
    options += ["--old", "torchvision:resnet18@random", "--new"]
    small = ["--seeds", "1", "--epochs", "1", "--batch-size", "6"]
    experiments("run", "backfilling", *options, "timm:test_vit@random", *small, "-o", tmp_path)
    (features,) = cache.glob("folders-*.safetensors")
    first = load_file(features)
    assert first["old_train"].shape == (12, 512)
    assert first["new_test"].shape == (12, 64)
    # The classes are ImageNet's, the pictures have others.
    assert "new_classifier_weight" not in first
    page = next(tmp_path.glob("*.md")).read_text()
    assert "torchvision:resnet18@random" in page
    assert "timm:test_vit@random" in page

    kept = {path: path.stat().st_mtime_ns for path in cache.glob("vectors-*.npy")}
    assert len(kept) == 4
    for again in range(2):
        target = tmp_path / f"{again}.safetensors"
        experiments("extract", *options, "open_clip:tiny-clip@random", "-o", target)
        second = load_file(target)
        assert np.array_equal(second["old_train"], first["old_train"])
        assert second["new_train"].shape == (12, 24)
        after = {path: path.stat().st_mtime_ns for path in cache.glob("vectors-*.npy")}
        # The old model's vectors are there, and the second time the new one's as well.
        assert len(after.keys() - kept.keys()) == (0 if again else 2)
        assert kept.items() <= after.items()
        kept = after


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("torchvision:nope", r"does not open it \(there is no image classifier nope\) → torchv"),
        ("torchvision:fasterrcnn_resnet50_fpn", "there is no image classifier fasterrcnn"),
        ("torchvision:squeezenet1_1@random", "its classifier is not a linear layer"),
        ("torchvision:resnet18@trained", "there is no model 'torchvision:resnet18@trained'"),
        ("timm:nope", r"timm:nope: timm does not open it \(Unknown model \(nope\)\) → timm\.list"),
        ("open_clip:nope@random", r"does not open it \(Model config for 'nope' not found"),
        ("open_clip:RN50", r"open_clip:RN50: .* \(it names no weights\) → open_clip\.list_pretr"),
        ("open_clip:tiny-clip/nope", "'nope' is not a known tag or valid file path"),
    ],
)
def test_a_model_that_the_library_does_not_have_is_said(spec, message):
    with pytest.raises(BadInput, match=message) as caught:
        models.load(spec)
    assert len(str(caught.value)) < 300


def test_a_folder_without_a_model_is_said(tmp_path):
    with pytest.raises(BadInput, match=r"transformers does not open it .* → name a model"):
        models.load(f"transformers:{tmp_path}")
