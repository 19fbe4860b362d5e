"""The commands and programs printed in README.md and docs/ run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# `make` installs what the test run has installed already.
PAGES = {
    page.relative_to(ROOT): [
        (kind, code) for kind, code in BLOCK.findall(page.read_text()) if "make " not in code
    ]
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}


@pytest.mark.parametrize("page", [page for page, blocks in PAGES.items() if blocks], ids=str)
def test_every_block_of_the_page_runs_in_order(page: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for kind, code in PAGES[page]:
        shell = ["bash", "-euo", "pipefail", "-c", code]
        command = [sys.executable, "-W", "error", "-c", code] if kind == "python" else shell
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout}\n{done.stderr}"


def test_the_guide_and_the_readme_have_blocks_to_run() -> None:
    assert len(PAGES[Path("README.md")]) >= 2
    assert len(PAGES[Path("docs/guide.md")]) >= 6
