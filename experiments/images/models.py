"""Embedding models by name, from whichever library has them.

    torchvision:resnet18            torchvision's weights; its classifier goes to FastFill
    timm:vit_small_patch14_dinov2   timm's
    open_clip:RN50/cc12m            architecture/weights
    transformers:facebook/dinov2-small, or transformers:FOLDER
    checkpoint:FILE                 a backbone that `python -m experiments train` wrote

`@random` after a name leaves its weights at their random start: for trying a pipeline out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from crossfade import BadInput
from experiments.images.preprocess import IMAGENET, Preprocessing
from experiments.images.resnet import ResNet34

INSTALL = {
    "torchvision": "pip install torchvision  # the build of your torch: pytorch.org",
    "timm": "pip install timm torchvision",
    "open_clip": "pip install open_clip_torch torchvision",
    "transformers": "pip install transformers",
}


@dataclass(frozen=True, eq=False)
class Model:
    """What embeds a batch of preprocessed pictures, and its classifier where it has one."""

    name: str
    embed: Callable[[torch.Tensor], torch.Tensor]
    module: nn.Module
    preprocessing: Preprocessing
    classifier: tuple[np.ndarray, np.ndarray] | None = None


def load(spec: str, *, size: int | None = None, seed: int = 0) -> Model:
    """The model of that name; `size` is another side of the input than its own."""
    library, _, name = spec.partition(":")
    name, _, start = name.partition("@")
    if library not in LIBRARIES or not name or start not in ("", "random"):
        raise BadInput(
            f"there is no model {spec!r}",
            step=f"name one of {', '.join(f'{k}:…' for k in LIBRARIES)}",
        )
    if library in INSTALL and find_spec(library) is None:
        raise BadInput(f"{library} is not installed", where=spec, step=INSTALL[library])
    torch.manual_seed(seed)
    try:
        found = LIBRARIES[library](name, not start)
    except (ImportError, RuntimeError) as error:
        if library not in INSTALL:
            raise
        raise BadInput(
            f"{library} cannot be used ({str(error).splitlines()[0]})",
            where=spec,
            step=INSTALL[library],
        ) from error
    if size is not None:
        smaller = Preprocessing(
            size,
            size,
            found.preprocessing.mean,
            found.preprocessing.std,
            found.preprocessing.filter,
        )
        found = Model(found.name, found.embed, found.module, smaller, found.classifier)
    found.module.eval().requires_grad_(False)
    return found


def stamp(spec: str) -> str:
    """What tells a retrained backbone from the one before it under the same name."""
    path = Path(spec.partition(":")[2].partition("@")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _arrays(linear: Any) -> tuple[np.ndarray, np.ndarray] | None:
    if not isinstance(linear, nn.Linear):
        return None
    bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias
    return linear.weight.detach().numpy().copy(), bias.detach().numpy().copy()


def _torchvision(name: str, pretrained: bool) -> Model:
    import torchvision

    weights = torchvision.models.get_model_weights(name).DEFAULT
    module = torchvision.models.get_model(name, weights=weights if pretrained else None)
    seen = weights.transforms()
    # The last linear layer is the classifier, wherever the architecture keeps it.
    place, last = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)][-1]
    parent, _, child = place.rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    preprocessing = Preprocessing(
        seen.resize_size[0],
        seen.crop_size[0],
        tuple(seen.mean),
        tuple(seen.std),
        seen.interpolation.value,
    )
    return Model(name, module, module, preprocessing, _arrays(last))


def _timm(name: str, pretrained: bool) -> Model:
    import timm

    module = timm.create_model(name, pretrained=pretrained)
    seen = timm.data.resolve_model_data_config(module)
    classifier = _arrays(module.get_classifier())
    module.reset_classifier(0)
    side = seen["input_size"][-1]
    preprocessing = Preprocessing(
        round(side / seen["crop_pct"]),
        side,
        tuple(seen["mean"]),
        tuple(seen["std"]),
        seen["interpolation"],
    )
    return Model(name, module, module, preprocessing, classifier)


def _open_clip(name: str, pretrained: bool) -> Model:
    import open_clip

    architecture, _, tag = name.partition("/")
    module = open_clip.create_model(architecture, pretrained=tag if pretrained else None)
    visual = module.visual
    side = visual.image_size[0] if isinstance(visual.image_size, tuple) else visual.image_size
    mean = getattr(visual, "image_mean", None) or open_clip.OPENAI_DATASET_MEAN
    std = getattr(visual, "image_std", None) or open_clip.OPENAI_DATASET_STD
    preprocessing = Preprocessing(side, side, tuple(mean), tuple(std), "bicubic")
    return Model(name, module.encode_image, module, preprocessing)


def _transformers(name: str, pretrained: bool) -> Model:
    from transformers import AutoConfig, AutoModel

    if pretrained:
        module = AutoModel.from_pretrained(name)
    else:
        module = AutoModel.from_config(AutoConfig.from_pretrained(name))

    def embed(x: torch.Tensor) -> torch.Tensor:
        if hasattr(module, "get_image_features"):
            found = module.get_image_features(pixel_values=x)
        else:
            found = module(pixel_values=x)
        if isinstance(found, torch.Tensor):
            return found
        pooled = getattr(found, "pooler_output", None)
        # A convolutional model pools to (rows, channels, 1, 1).
        return found.last_hidden_state[:, 0] if pooled is None else pooled.flatten(1)

    return Model(name, embed, module, _processor(name))


def _processor(name: str) -> Preprocessing:
    """From the model's preprocessor_config.json, whatever class that names."""
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        told: dict[str, Any] = ImageProcessingMixin.get_image_processor_dict(name)[0]
    except OSError:
        return Preprocessing()

    def side(value: Any, default: int) -> int:
        if isinstance(value, dict):
            value = value.get("shortest_edge", value.get("height"))
        return int(value or default)

    resize = side(told.get("size"), 224)
    crop = side(told.get("crop_size"), resize) if told.get("do_center_crop", True) else resize
    code = told.get("resample")
    names = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
    return Preprocessing(
        resize,
        crop,
        tuple(told.get("image_mean") or IMAGENET[0]),
        tuple(told.get("image_std") or IMAGENET[1]),
        names.get(code if code is not None else 2, "bilinear"),
    )


def _checkpoint(name: str, pretrained: bool) -> Model:
    from safetensors import safe_open
    from safetensors.torch import load_file

    path = Path(name)
    if not path.is_file():
        raise BadInput("is not there", where=path, step="python -m experiments train writes one")
    with safe_open(path, framework="numpy") as file:
        about = json.loads((file.metadata() or {}).get("backbone", "{}"))
    if not about:
        raise BadInput(
            "is not a backbone", where=path, step="python -m experiments train writes one"
        )
    module = ResNet34(about["classes"], about["dim"])
    if pretrained:
        module.load_state_dict(load_file(path))
    preprocessing = Preprocessing(about["resize"], about["crop"])
    return Model(path.stem, module, module, preprocessing, _arrays(module.classifier))


LIBRARIES: dict[str, Callable[[str, bool], Model]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "open_clip": _open_clip,
    "transformers": _transformers,
    "checkpoint": _checkpoint,
}
