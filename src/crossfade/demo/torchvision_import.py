"""Import torchvision, also where its compiled operators cannot be loaded.

The wheel of package indexes is compiled for a torch with CUDA. Beside a CPU build of torch that
part does not load. torchvision goes on without it, but registers shape functions for two of its
operators all the same, and the import ends in an error. Models and transforms are Python and call
neither, so that it is enough to declare the two: boxes of a detector would fail as before.

timm, open_clip and transformers import torchvision themselves: whoever imports one of them calls
this first. Where torchvision is whole, nothing is declared.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import torch

MISSING = "operator torchvision::nms does not exist"
OPERATORS = ("nms", "qnms")
# A declaration lives as long as the object that made it.
_declared: list[torch.library.Library] = []


def import_torchvision() -> ModuleType:
    """The package; ImportError where it is not there or cannot be used."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if MISSING not in str(error):
            raise ImportError(str(error)) from error
    # A second import would otherwise find the modules that the first one finished.
    for name in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for operator in OPERATORS:
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _declared.append(library)
    return importlib.import_module("torchvision")
