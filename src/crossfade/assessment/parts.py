"""A folder whose parts are made one after another, each once: what it was made of is written down.

A part is written whole by rename, then its inputs are. A run that was cut short finds the parts
that it finished and goes on behind them; a part whose inputs are others now is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crossfade.errors import BadInput
from crossfade.files.atomic import check_parent, replacing
from crossfade.files.guards import cannot_write

RECORD = "quickstart.json"
PAIRS, UPGRADE, EVALUATION, PLAN, REPORT, ANSWER = (
    "pairs.npz",
    "upgrade",
    "evaluation.json",
    "plan",
    "report.html",
    "answer.json",
)
Inputs = dict[str, Any]


class Parts:
    """The parts in `folder`, which is made if it is not there.

    `may_hold` names what else may lie in it before the first part does.
    """

    def __init__(self, folder: Path, *, may_hold: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.notes: list[str] = []
        """What was kept of an earlier run, and what was made again and why."""
        self._known = self._read(may_hold)

    def path(self, name: str) -> Path:
        return self.folder / name

    def inputs(self, name: str) -> Inputs | None:
        """What a part that is there was made of."""
        known = self._known.get(name)
        return known["inputs"] if known is not None and self.path(name).exists() else None

    def make(self, name: str, inputs: Inputs, made: Callable[[Path], Inputs]) -> Inputs:
        """What `made` found when it wrote the part, now or in an earlier run on equal inputs."""
        inputs = json.loads(json.dumps(inputs))
        before = self.inputs(name)
        if before == inputs:
            self.notes.append(f"{self.path(name)}: kept from an earlier run")
            return dict(self._known[name]["found"])
        if before is not None:
            changed = ", ".join(differing(before, inputs))
            self.notes.append(f"{self.path(name)}: made again, for other {changed}")
        found = made(self.path(name))
        self._known[name] = {"inputs": inputs, "found": found}
        write_record(self.path(RECORD), {"format": 1, "parts": self._known})
        return found

    def _read(self, may_hold: tuple[str, ...]) -> dict[str, Any]:
        folder, record = self.folder, self.path(RECORD)
        check_parent(folder)
        try:
            folder.mkdir(exist_ok=True)
            held = {path.name for path in folder.iterdir()}
        except OSError as error:
            raise cannot_write(folder, error) from error
        if RECORD not in held:
            # A run that was killed in its first part leaves a hidden temporary file at most.
            strange = sorted(name for name in held - {*may_hold} if not name.startswith("."))
            if strange and strange != [PAIRS]:
                raise BadInput(
                    f"holds {strange[0]!r} and is no folder of a quickstart",
                    where=folder,
                    step="name another folder",
                )
            return {}
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
            return {name: dict(part) for name, part in found["parts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput(
                f"cannot be read ({error})", where=record, step="remove it: parts are made again"
            ) from None


def differing(before: Inputs, now: Inputs) -> list[str]:
    """The names of the inputs that are not what they were.

    >>> differing({"rows": 5, "seed": 0}, {"rows": 6, "seed": 0})
    ['rows']
    """
    return [name for name in (before | now) if before.get(name) != now.get(name)]


def write_record(path: Path, record: Any) -> None:
    """JSON, whole or not at all."""
    with replacing(path, overwrite=True) as temporary:
        text = json.dumps(record, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8", errors="backslashreplace")


def digest(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
