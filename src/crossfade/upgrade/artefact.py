"""An upgrade on disk: a folder of `upgrade.safetensors`, `config.json` and a card, `README.md`.

The folder is written under a temporary name and renamed, so it is there whole or not at all. The
content hash in `config.json` covers the tensors and every other field of the config: a changed byte
in either file is found on load. The card is for people and may be edited.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from crossfade.errors import BadInput, BadUpgrade
from crossfade.maps import Map
from crossfade.remote import is_remote, to_path
from crossfade.spaces import Normalization

TENSORS, CONFIG, CARD = "upgrade.safetensors", "config.json", "README.md"
LARGEST_CONFIG = 64 << 20


class SideConfig(BaseModel):
    """One model's side of the upgrade."""

    model_config = ConfigDict(extra="forbid")
    model: str
    dim: int
    normalization: Normalization


class Config(BaseModel):
    """`config.json`."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)
    format: Literal[1] = 1
    crossfade_version: str
    old: SideConfig
    new: SideConfig
    shared_dim: int
    backward: Literal["orthogonal", "near-orthogonal", "affine", "mlp"]
    forward: Literal["affine", "mlp"]
    lambda_asked: float | None
    lambda_reached: float
    settings: dict[str, Any]
    fit: dict[str, Any]
    validation: dict[str, dict[str, float]]
    closed_form: dict[str, dict[str, float]]
    notes: list[str]
    history: list[dict[str, Any]]
    content_hash: str = ""

    def text(self) -> str:
        """The one way this config is written; any other spelling of it was edited."""
        return json.dumps(self.model_dump(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


@dataclass(frozen=True, eq=False)
class Parts:
    """An upgrade in memory: maps, means, old's axes where rotated, rows seen, the config."""

    backward: Map
    forward: Map
    means: tuple[NDArray[np.float32], NDArray[np.float32]]
    axes: NDArray[np.float32] | None
    sketch: NDArray[np.uint64]
    config: Config


def content_hash(config: Config, tensors: bytes) -> str:
    """SHA-256 over the config without its hash, and the tensors file."""
    digest = hashlib.sha256(config.model_copy(update={"content_hash": ""}).text().encode())
    digest.update(tensors)
    return digest.hexdigest()


def pack(config: Config, tensors: dict[str, NDArray[Any]]) -> tuple[Config, bytes]:
    """The config with its content hash, and the bytes of the tensors file."""
    data = save_tensors({k: np.ascontiguousarray(v) for k, v in sorted(tensors.items())})
    return config.model_copy(update={"content_hash": content_hash(config, data)}), data


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that could not be written, before the work that would fill it."""
    folder = to_path(folder)
    if folder.exists() and not overwrite:
        raise BadInput("already exists", where=folder, step="name another folder, or --overwrite")
    if folder.exists() and not (folder / CONFIG).is_file():
        raise BadInput("is there and is not an upgrade", where=folder, step="name another folder")
    if is_remote(folder):
        return
    if not folder.parent.is_dir():
        raise BadInput("is not a folder", where=folder.parent, step="make it, or name another")
    if not os.access(folder.parent, os.W_OK | os.X_OK):
        raise BadInput("is not writable", where=folder.parent, step="name another folder")


def write(folder: Path, config: Config, tensors: bytes, card: str, *, overwrite: bool) -> None:
    """Write the folder under a temporary name, then rename it."""
    # Imported here for the sake of those who only load: it brings pyarrow along.
    from crossfade.files import replacing

    check_target(folder, overwrite=overwrite)
    with replacing(folder, overwrite=overwrite) as temporary:
        temporary.mkdir()
        (temporary / TENSORS).write_bytes(tensors)
        (temporary / CONFIG).write_bytes(config.text().encode("utf-8"))
        (temporary / CARD).write_text(card, encoding="utf-8")


def read(folder: Path) -> tuple[Config, dict[str, NDArray[Any]]]:
    """The config and tensors of an upgrade folder, after checking the content hash."""
    if not folder.is_dir():
        raise BadUpgrade(
            "is not an upgrade folder", where=folder, step="name the folder `crossfade fit` wrote"
        )
    try:
        if (folder / CONFIG).stat().st_size > LARGEST_CONFIG:
            raise BadUpgrade("is too large to be a config", where=folder / CONFIG)
        # Not read_text, which takes a changed line end for the one that was there.
        text = (folder / CONFIG).read_bytes().decode("utf-8")
        data = (folder / TENSORS).read_bytes()
    except FileNotFoundError as error:
        raise BadUpgrade(
            "is missing", where=error.filename, step="copy the whole upgrade folder again"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadUpgrade(f"cannot be read ({error})", where=folder) from None
    changed = BadUpgrade(
        "does not match its content hash: a byte was changed or lost",
        where=folder,
        step="copy the upgrade again or refit it",
    )
    try:
        config = Config.model_validate_json(text)
    except ValidationError as error:
        if '"format": 1' in text:
            raise changed from None
        first = error.errors()[0]
        raise BadUpgrade(
            f"is not a config this version reads ({first['msg']} at {first['loc']})",
            where=folder / CONFIG,
            step="refit, or install the version of crossfade that wrote it",
        ) from None
    if config.text() != text or content_hash(config, data) != config.content_hash:
        raise changed
    try:
        return config, load_tensors(data)
    except (SafetensorError, ValueError) as error:
        raise BadUpgrade(f"is not a tensors file ({error})", where=folder / TENSORS) from None
