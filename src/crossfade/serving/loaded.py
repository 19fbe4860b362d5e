"""The upgrade and the plan that a gateway works with, and how a change of their folders is seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import AskedFrom
from crossfade.backfill.plan import PLAN, Plan
from crossfade.journal.journal import Journal
from crossfade.journal.space import SharedColumn, Space, space_of
from crossfade.search import query_vector
from crossfade.serving.refusal import Refusal
from crossfade.upgrade import Upgrade
from crossfade.upgrade.artefact import CONFIG, TENSORS

Float = NDArray[np.float32]
Print = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True, eq=False)
class Loaded:
    """What one request works with from its first byte to its last, whatever is loaded meanwhile."""

    upgrade: Upgrade
    asked: AskedFrom
    """From which share on the plan says to ask in which way; empty without one."""
    _columns: dict[Space, SharedColumn] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path, plan: Path | None) -> Loaded:
        upgrade = Upgrade.load(folder)
        asked: AskedFrom = ()
        if plan is not None:
            record = Plan.load(plan, upgrade).record
            asked = record.asked or ((0.0, record.asking),)
        loaded = cls(upgrade, asked)
        # Taken now, so that no request waits for it.
        _ = loaded.hash
        loaded.column(space_of(upgrade))
        return loaded

    @cached_property
    def hash(self) -> str:
        return self.upgrade.hash_

    def column(self, space: Space) -> SharedColumn:
        """How the shared column of a store is asked that is written in this space."""
        if space not in self._columns:
            self._columns[space] = SharedColumn.of(self.upgrade, space)
        return self._columns[space]

    def query_for_old(self, new: Float) -> Float:
        """New vectors as queries on an untouched index of old ones."""
        return self.upgrade.query_for_old(new)

    def lifted(self, old: Float) -> Float:
        """Old vectors, comparable with what a migrated column holds: with plain new vectors
        wherever B can be undone, else with B(new)."""
        return self.column(space_of(self.upgrade)).lift(old)

    def query_for_store(self, new: Float, journal: Journal | None) -> Float:
        """New vectors as queries on the application's own column, whatever it holds by now."""
        if journal is None:
            return self.query_for_old(new)
        return query_vector(journal, self.upgrade, new)

    def check(self, journal: Journal | None) -> None:
        """Refuse a store that another upgrade is carried out on."""
        if untouched(journal) or journal is None or journal.upgrade == self.hash:
            return
        raise Refusal(
            409,
            f"the store is migrated with upgrade {journal.upgrade[:12]}, and the gateway has "
            f"{self.hash[:12]} → serve the upgrade named by: crossfade migrate status",
            code="other_upgrade",
        )


def untouched(journal: Journal | None) -> bool:
    """Whether a store holds old vectors and nothing of ours."""
    return journal is None or journal.taken_back


def fingerprint(folder: Path, plan: Path | None) -> Print:
    """What changes when a folder is written anew, by rename or in place."""
    files = [folder / CONFIG, folder / TENSORS]
    if plan is not None:
        files.append(plan / PLAN)
    return tuple(_mark(file) for file in files)


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
