"""The notebook of docs/ runs from top to bottom, and shows what it says it shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
# In a process of its own: a kernel warns of things that are not ours.
RUN = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, resources={"metadata": {"path": sys.argv[3]}}).execute()
nbformat.write(notebook, sys.argv[2])
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Its code cells, as they are after a run in an empty folder."""
    folder = tmp_path_factory.mktemp("notebook")
    target = folder / "run.ipynb"
    (folder / "empty").mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", RUN, NOTEBOOK, target, folder / "empty"],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert list((folder / "empty").iterdir()) == []
    found = json.loads(target.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def shown(cell) -> str:
    """What a cell prints and gives, as plain text."""
    texts = []
    for output in cell["outputs"]:
        text = output["text"] if "text" in output else output["data"]["text/plain"]
        texts.append("".join(text))
    return "\n".join(texts)


def test_every_cell_runs_and_shows_something(cells):
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        kinds = {output["output_type"] for output in cell["outputs"]}
        assert kinds and kinds <= {"stream", "execute_result"}, cell["outputs"]
        assert not any(output.get("name") == "stderr" for output in cell["outputs"])


def test_upgrade_evaluation_and_plan_are_shown(cells):
    fit, evaluation, means, plan = (shown(cells[n]) for n in (1, 2, 3, 4))
    assert fit.startswith("Upgrade(")
    assert "B(new)/old" in evaluation
    assert "'new/new'" in means
    assert plan.startswith("Plan: ")


def test_it_is_kept_without_outputs():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
