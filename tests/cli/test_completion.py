"""A shell completes commands and options, once `crossfade --install-completion` was run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = "import sys; sys.argv = ['crossfade']; from crossfade.cli import main; main()"


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("crossfade mi", ["migrate"]),
        ("crossfade migrate st", ["start", "status"]),
        ("crossfade fit --regularizer-", ["--regularizer-weight"]),
        ("crossfade fit --solver p", ["paper"]),
    ],
)
def test_what_is_typed_is_completed(typed, completed):
    asked = {
        "_CROSSFADE_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split() == completed
