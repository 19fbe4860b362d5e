"""From small pictures made here to features, with models of random or briefly trained weights."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import torch
from experiments.images import DATASETS, datasets, models
from experiments.images.preprocess import Preprocessing
from experiments.images.resnet import ResNet34
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import load_file

from crossfade import BadInput
from crossfade.demo.torchvision_import import import_torchvision

COLOURS = ((200, 30, 30), (30, 200, 30), (30, 30, 200), (200, 200, 30))


def picture(label: int, seed: int) -> Image.Image:
    """A noisy square of the class's colour."""
    rng = np.random.default_rng([label, seed])
    pixels = np.array(COLOURS[label]) + rng.integers(-30, 30, size=(24, 32, 3))
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def saved(path, label, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(label, seed).save(path)


def encoded(label, seed):
    buffer = io.BytesIO()
    picture(label, seed).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Four classes, in class folders: six pictures of each for training, four for test."""
    root = tmp_path_factory.mktemp("pictures")
    for split, count in (("train", 6), ("val", 4)):
        for label in range(4):
            for seed in range(count):
                saved(root / split / f"class{label}" / f"{split}{seed}.png", label, seed)
    return root


def make_imagenet(root):
    base = root / "ILSVRC" / "Data" / "CLS-LOC"
    lines = ["ImageId,PredictionString"]
    for label, name in enumerate(("n01", "n02")):
        saved(base / "train" / name / "a.JPEG", label, 0)
        saved(base / "val" / f"ILSVRC2012_val_{label}.JPEG", label, 1)
        lines.append(f"ILSVRC2012_val_{label},{name} 0 0 1 1 ")
    (root / "LOC_val_solution.csv").write_text("\n".join(lines) + "\n")


def make_cifar100(root):
    for split in ("train", "test"):
        rows = [
            np.concatenate(
                [
                    [9, label],
                    np.asarray(picture(label, 0).resize((32, 32))).transpose(2, 0, 1).ravel(),
                ]
            )
            for label in (0, 1)
        ]
        np.array(rows, np.uint8).tofile(root / f"{split}.bin")


def make_cub200(root):
    base = root / "CUB_200_2011"
    names = [f"00{label + 1}.Bird/b{split}.jpg" for label in (0, 1) for split in (0, 1)]
    for i, name in enumerate(names):
        saved(base / "images" / name, i // 2, i)
    for file, values in (
        ("images.txt", names),
        ("image_class_labels.txt", [1, 1, 2, 2]),
        ("train_test_split.txt", [1, 0, 1, 0]),
        ("classes.txt", ["001.Bird", "002.Bird"]),
    ):
        (base / file).write_text("".join(f"{i} {v}\n" for i, v in enumerate(values, 1)))


def make_places365(root):
    for label, name in enumerate(("abbey", "airfield")):
        saved(root / "data_256" / "a" / name / "1.jpg", label, 0)
        saved(root / "val_256" / f"Places365_val_{label}.jpg", label, 1)
    (root / "places365_train_standard.txt").write_text("/a/abbey/1.jpg 0\n/a/airfield/1.jpg 1\n")
    (root / "places365_val.txt").write_text("Places365_val_0.jpg 0\nPlaces365_val_1.jpg 1\n")


def make_flowers102(root):
    for i in range(1, 5):
        saved(root / "jpg" / f"image_{i:05d}.jpg", (i - 1) % 2, i)
    scipy.io.savemat(root / "imagelabels.mat", {"labels": [[1, 2, 1, 2]]})
    scipy.io.savemat(root / "setid.mat", {"trnid": [[1]], "valid": [[2]], "tstid": [[3, 4]]})


MAKERS = {
    "imagenet": make_imagenet,
    "cifar100": make_cifar100,
    "cub200": make_cub200,
    "places365": make_places365,
    "flowers102": make_flowers102,
}


def test_every_dataset_has_a_loader():
    assert set(datasets.DATASETS) == set(DATASETS) == {"folders", *MAKERS}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_a_dataset_is_read_in_the_form_people_have_it(name, split, tmp_path):
    MAKERS[name](tmp_path)
    found = datasets.load(name, tmp_path, split)
    assert found.labels.tolist() == [0, 1]
    for i, label in enumerate(found.labels):
        mean = np.asarray(found.open(i)).reshape(-1, 3).mean(axis=0)
        assert np.abs(mean - COLOURS[label]).max() < 20


def test_class_folders_are_read_in_the_order_of_their_names(folder):
    train, test = (datasets.load("folders", folder, s) for s in ("train", "test"))
    assert (len(train), len(test)) == (24, 16)
    assert train.classes == ("class0", "class1", "class2", "class3")
    assert train.only(2).labels.tolist() == [0] * 6 + [1] * 6


def test_pictures_in_parquet(tmp_path):
    table = pa.table({"img": [{"bytes": encoded(1, 0), "path": "x"}], "fine_label": [7]})
    pq.write_table(table, tmp_path / "train-00000-of-00001.parquet")
    found = datasets.load("cifar100", tmp_path, "train")
    assert found.labels.tolist() == [7]
    assert found.open(0).size == (32, 24)


def test_a_pickled_dataset_is_refused(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(BadInput, match="holds the pickled version → get cifar-100-binary"):
        datasets.load("cifar100", tmp_path, "train")


def test_a_broken_picture_is_named(folder, tmp_path):
    broken = tmp_path / "train" / "a" / "x.png"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a picture")
    with pytest.raises(BadInput, match=r"x\.png: cannot be read"):
        datasets.load("folders", tmp_path, "train").open(0)


def test_preprocessing_resizes_crops_and_normalizes():
    seen = Preprocessing(resize=24, crop=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    image = picture(0, 0)
    # 32×24 has the right shorter side already: the crop is the middle, unchanged.
    middle = np.asarray(image, np.float32)[4:20, 8:24] / 255
    assert np.allclose(seen(image), ((middle - 0.5) / 0.5).transpose(2, 0, 1), atol=1e-6)
    assert seen.random(image, np.random.default_rng(0)).shape == (3, 16, 16)


@given(
    size=st.tuples(st.integers(20, 90), st.integers(20, 90)),
    resize=st.integers(16, 40),
    less=st.integers(0, 15),
    squash=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_preprocessing_rounds_as_torchvision_does(size, resize, less, squash):
    transforms = import_torchvision().transforms
    seen = Preprocessing(resize, resize - less, squash=squash)
    image = picture(1, 0).resize(size)
    expected = transforms.Compose(
        [
            transforms.Resize((resize, resize) if squash else resize),
            transforms.CenterCrop(seen.crop),
            transforms.ToTensor(),
            transforms.Normalize(seen.mean, seen.std),
        ]
    )(image)
    assert torch.allclose(seen(image), expected, atol=1e-5)


def test_resnet_34_has_the_layers_of_the_paper():
    network = ResNet34(classes=10)
    convolutions = [m for m in network.modules() if isinstance(m, torch.nn.Conv2d)]
    # 33 of them and a linear layer make 34; three more bring a block's input to its output.
    assert len(convolutions) == 33 + 3
    # torchvision's ResNet-34 has 21,284,672 parameters without its classifier.
    assert sum(p.numel() for p in network.body.parameters()) == 21_284_672
    assert network.eval()(torch.zeros(2, 3, 64, 64)).shape == (2, 128)


@pytest.fixture(scope="session")
def transformer(tmp_path_factory):
    """A small vision transformer of random weights, as a model hub would have it."""
    import_torchvision()
    from transformers import ViTConfig, ViTModel

    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=16,
    )
    ViTModel(config).save_pretrained(folder)
    told = {"size": {"height": 32, "width": 32}, "do_center_crop": False, "resample": 3}
    told |= {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(told))
    return folder


def test_a_model_of_transformers_says_how_it_sees(transformer):
    found = models.load(f"transformers:{transformer}")
    expected = Preprocessing(32, 32, (0.5,) * 3, (0.5,) * 3, "bicubic", squash=True)
    assert found.preprocessing == expected
    vectors = found.embed(torch.zeros(2, 3, 32, 32))
    assert vectors.shape == (2, 16)
    # transformers resizes in torch, not in Pillow: a few of 255 steps apart, not one pixel away.
    import_torchvision()
    from transformers import ViTImageProcessor

    own = ViTImageProcessor.from_pretrained(transformer)(picture(0, 0), return_tensors="pt")
    assert torch.allclose(found.preprocessing(picture(0, 0)), own["pixel_values"][0], atol=0.05)


@pytest.fixture(scope="session")
def backbones(folder, tmp_path_factory):
    """ResNet-34 trained for an epoch on the first half of the classes, and on all."""
    from experiments.__main__ import main

    out = tmp_path_factory.mktemp("backbones")
    small = ["--epochs", "1", "--crop", "32", "--resize", "32", "--batch-size", "12"]
    for name, classes in (("old", "first-half"), ("new", "all")):
        main(
            [
                *("train", "--images", str(folder), "--classes", classes, *small),
                *("--lr", "0.01", "--device", "cpu", "-o", str(out / f"{name}.safetensors")),
            ]
        )
    return out


def test_training_keeps_the_first_half_of_the_classes(backbones):
    shapes = [
        load_file(backbones / f"{name}.safetensors")["classifier.weight"].shape
        for name in ("old", "new")
    ]
    assert shapes == [(2, 128), (4, 128)]


def test_images_go_all_the_way_to_a_table(folder, backbones, transformer, experiments, tmp_path):
    options = ["--images", folder, "--zero-shot", folder, "--device", "cpu"]
    options += ["--old", f"checkpoint:{backbones}/old.safetensors", "--cache", tmp_path / "cache"]
    options += ["--new", f"checkpoint:{backbones}/new.safetensors"]
    small = ["--seeds", "1", "--epochs", "1", "--batch-size", "8"]
    experiments("run", "backfilling", *options, *small, "-o", tmp_path)
    (features,) = (tmp_path / "cache").glob("folders-*.safetensors")
    found = load_file(features)
    assert found["old_train"].shape == (24, 128)
    assert found["new_classifier_weight"].shape == (4, 128)
    assert found["new_zeroshot"].shape == (16, 128)
    assert "checkpoint" in (tmp_path / next(tmp_path.glob("*.md"))).read_text()
    # A second pair with the same old model embeds the new one's pictures alone.
    kept = set((tmp_path / "cache").glob("vectors-*.npy"))
    options[-1] = f"transformers:{transformer}"
    target = tmp_path / "other.safetensors"
    experiments("extract", *options, "-o", target)
    assert len(set((tmp_path / "cache").glob("vectors-*.npy")) - kept) == 2
    assert load_file(target)["new_test"].shape == (16, 16)
    assert np.array_equal(load_file(target)["old_test"], found["old_test"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("alexnet", "there is no model 'alexnet'"),
        ("checkpoint:nowhere", "nowhere: is not there"),
        ("timm:resnet18", "timm:resnet18: timm is not installed → pip install timm torchvision"),
    ],
)
def test_a_model_that_cannot_be_had_is_said(spec, message, monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=message):
        models.load(spec)
