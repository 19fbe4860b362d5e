"""Datasets in the folder forms in which people have them.

| name | what is looked for in the folder |
|---|---|
| folders | `train/CLASS/*`, and `test`, `val` or `validation` likewise |
| imagenet | the same, or `ILSVRC/Data/CLS-LOC`, with `LOC_val_solution.csv` for a flat `val` |
| cifar100 | `train.bin` and `test.bin` of the binary version, or Parquet files with images |
| cub200 | `images.txt`, `image_class_labels.txt`, `train_test_split.txt`, `images/` |
| places365 | class folders, or `places365_train_standard.txt`, `places365_val.txt` and images |
| flowers102 | `jpg/`, `imagelabels.mat`, `setid.mat` |

Never the pickled version of a dataset: unpickling runs whatever the file says.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crossfade import BadInput

PICTURES = {".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm"}
HELD_OUT = ("test", "val", "validation")
# A picture of more pixels than this is a mistake or an attack.
Image.MAX_IMAGE_PIXELS = 200_000_000


@dataclass(frozen=True, eq=False)
class Images:
    """Pictures of one split, opened one at a time, and their classes from 0."""

    sources: Sequence[Any]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sources)

    def open(self, i: int) -> Image.Image:
        """Picture i, in RGB."""
        source = self.sources[i]
        if isinstance(source, np.ndarray):
            return Image.fromarray(source)
        try:
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                return image.convert("RGB")
        except OSError as error:
            where = source if isinstance(source, Path) else f"picture {i}"
            raise BadInput(f"cannot be read ({error})", where=where, step="get it again") from None

    def only(self, classes: int) -> Images:
        """The pictures of the first so many classes."""
        kept = np.flatnonzero(self.labels < classes)
        sources = [self.sources[i] for i in kept]
        return Images(sources, self.labels[kept], self.classes[:classes])


def load(name: str, folder: Path, split: str) -> Images:
    """The `train` or `test` split of the dataset of that name."""
    if name not in DATASETS:
        raise BadInput(f"there is no dataset {name!r}", step=f"use one of {', '.join(DATASETS)}")
    if not folder.is_dir():
        raise BadInput("is not a folder", where=folder, step="name the folder of the images")
    found = DATASETS[name](folder, split)
    if not len(found):
        raise BadInput(f"has no pictures for {split}", where=folder)
    return found


def _folders(folder: Path, split: str) -> Images:
    names = ("train",) if split == "train" else HELD_OUT
    there = [folder / name for name in names if (folder / name).is_dir()]
    if not there:
        raise BadInput(f"has no {' or '.join(names)}", where=folder, step="see --dataset")
    classes = tuple(sorted(p.name for p in there[0].iterdir() if p.is_dir()))
    sources, labels = [], []
    for label, name in enumerate(classes):
        # Tiny-ImageNet keeps its pictures one folder deeper.
        found = sorted(p for p in (there[0] / name).rglob("*") if p.suffix.lower() in PICTURES)
        sources += found
        labels += [label] * len(found)
    return Images(sources, np.array(labels, np.int64), classes)


def _imagenet(folder: Path, split: str) -> Images:
    kaggle = folder / "ILSVRC" / "Data" / "CLS-LOC"
    base = kaggle if kaggle.is_dir() else folder
    answers = folder / "LOC_val_solution.csv"
    if split == "train" or not answers.is_file():
        return _folders(base, split)
    classes = tuple(sorted(p.name for p in (base / "train").iterdir() if p.is_dir()))
    code = {name: i for i, name in enumerate(classes)}
    with answers.open(newline="") as file:
        rows = [(r["ImageId"], r["PredictionString"].split()[0]) for r in csv.DictReader(file)]
    sources = [base / "val" / f"{name}.JPEG" for name, _ in rows]
    return Images(sources, np.array([code[c] for _, c in rows], np.int64), classes)


def _cifar100(folder: Path, split: str) -> Images:
    for base in (folder, folder / "cifar-100-binary"):
        if (base / f"{split}.bin").is_file():
            raw = np.fromfile(base / f"{split}.bin", np.uint8)
            if len(raw) % 3074:
                raise BadInput("is not CIFAR-100's binary version", where=base / f"{split}.bin")
            rows = raw.reshape(-1, 3074)
            pixels = rows[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
            names = base / "fine_label_names.txt"
            known = names.read_text().split() if names.is_file() else map(str, range(100))
            return Images(list(pixels), rows[:, 1].astype(np.int64), tuple(known))
    files = sorted(folder.rglob(f"{split}-*.parquet"))
    if files:
        return _parquet(files)
    if (folder / "cifar-100-python").is_dir() or (folder / "train").is_file():
        raise BadInput(
            "holds the pickled version",
            where=folder,
            step="get cifar-100-binary.tar.gz in its place",
        )
    return _folders(folder, split)


def _parquet(files: Sequence[Path]) -> Images:
    """Pictures as bytes in Parquet, with a column of labels: the form of dataset hubs."""
    import pyarrow.parquet as pq

    sources: list[bytes] = []
    labels: list[int] = []
    for file in files:
        table = pq.read_table(file)
        image = next((n for n in ("image", "img") if n in table.column_names), None)
        label = next((n for n in ("fine_label", "label") if n in table.column_names), None)
        if image is None or label is None:
            raise BadInput(f"has columns {', '.join(table.column_names)}", where=file)
        sources += [cell["bytes"] for cell in table[image].to_pylist()]
        labels += table[label].to_pylist()
    codes = np.array(labels, np.int64)
    return Images(sources, codes, tuple(map(str, range(int(codes.max()) + 1))))


def _numbered(path: Path) -> dict[int, str]:
    """Lines of a number and a word."""
    if not path.is_file():
        raise BadInput("is not there", where=path, step="name the folder CUB_200_2011")
    return {int(k): v for k, v in (line.split() for line in path.read_text().splitlines() if line)}


def _cub200(folder: Path, split: str) -> Images:
    base = folder / "CUB_200_2011" if (folder / "CUB_200_2011").is_dir() else folder
    names, codes = _numbered(base / "images.txt"), _numbered(base / "image_class_labels.txt")
    training = _numbered(base / "train_test_split.txt")
    kept = [i for i in names if (training[i] == "1") == (split == "train")]
    listing = base / "classes.txt"
    classes = tuple(_numbered(listing).values()) if listing.is_file() else ()
    labels = np.array([int(codes[i]) - 1 for i in kept], np.int64)
    return Images([base / "images" / names[i] for i in kept], labels, classes)


def _places365(folder: Path, split: str) -> Images:
    listing = folder / ("places365_train_standard.txt" if split == "train" else "places365_val.txt")
    if not listing.is_file():
        return _folders(folder, split)
    roots = (
        ("data_256", "data_large", "train") if split == "train" else ("val_256", "val_large", "val")
    )
    root = next((folder / r for r in roots if (folder / r).is_dir()), folder)
    rows = [line.rsplit(maxsplit=1) for line in listing.read_text().splitlines() if line]
    sources = [root / name.lstrip("/") for name, _ in rows]
    return Images(sources, np.array([int(code) for _, code in rows], np.int64), ())


def _flowers102(folder: Path, split: str) -> Images:
    from scipy.io import loadmat

    for name in ("imagelabels.mat", "setid.mat"):
        if not (folder / name).is_file():
            if (folder / "train").is_dir():
                return _folders(folder, split)
            raise BadInput(f"has no {name}", where=folder, step="get it from the dataset's page")
    labels = loadmat(folder / "imagelabels.mat")["labels"].ravel().astype(np.int64) - 1
    parts = loadmat(folder / "setid.mat")
    names = ("trnid", "valid") if split == "train" else ("tstid",)
    ids = np.concatenate([parts[name].ravel() for name in names]).astype(int)
    sources = [folder / "jpg" / f"image_{i:05d}.jpg" for i in ids]
    return Images(sources, labels[ids - 1], ())


DATASETS: dict[str, Callable[[Path, str], Images]] = {
    "folders": _folders,
    "imagenet": _imagenet,
    "cifar100": _cifar100,
    "cub200": _cub200,
    "places365": _places365,
    "flowers102": _flowers102,
}
