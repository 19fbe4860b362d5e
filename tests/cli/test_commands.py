"""The command as a whole: its version, its help, and what it says to unknown words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_the_installed_command_says_its_version():
    from crossfade import __version__

    program = Path(sys.executable).with_name("crossfade")
    ran = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, f"crossfade {__version__}\n")


@pytest.mark.parametrize("name", ["demo", "fit", "report", "apply", "export", "inspect"])
def test_every_command_has_help(crossfade, name):
    ran = crossfade(name, "--help")
    assert ran.code == 0
    assert f"crossfade {name}" in ran.out
    assert name in crossfade("--help").out


def test_an_unknown_command_is_bad_usage(crossfade):
    assert crossfade("fade").code == 2
