"""The new model with B behind it, as a folder that sentence-transformers loads by itself.

The model's own files are copied as they are, and B is added as standard modules: `Dense` with no
activation, `Normalize` before it where the upgrade reads unit vectors. Servers that know these
modules (text-embeddings-inference, vLLM) serve the folder like any other model. They put pooled
vectors through `Dense` and normalize at the end, whatever stands in between: the direction is the
same for an orthogonal B, and not for one with a bias.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import safetensors.numpy

from crossfade.errors import BadInput, MissingExtra
from crossfade.files import replacing
from crossfade.files.guards import reading
from crossfade.upgrade import Upgrade
from crossfade.upgrade.steps import Normalize, Product, QuerySpace, Step, query_steps

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

MODULES = "modules.json"
TOLERANCE = 1e-4
# Of any language a model may know; what they say does not matter.
PROBES = ("a red bicycle", "How do I reset my password?", "Der Zug fährt um acht.", "42")
# A graph of the bare model beside the modules would be served in their place.
_LEFT_OUT = ("onnx", "openvino", "coreml", "*.onnx", "*.h5", "*.ot", "*.msgpack", ".git", ".cache")
_CANNOT_LOAD = (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError, ImportError)
_LARGEST_MODULES = 1 << 20

Report = Callable[[int, int], None]


def export_sentence_transformers(
    upgrade: Upgrade,
    model: str | Path,
    folder: str | Path,
    *,
    space: QuerySpace = "old",
    download: bool = False,
    overwrite: bool = False,
    progress: Report | None = None,
) -> float:
    """Write `model` with B behind it; returns the largest difference from the upgrade itself.

    `encode` then gives queries for the untouched index of old vectors (`Upgrade.query_for_old`), or
    with `space="shared"` vectors in the shared space. `model` is a folder, or the name of a model
    that is in the local cache; only with `download` is the hub asked. What was written is loaded
    and compared with the upgrade on a few texts before it is put in place. `progress` is called
    with bytes copied and bytes in all.
    """
    if find_spec("sentence_transformers") is None:
        raise MissingExtra(
            "sentence-transformers",
            extra="sentence-transformers",
            need="exporting a sentence-transformers model",
        )
    steps = query_steps(upgrade, space)
    source = _find(model, download)
    modules = _read_modules(source)
    if Path(folder).resolve().is_relative_to(source.resolve()):
        raise BadInput("lies within the model's own folder", where=folder, step="name another")
    with replacing(Path(folder), overwrite=overwrite) as temporary:
        _copy(source, temporary, progress)
        added = _add(temporary, modules, steps)
        _write_card(temporary, upgrade, model, space)
        return _compare(temporary, model, upgrade, space, added)


def is_served_alike(upgrade: Upgrade) -> bool:
    """Whether servers that leave out `Normalize` before `Dense` give vectors of the same direction.

    A bias counts for more or less, depending on the length of what it is added to.
    """
    steps = query_steps(upgrade)
    biased = any(isinstance(step, Product) and step.bias is not None for step in steps)
    return not (biased and isinstance(steps[0], Normalize))


def _find(model: str | Path, download: bool) -> Path:
    path = Path(model)
    with reading(path):
        if path.is_dir():
            return path
        if path.exists():
            raise BadInput("is a file", where=path, step="name the folder of a model")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(str(model), local_files_only=not download))
    except HFValidationError:
        raise BadInput(
            "is no folder, and no model can have that name", where=model, step="check it"
        ) from None
    except LocalEntryNotFoundError:
        raise BadInput(
            "is no folder, and no model of that name is in the local cache",
            where=model,
            step="check the connection" if download else "add --download to fetch it from the hub",
        ) from None
    except HfHubHTTPError as error:
        raise BadInput(
            f"cannot be downloaded ({_first_line(error)})", where=model, step="check its name"
        ) from None


def _read_modules(source: Path) -> list[dict[str, Any]]:
    path = source / MODULES
    if not path.is_file():
        raise BadInput(
            f"has no {MODULES}: it is no sentence-transformers model",
            where=source,
            step="load it with SentenceTransformer and save that, then name the folder",
        )
    with reading(path):
        if path.stat().st_size > _LARGEST_MODULES:
            raise BadInput("is too large to be a list of modules", where=path, step="check it")
        data = path.read_bytes()
    try:
        found = json.loads(data)
    except ValueError as error:
        raise BadInput(f"is no JSON ({error})", where=path, step="copy the model again") from None
    if not (
        isinstance(found, list)
        and found
        and all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in found)
    ):
        raise BadInput("is no list of modules", where=path, step="copy the model again")
    return cast(list[dict[str, Any]], found)


def _copy(source: Path, target: Path, progress: Report | None) -> None:
    """The model's own files; of weights that are there twice, those that hold no code."""
    by_name = shutil.ignore_patterns(*_LEFT_OUT)

    def ignore(folder: str, names: list[str]) -> set[str]:
        twice = any(name.endswith(".safetensors") for name in names)
        pickled = {name for name in names if twice and name.endswith(".bin")}
        return by_name(folder, names) | pickled

    with reading(source):
        total = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
        done = 0

        def copy(a: str, b: str) -> None:
            nonlocal done
            shutil.copyfile(a, b)
            done += Path(b).stat().st_size
            if progress is not None:
                progress(done, total)

        try:
            shutil.copytree(source, target, ignore=ignore, copy_function=copy)
        except shutil.Error as error:
            first = error.args[0][0][2] if error.args and error.args[0] else error
            raise BadInput(
                f"cannot be copied ({first})", where=source, step="check its files"
            ) from None


def _add(folder: Path, modules: list[dict[str, Any]], steps: tuple[Step, ...]) -> int:
    """Append the steps as modules; gives how many there are now beyond the model's own."""
    last = modules[-1]["type"].rsplit(".", 1)[-1]
    if isinstance(steps[0], Normalize) and last == "Normalize":
        steps = steps[1:]
    listed = list(modules)
    for number, step in enumerate(steps, len(modules)):
        kind = type(step).__name__ if isinstance(step, Normalize) else "Dense"
        name = f"{number}_{kind}"
        if isinstance(step, Product):
            _write_dense(folder / name, step)
        listed.append(
            {
                "idx": number,
                "name": str(number),
                "path": name,
                "type": f"sentence_transformers.models.{kind}",
            }
        )
    (folder / MODULES).write_text(json.dumps(listed, indent=2), encoding="utf-8")
    return len(steps)


def _write_dense(folder: Path, step: Product) -> None:
    if folder.exists():
        raise BadInput(f"has a {folder.name} that is no module of it", step="remove it")
    folder.mkdir()
    out, given = step.weight.shape
    config = {
        "in_features": given,
        "out_features": out,
        "bias": step.bias is not None,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    tensors = {"linear.weight": np.ascontiguousarray(step.weight, np.float32)}
    if step.bias is not None:
        tensors["linear.bias"] = np.ascontiguousarray(step.bias, np.float32)
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _write_card(folder: Path, upgrade: Upgrade, model: str | Path, space: QuerySpace) -> None:
    card = folder / "README.md"
    if card.exists():
        card.rename(folder / "README.model.md")
    old = upgrade.config_.old.model or "the old model"
    what = (
        f"queries for an index of {old}, {upgrade.old_dim_} numbers each"
        if space == "old"
        else f"vectors in the space that it shares with {old}, {upgrade.shared_dim_} numbers each"
    )
    card.write_text(
        f"# {Path(model).name} with a backward map\n\n"
        f"`encode` gives {what}.\n"
        f"Made by `crossfade export` from upgrade {upgrade.hash_[:12]}. The model's own card is in "
        "README.model.md where it has one, and its licence holds for this folder too.\n",
        encoding="utf-8",
    )


def _compare(
    folder: Path, model: str | Path, upgrade: Upgrade, space: QuerySpace, added: int
) -> float:
    """The largest difference between what the folder encodes and what the upgrade computes."""
    _hide_broken_torchvision()
    try:
        from sentence_transformers import SentenceTransformer

        whole = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
        own = [module for _, module in whole.named_children()]
        new = _encode(SentenceTransformer(modules=own[: len(own) - added], device="cpu"))
        if new.shape[1] != upgrade.new_dim_:
            raise BadInput(
                f"gives {new.shape[1]} numbers, and the upgrade reads new vectors of "
                f"{upgrade.new_dim_}",
                where=model,
                step="name the new model that the upgrade was fitted on",
            )
        found = _encode(whole)
    except _CANNOT_LOAD as error:
        raise BadInput(
            f"cannot be loaded by sentence-transformers ({_first_line(error)})",
            where=model,
            step="see whether SentenceTransformer loads it; models that need code of their own "
            "cannot be exported",
        ) from error
    expected = upgrade.query_for_old(new) if space == "old" else upgrade.backward(new)
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise BadInput(
            f"with B differs from the upgrade by {difference:.1e}, more than {TOLERANCE:.0e}",
            where=model,
        )
    return difference


def _encode(model: SentenceTransformer) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(model.encode(list(PROBES), show_progress_bar=False), np.float32)


def _hide_broken_torchvision() -> None:
    """A torchvision that cannot be loaded counts as one that is not installed.

    transformers imports it wherever it is there, though texts need nothing of it; one that was
    built for another torch would end the import.
    """
    if find_spec("torchvision") is None:
        return
    try:
        import torchvision  # type: ignore[import-untyped]  # noqa: F401
    except (ImportError, RuntimeError, OSError):
        for name in [one for one in sys.modules if one.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules["torchvision"] = cast(Any, None)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
