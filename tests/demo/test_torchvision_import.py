"""torchvision with its compiled operators, without them, and broken in another way."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
from PIL import Image

from crossfade.demo.torchvision_import import import_torchvision

# What an installed torchvision may be like, by what its `__init__.py` does at import.
LIKE = {
    "whole": "models = 'models'",
    "other": "raise RuntimeError('operator torchvision::roi_align does not exist')",
    "half": (
        "import torch, torchvision.extension\n"
        "for name in ('nms', 'qnms'):\n"
        "    torch.library.register_fake(f'torchvision::{name}')(lambda d, s, i: d)\n"
        "models = 'models'"
    ),
}
SCRIPT = """
import json, sys
import torch
from experiments.images import models
from crossfade.demo.torchvision_import import import_torchvision

found = {}
for kind in ("whole", "other", "half"):
    sys.path.insert(0, f"{sys.argv[1]}/{kind}")
    try:
        told = import_torchvision().models
        assert import_torchvision() is sys.modules["torchvision"]
    except ImportError as error:
        told = str(error)
        try:
            models.load("torchvision:resnet18")
        except models.BadInput as error:
            told = str(error)
    found[kind] = [told, hasattr(torch.ops.torchvision, "nms")]
    for name in [m for m in sys.modules if m.startswith("torchvision")]:
        del sys.modules[name]
print(json.dumps(found))
"""


def run(script, *arguments):
    command = [sys.executable, "-W", "error", "-c", script, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_operators_are_declared_only_where_they_are_what_is_missing(tmp_path):
    for kind, text in LIKE.items():
        package = tmp_path / kind / "torchvision"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(text + "\n")
        (package / "extension.py").touch()
    found = json.loads(run(SCRIPT, tmp_path))
    assert found["whole"] == ["models", False]
    told, declared = found["other"]
    assert "torchvision:resnet18: torchvision cannot be used (operator torchvision::roi" in told
    assert "→ pip install torchvision" in told
    assert not declared
    assert found["half"] == ["models", True]


def test_what_imports_torchvision_itself_can_be_imported_after_it():
    script = (
        "from crossfade.demo.torchvision_import import import_torchvision\n"
        "import_torchvision()\n"
        "import open_clip, timm\n"
        "from transformers import AutoModel, ViTModel\n"
        "print(timm.is_model('resnet18'), 'RN50' in open_clip.list_models())\n"
    )
    assert run(script) == "True True\n"


def test_the_installed_one_has_models_and_transforms():
    found = import_torchvision()
    assert import_torchvision() is found is sys.modules["torchvision"]
    assert "resnet18" in found.models.list_models()
    image = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(4, 4, 3))
    middle = found.transforms.CenterCrop(2)(image)
    assert np.array_equal(np.asarray(middle), np.asarray(image)[1:3, 1:3])
