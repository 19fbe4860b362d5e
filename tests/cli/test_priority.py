"""The commands that take long run at a low priority, unless told otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

SAID = """
import os
from crossfade.cli.migrate.priority import give_way
give_way({full_speed})
print(os.nice(0))
"""


@pytest.mark.parametrize(("full_speed", "lower"), [(False, True), (True, False)])
def test_gives_way_once(full_speed, lower):
    code = SAID.format(full_speed=full_speed)
    before = int(subprocess.check_output([sys.executable, "-c", "import os; print(os.nice(0))"]))
    after = int(subprocess.check_output([sys.executable, "-c", code]))
    assert after == (max(before, 10) if lower else before)
