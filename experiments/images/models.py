"""Embedding models by name, from whichever library has them.

    torchvision:resnet18            torchvision's weights; its classifier goes to FastFill
    timm:vit_small_patch14_dinov2   timm's
    open_clip:RN50/cc12m            architecture/weights
    transformers:facebook/dinov2-small, or transformers:FOLDER
    checkpoint:FILE                 a backbone that `python -m experiments train` wrote

`@random` after a name leaves its weights at their random start: for trying a pipeline out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

from crossfade import BadInput
from crossfade.demo.torchvision_import import import_torchvision
from crossfade.solvers.device import seeded
from experiments.images.preprocess import IMAGENET, Preprocessing
from experiments.images.resnet import ResNet34

INSTALL = {
    "torchvision": "pip install torchvision  # the build of your torch: pytorch.org",
    "timm": "pip install timm torchvision",
    "open_clip": "pip install open_clip_torch torchvision",
    "transformers": "pip install transformers",
}
NAMES = {
    "torchvision": "torchvision.models.list_models(torchvision.models) names them",
    "timm": "timm.list_models(pretrained=True) names them",
    "open_clip": "open_clip.list_pretrained() names them, as architecture/weights",
    "transformers": "name a model of the hub or a folder",
}


@dataclass(frozen=True, eq=False)
class Model:
    """What embeds a batch of preprocessed pictures, and its classifier where it has one."""

    name: str
    embed: Callable[[torch.Tensor], torch.Tensor]
    module: nn.Module
    preprocessing: Callable[[Image.Image], torch.Tensor]
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
    try:
        with seeded(seed):
            found = LIBRARIES[library](name, not start, size)
    except ImportError as error:
        if library not in INSTALL:
            raise
        cause, step = f"{library} cannot be used", INSTALL[library]
        raise BadInput(f"{cause} ({_short(error)})", where=spec, step=step) from error
    except (RuntimeError, ValueError, OSError) as error:
        if library not in NAMES:
            raise
        cause, step = f"{library} does not open it", NAMES[library]
        raise BadInput(f"{cause} ({_short(error)})", where=spec, step=step) from error
    found.module.eval().requires_grad_(False)
    return found


def stamp(spec: str) -> str:
    """What tells a retrained backbone from the one before it under the same name."""
    path = Path(spec.partition(":")[2].partition("@")[0])
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def _short(error: Exception) -> str:
    return textwrap.shorten(str(error), 160, placeholder=" …")


def _arrays(linear: Any) -> tuple[np.ndarray, np.ndarray] | None:
    if not isinstance(linear, nn.Linear):
        return None
    bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias
    return linear.weight.detach().numpy().copy(), bias.detach().numpy().copy()


def _torchvision(name: str, pretrained: bool, size: int | None) -> Model:
    known = import_torchvision().models
    # Those of detection, segmentation and video are in modules of their own.
    if name not in known.list_models(known):
        raise ValueError(f"there is no image classifier {name}")
    weights = known.get_model_weights(name).DEFAULT
    module = known.get_model(name, weights=weights if pretrained else None)
    # The last linear layer is the classifier, wherever the architecture keeps it.
    layers = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise ValueError("its classifier is not a linear layer")
    place, last = layers[-1]
    parent, _, child = place.rpartition(".")
    setattr(module.get_submodule(parent), child, nn.Identity())
    other = {} if size is None else {"resize_size": size, "crop_size": size}
    return Model(name, module, module, weights.transforms(**other), _arrays(last))


def _timm(name: str, pretrained: bool, size: int | None) -> Model:
    import_torchvision()
    import timm

    module = timm.create_model(name, pretrained=pretrained)
    other = {} if size is None else {"input_size": (3, size, size), "crop_pct": 1.0}
    seen = timm.data.resolve_model_data_config(module) | other
    # Transformers have a position for each patch of the input.
    if size is not None and hasattr(module, "set_input_size"):
        module.set_input_size(img_size=size)
    classifier = _arrays(module.get_classifier())
    module.reset_classifier(0)
    return Model(name, module, module, timm.data.create_transform(**seen), classifier)


def _open_clip(name: str, pretrained: bool, size: int | None) -> Model:
    import_torchvision()
    import open_clip

    architecture, _, tag = name.partition("/")
    if pretrained and not tag:
        # open_clip would leave such a model at its random start.
        raise ValueError("it names no weights")
    module, _, seen = open_clip.create_model_and_transforms(
        architecture,
        pretrained=tag if pretrained else None,
        pretrained_text=False,
        force_image_size=size,
    )
    return Model(name, module.encode_image, module, seen)


def _transformers(name: str, pretrained: bool, size: int | None) -> Model:
    # Used where it is installed, and not needed where it is not.
    with contextlib.suppress(ImportError):
        import_torchvision()
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

    return Model(name, embed, module, _sized(_processor(name), size))


def _sized(seen: Preprocessing, size: int | None) -> Preprocessing:
    return seen if size is None else replace(seen, resize=size, crop=size)


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

    asked = told.get("size")
    resize = side(asked, 224)
    crop = side(told.get("crop_size"), resize) if told.get("do_center_crop", True) else resize
    code = told.get("resample")
    names = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
    return Preprocessing(
        resize,
        crop,
        tuple(told.get("image_mean") or IMAGENET[0]),
        tuple(told.get("image_std") or IMAGENET[1]),
        names.get(code if code is not None else 2, "bilinear"),
        squash=isinstance(asked, dict) and "height" in asked,
    )


def _checkpoint(name: str, pretrained: bool, size: int | None) -> Model:
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
    preprocessing = _sized(Preprocessing(about["resize"], about["crop"]), size)
    return Model(path.stem, module, module, preprocessing, _arrays(module.classifier))


LIBRARIES: dict[str, Callable[[str, bool, int | None], Model]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "open_clip": _open_clip,
    "transformers": _transformers,
    "checkpoint": _checkpoint,
}
