"""How the shared vectors take the application's name: two renames, announced before they are done.

The collection beside first gets the documents, addresses and metadata of every row, then the two
exchange names. Chroma renames one collection at a time, so for a moment nobody has the name; killed
there, whoever opens the store next ends the exchange. An application that has the collection open
has it by its id, and goes on writing to the old one: what it wrote there since is brought over
until nothing is left, then the old one is deleted. Until then all of it can be undone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import StoreError
from crossfade.stores.chroma.client import Database
from crossfade.stores.chroma.collection import Collection
from crossfade.stores.chroma.rows import Records, beside
from crossfade.stores.chroma.state import State
from crossfade.stores.names import PREFIX

_KEY = "promoting"
# What a row of the shared collection is known to have of the application's: a token of the whole
# row that it was taken from, and of that what the application can change in its new place.
_TAKEN, _CONTENT = f"{PREFIX}taken", f"{PREFIX}content"
_ATTEMPTS = 20
# Of a collection that an application writes old vectors to all the time.
_PASSES = 100
_PAGE = 1000

DRESSING, SWAPPING, SWAPPED, RETURNING, DROPPING, STRIPPING = (
    "dressing", "swapping", "swapped", "returning", "dropping", "stripping",
)  # fmt: skip
# From here on the application's name is, or is to be, that of the shared vectors.
NEW = (SWAPPED, DROPPING, STRIPPING)

Carry = Callable[[Sequence[str]], None]
"""Shows rows of the old collection to `work`, and writes what it makes of them."""


@dataclass(frozen=True)
class Intention:
    """Which two collections change places, by Chroma's ids of them, and how far that has come."""

    old: str
    new: str
    stage: str

    @classmethod
    def read(cls, state: State) -> Intention | None:
        told = state.get(_KEY)
        return None if told is None else cls(**json.loads(told))


class Exchange:
    """The exchange of one collection with the one beside it."""

    def __init__(self, database: Database, state: State, old: Collection, new: Collection) -> None:
        self.database, self.state, self.old, self.new = database, state, old, new
        self.collection = state.collection
        self.aside, self.shared = beside("old", self.collection), beside("shared", self.collection)
        self._seen: dict[str, int] = {}

    def reach(self, stage: str) -> None:
        """Write down what is to be done next."""
        told = {"old": self.old.uid, "new": self.new.uid, "stage": stage}
        self.state.put(_KEY, json.dumps(told))

    def dress(self, dim: int) -> None:
        """Give the shared collection all rows, with everything that the application has there.

        A row without a shared vector gets zeros, for Chroma has no row without a vector.
        """
        ids = self.old.ids()
        for page in self.old.pages(ids, _PAGE):
            self._dress(page, dim)
        self.new.delete(sorted(set(self.new.ids()) - set(ids)))
        notes = self.old.metadata
        if notes is not None and notes != self.new.metadata:
            self.new.note(notes)

    def swap(self) -> None:
        """The shared collection gets the application's name."""
        self.reach(SWAPPING)
        self._bring(self.new, self.old, self.aside)
        self.reach(SWAPPED)

    def swap_back(self) -> None:
        """The old collection gets its name again, and what was done by that name meanwhile."""
        self.reach(RETURNING)
        self._bring(self.old, self.new, self.shared)
        self._take_back()

    def end(self) -> None:
        """Nothing is under way any more."""
        self.state.put(_KEY, None)

    def catch_up(self, dim: int, carry: Carry) -> None:
        """Bring over what is written to the old collection by those who still have it open."""
        if not self._seen:
            # Begun by a process that was killed: what it brought over is known by the rows.
            self._seen = self._taken()
        for _ in range(_PASSES):
            ids = self.old.ids()
            idle = True
            for page in self.old.pages(ids, _PAGE):
                tokens = page.tokens().tolist()
                told = zip(page.ids, tokens, strict=True)
                late = [key for key, token in told if self._seen.get(key) != token]
                if late:
                    idle = False
                    own = self._touched(late)
                    due = [key for key in late if key not in own]
                    carry(due)
                    self._dress(self.old.get(due), dim)
                    self._seen.update(dict(zip(page.ids, tokens, strict=True)))
            gone = sorted(set(self._seen) - set(ids))
            if gone:
                own = self._touched(gone)
                self.new.delete([key for key in gone if key not in own])
                for key in gone:
                    del self._seen[key]
            if idle and not gone:
                return
        raise StoreError(
            "rows change faster than they can be written",
            where=self.state.name,
            step="finish again when the collection is calmer",
        )

    def drop(self) -> None:
        """Delete the old collection: from here on there is no way back."""
        self.reach(DROPPING)
        there = self.database.find(self.aside)
        if there is not None and there.uid == self.old.uid:
            self.database.remove(self.aside)

    def strip(self) -> None:
        """Take what is ours from the rows of the collection that is the application's now."""
        self.reach(STRIPPING)
        strip(self.new)

    def _take_back(self) -> None:
        """Rows that the application has written, or emptied, under the new name.

        A vector of the new model cannot go back: such a row has zeros. A row that has changed in
        the old collection since it was taken from there is as it is there. One that is gone from
        the new collection alone stays, for it may have come to the old one meanwhile.
        """
        dim = self.old.dim()
        for page in self.new.pages(self.new.ids(), _PAGE):
            contents = (page.contents() >> np.uint64(1)).tolist()
            written = [
                at
                for at, told in enumerate(page.metadatas)
                if told.get(_CONTENT) != contents[at] or _is_emptied(told, page.vectors[at])
            ]
            some = page.take(written)
            was = self.old.get(some.ids)
            row_of, tokens = {key: at for at, key in enumerate(was.ids)}, was.tokens().tolist()
            kept: dict[bool, list[int]] = {True: [], False: []}
            for at, key in enumerate(some.ids):
                mine, told = row_of.get(key), some.metadatas[at]
                if mine is None or told.get(_TAKEN) == tokens[mine]:
                    # Chroma keeps what is not named.
                    gone = {} if mine is None else dict.fromkeys(was.own(mine))
                    some.metadatas[at] = gone | some.own(at)
                    kept[mine is None or _is_emptied(told, some.vectors[at])].append(at)
            bare = some.take(kept[True])
            none = np.zeros((len(bare), dim), np.float32)
            self.old.upsert(Records(bare.ids, none, bare.documents, bare.metadatas, bare.uris))
            self.old.update(some.take(kept[False]))
            # These would come again if the application deleted them and a kill had this repeated.
            self.new.delete([key for key in bare.ids if key not in row_of])

    def _dress(self, rows: Records, dim: int) -> None:
        tokens, contents = rows.tokens().tolist(), (rows.contents() >> np.uint64(1)).tolist()
        there = self.new.get(rows.ids, vectors=False)
        row_of = {key: at for at, key in enumerate(there.ids)}
        changed: list[int] = []
        anew: list[int] = []
        metadatas: list[dict[str, Any]] = []
        for at, key in enumerate(rows.ids):
            told = {**rows.own(at), _TAKEN: tokens[at], _CONTENT: contents[at]}
            mine = row_of.get(key)
            if mine is not None:
                if there.metadatas[mine].get(_TAKEN) == tokens[at]:
                    metadatas.append(told)
                    continue
                # Chroma keeps what is not named, and has no way to take a document from a row.
                told |= {name: None for name in there.own(mine) if name not in told}
                for before, now in ((there.documents, rows.documents), (there.uris, rows.uris)):
                    if before[mine] is not None and now[at] is None:
                        anew.append(at)
            (changed if mine is not None else anew).append(at)
            metadatas.append(told)
        self._seen.update(dict(zip(rows.ids, tokens, strict=True)))
        dressed = Records(rows.ids, rows.vectors, rows.documents, metadatas, rows.uris)
        self._replace(dressed, sorted(set(anew)), dim)
        self.new.update(dressed.take([at for at in changed if at not in anew]))

    def _replace(self, rows: Records, at: Sequence[int], dim: int) -> None:
        """Rows that are made anew, with the shared vector and bookkeeping they had, or zeros."""
        if not at:
            return
        some = rows.take(at)
        there = self.new.get(some.ids)
        row_of = {key: n for n, key in enumerate(there.ids)}
        vectors = np.zeros((len(some), dim), np.float32)
        metadatas = []
        for n, key in enumerate(some.ids):
            kept: dict[str, Any] = {}
            if key in row_of:
                vectors[n] = there.vectors[row_of[key]]
                found = there.metadatas[row_of[key]]
                kept = {name: v for name, v in found.items() if name.startswith(PREFIX)}
            told = {name: v for name, v in some.metadatas[n].items() if v is not None}
            metadatas.append(kept | told)
        self.new.delete(there.ids)
        self.new.upsert(Records(some.ids, vectors, some.documents, metadatas, some.uris))

    def _taken(self) -> dict[str, int]:
        out: dict[str, int] = {}
        ids = self.new.ids()
        for first in range(0, len(ids), _PAGE):
            page = self.new.get(ids[first : first + _PAGE], vectors=False)
            for key, told in zip(page.ids, page.metadatas, strict=True):
                if _TAKEN in told:
                    out[key] = told[_TAKEN]
        return out

    def _touched(self, ids: Sequence[str]) -> set[str]:
        """Those of the new collection that the application itself has written to since."""
        out: set[str] = set()
        for first in range(0, len(ids), _PAGE):
            page = self.new.get(ids[first : first + _PAGE], vectors=False)
            contents = (page.contents() >> np.uint64(1)).tolist()
            for key, told, content in zip(page.ids, page.metadatas, contents, strict=True):
                if told.get(_CONTENT) != content:
                    out.add(key)
        return out

    def _bring(self, kept: Collection, other: Collection, aside: str) -> None:
        """Give `kept` the application's name, and `other` the name `aside`."""
        for _ in range(_ATTEMPTS):
            there = self.database.find(self.collection)
            if there is not None and there.uid == kept.uid:
                return
            if there is not None and there.uid == other.uid:
                other.rename(aside)
            elif there is not None:
                self._absorb(there)
            try:
                kept.rename(self.collection)
                return
            except StoreError:
                # Somebody made a collection of this name in between.
                if self.database.find(self.collection) is None:
                    raise
        raise StoreError(
            "another collection of this name is made again and again",
            where=self.state.name,
            step="let the application open its collection by get_collection, then run it again",
        )

    def _absorb(self, stranger: Collection) -> None:
        """A collection that an application made while nobody had the name: its rows go where
        their vectors belong, then it goes."""
        ids, dim = stranger.ids(), stranger.dim()
        target = next((one for one in (self.old, self.new) if one.dim() == dim), None)
        if ids and target is None:
            raise StoreError(
                f"a collection of this name was made meanwhile, with vectors of {dim} dimensions",
                where=self.state.name,
                step="give it another name, then run it again",
            )
        if target is not None:
            for page in stranger.pages(ids, _PAGE):
                target.upsert(page)
        self.database.discard(stranger, self.collection)


def _is_emptied(told: dict[str, Any], vector: NDArray[np.float32]) -> bool:
    """Whether a row had a shared vector, and has zeros now."""
    ours = any(name.startswith(PREFIX) for name in told if name not in (_TAKEN, _CONTENT))
    return ours and not vector.any()


def strip(collection: Collection) -> None:
    """Take metadata of ours from all rows."""
    ids = collection.ids()
    for first in range(0, len(ids), _PAGE):
        page = collection.get(ids[first : first + _PAGE], vectors=False)
        ours = [{name: None for name in told if name.startswith(PREFIX)} for told in page.metadatas]
        due = [at for at, told in enumerate(ours) if told]
        # The documents are not named, so they stay.
        nothing = np.zeros((len(page), 0), np.float32)
        collection.update(Records.made(page.ids, nothing, ours).take(due))
