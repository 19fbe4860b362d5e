"""Who is relevant to whom: from labels, from judgements, or from a model's own neighbours.

A relevance is asked for a block of queries at a time, so that what labels imply is never written
out in whole: fifty thousand queries with five hundred relevant items each are 25 million pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadInput, BadRow

Index = NDArray[np.int64]
NONE = -1
"""No item: a query that is not in the gallery, or a row without a class."""


@dataclass(frozen=True, eq=False)
class Block:
    """The relevant items of some queries in a row: `counts` of each, `items` query by query."""

    counts: Index
    items: Index
    grades: NDArray[np.float64] | None = None

    @property
    def starts(self) -> Index:
        """Where each query's items begin."""
        return np.cumsum(self.counts) - self.counts


class Relevance(Protocol):
    """What ranking asks; `own[i]` is query i's own gallery item, left out of its search."""

    @property
    def queries(self) -> int: ...
    @property
    def gallery(self) -> int: ...
    @property
    def own(self) -> Index | None: ...
    def block(self, first: int, last: int) -> Block: ...


class SameClass:
    """Relevant is every gallery item of the query's class but the query itself.

    >>> relevance = SameClass.among(np.array([0, 1, 0, 0]))
    >>> relevance.block(0, 4).counts, relevance.block(3, 4).items
    (array([2, 0, 2, 2]), array([0, 2]))
    """

    def __init__(
        self,
        query_labels: NDArray[np.integer],
        gallery_labels: NDArray[np.integer],
        own: Index | None = None,
    ) -> None:
        self.labels, self.gallery_labels = np.asarray(query_labels), np.asarray(gallery_labels)
        self.queries, self.gallery = len(self.labels), len(self.gallery_labels)
        self.own = checked_own(own, self.queries, self.gallery)
        members = np.argsort(self.gallery_labels, kind="stable").astype(np.int64)
        ordered = self.gallery_labels[members]
        self._members = members
        self._starts = np.searchsorted(ordered, self.labels, side="left")
        self._ends = np.searchsorted(ordered, self.labels, side="right")
        # A row without a class is like no other row.
        self._ends[self.labels == NONE] = self._starts[self.labels == NONE]

    @classmethod
    def among(cls, labels: NDArray[np.integer]) -> Self:
        """Each item queries all the others."""
        return cls(labels, labels, np.arange(len(labels)))

    def block(self, first: int, last: int) -> Block:
        starts, ends = self._starts[first:last], self._ends[first:last]
        counts = ends - starts
        items = self._members[_ranges(starts, counts)]
        if self.own is not None:
            mine = np.repeat(self.own[first:last], counts) == items
            counts = counts - _sums(mine, counts)
            items = items[~mine]
        return Block(counts, items)

    def counts(self) -> Index:
        """How many items are relevant to each query."""
        counts = self._ends - self._starts
        if self.own is None:
            return np.asarray(counts)
        there = self.own != NONE
        mine = np.zeros(self.queries, bool)
        mine[there] = self.gallery_labels[self.own[there]] == self.labels[there]
        return np.asarray(counts - (mine & (counts > 0)))

    def member(self, queries: Index, nth: Index) -> Index:
        """The nth relevant item of each of these queries, counted from 0."""
        place = self._starts[queries] + nth
        if self.own is not None:
            # Members of a class stand in order of index: from the query's own on, one further.
            at = np.empty(self.gallery, np.int64)
            at[self._members] = np.arange(self.gallery)
            own = self.own[queries]
            mine = np.where(own == NONE, self.gallery, at[own])
            place = place + ((mine >= self._starts[queries]) & (place >= mine))
        return np.asarray(self._members[place])


class Listed:
    """Relevant is what a list says: triples of query, gallery item and perhaps a grade.

    Grades of zero or less say that an item was looked at and found irrelevant: they are left out.
    So are judgements of a query about itself, where it is left out of its own search.

    >>> listed = Listed(2, 3, [0, 0, 1], [2, 1, 0], grades=[1, 2, 0])
    >>> listed.block(0, 2).counts, listed.block(0, 2).items, listed.block(0, 2).grades
    (array([2, 0]), array([1, 2]), array([2., 1.]))
    """

    def __init__(
        self,
        queries: int,
        gallery: int,
        query: ArrayLike,
        item: ArrayLike,
        *,
        grades: ArrayLike | None = None,
        own: Index | None = None,
        where: object = "qrels",
    ) -> None:
        self.queries, self.gallery = queries, gallery
        self.own = checked_own(own, queries, gallery)
        q, i = _indices(query, queries, "query", where), _indices(item, gallery, "item", where)
        g = None if grades is None else np.asarray(grades, dtype=np.float64)
        if len(q) != len(i) or (g is not None and len(g) != len(q)):
            raise BadInput("queries, items and grades differ in number", where=where)
        if g is not None and not np.isfinite(g).all():
            raise BadRow(int(np.flatnonzero(~np.isfinite(g))[0]), "has no grade", where=where)
        keep = np.ones(len(q), bool) if g is None else g > 0
        if self.own is not None:
            keep &= self.own[q] != i
        order = np.lexsort((i, q))
        order = order[keep[order]]
        twice = np.flatnonzero((np.diff(q[order]) == 0) & (np.diff(i[order]) == 0))
        if len(twice):
            row = int(max(order[twice[0]], order[twice[0] + 1]))
            raise BadRow(
                row,
                f"judges query {q[row]} and item {i[row]} a second time",
                where=where,
                step="keep one judgement of each pair",
            )
        self._items = i[order]
        self._grades = None if g is None else g[order]
        self._ends = np.cumsum(np.bincount(q[order], minlength=queries))

    def block(self, first: int, last: int) -> Block:
        begin = int(self._ends[first - 1]) if first else 0
        ends = self._ends[first:last]
        place = slice(begin, int(ends[-1]) if len(ends) else begin)
        grades = None if self._grades is None else self._grades[place]
        return Block(np.diff(ends, prepend=begin), self._items[place], grades)


def from_qrels(
    qrels: ArrayLike,
    queries: int,
    gallery: int,
    *,
    own: Index | None = None,
    where: object = "qrels",
) -> Listed:
    """Relevance from rows (query index, item index[, grade]), the numbers of a TREC qrels file.

    >>> from_qrels([[0, 1, 2], [1, 0, 1]], queries=2, gallery=2).block(0, 2).items
    array([1, 0])
    """
    table = np.asarray(qrels)
    if table.ndim != 2 or table.shape[1] not in (2, 3) or table.dtype.kind not in "iuf":
        raise BadInput(
            f"qrels have the shape {table.shape} of {table.dtype}",
            where=where,
            step="give rows of query index, item index and, where there are any, grade",
        )
    grades = table[:, 2] if table.shape[1] == 3 else None
    return Listed(queries, gallery, table[:, 0], table[:, 1], grades=grades, own=own, where=where)


def checked_own(own: Index | None, queries: int, gallery: int) -> Index | None:
    """`own`, if it names for each query one gallery item, or `NONE`."""
    if own is None:
        return None
    own = np.asarray(own, dtype=np.int64)
    if own.shape != (queries,) or (len(own) and not NONE <= own.min() <= own.max() < gallery):
        raise BadInput(f"own items must name one of {gallery} for each of {queries} queries")
    return own


def own_by_id(query_ids: ArrayLike, gallery_ids: ArrayLike) -> Index:
    """For each query the gallery item of the same id, or `NONE`.

    >>> own_by_id(["b", "x"], ["a", "b"])
    array([ 1, -1])
    """
    mine, theirs = np.asarray(query_ids), np.asarray(gallery_ids)
    for name, ids in (("gallery", theirs), ("query", mine)):
        values, counts = np.unique(ids, return_counts=True)
        if (counts > 1).any():
            twice = values[counts > 1][0].item()
            rows = np.flatnonzero(ids == twice)
            raise BadInput(
                f"{name} id {twice!r} is given {len(rows)} times, first in rows {rows[0]} and "
                f"{rows[1]}",
                step="give every item an id of its own",
            )
    order = np.argsort(theirs)
    place = np.searchsorted(theirs[order], mine)
    place[place == len(theirs)] = 0
    found = order[place] if len(theirs) else np.zeros(len(mine), np.int64)
    same = theirs[found] == mine if len(theirs) else np.zeros(len(mine), bool)
    return np.where(same, found, NONE)


def _indices(values: ArrayLike, size: int, what: str, where: object) -> Index:
    given: NDArray[Any] = np.asarray(values)
    found = given.astype(np.int64)
    if given.ndim != 1 or (found != given).any():
        raise BadInput(f"the {what} indices are not whole numbers", where=where)
    outside = np.flatnonzero((found < 0) | (found >= size))
    if len(outside):
        row = int(outside[0])
        raise BadRow(
            row,
            f"names {what} {found[row]}, and there are {size}, counted from 0",
            where=where,
            step="give the judgements of these vectors",
        )
    return found


def _ranges(starts: Index, counts: Index) -> Index:
    """`counts[i]` whole numbers from `starts[i]` on, one after the other.

    >>> _ranges(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    before = np.cumsum(counts) - counts
    return np.asarray(np.arange(int(counts.sum())) + np.repeat(starts - before, counts))


def _sums(values: NDArray[Any], counts: Index) -> Index:
    """Sums over consecutive groups, empty ones included."""
    total = np.concatenate([[0], np.cumsum(values)])
    ends = np.cumsum(counts)
    return np.asarray(total[ends] - total[ends - counts])
