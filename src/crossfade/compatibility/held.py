"""What an upgrade is measured on: held-out rows of both models, and who is relevant to whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.retrieval.relevance import (
    NONE,
    Index,
    Relevance,
    SameClass,
    from_qrels,
    own_by_id,
)

Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Held:
    """A gallery and queries, each as the old and as the new model sees it.

    Where they are the same rows, each row queries all the others. `relevance` is None without
    labels and qrels: then only agreement with the new model's own ranking can be measured.
    """

    name: str
    gallery_old: Float
    gallery_new: Float
    query_old: Float | None
    """None where the old model is gone: then nothing of today's search can be measured."""
    query_new: Float
    own: Index | None
    relevance: Relevance | None
    source: str
    query_classes: NDArray[Any] | None = None
    """Each query's class by name; None without labels."""
    gallery_classes: NDArray[Any] | None = None
    """Each item's class by name; None without labels."""
    gallery_ids: NDArray[Any] | None = None
    """Each item's id in its store; None where they come from none."""
    notes: tuple[str, ...] = ()
    """What is worth a note about the rows, such as bad ones that were left out."""

    @classmethod
    def of(
        cls,
        pairs: Pairs,
        queries: Pairs | None = None,
        *,
        qrels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        query_ids: ArrayLike | None = None,
        qrels_name: object = "qrels",
    ) -> Held:
        """From pairs that are gallery and queries at once, or from a gallery and its queries.

        `ids` tell which query is which gallery item; without them the rows of a single set of
        pairs are the items, and separate queries are not in the gallery. Qrels come before labels.

        >>> rng = np.random.default_rng(0)
        >>> old, new = rng.normal(size=(4, 2)), rng.normal(size=(4, 3))
        >>> pairs = Pairs.from_arrays(old, new, [0, 0, 1, 1])
        >>> held = Held.of(pairs)
        >>> held.source, held.own
        ('labels', array([0, 1, 2, 3]))
        """
        pairs = pairs.load()
        asked = pairs if queries is None else queries.load()
        _refuse_one_model_twice(pairs)
        if (asked.old_dim, asked.new_dim) != (pairs.old_dim, pairs.new_dim):
            raise BadInput(
                f"queries have dimensions {asked.old_dim} and {asked.new_dim}, the gallery "
                f"{pairs.old_dim} and {pairs.new_dim}",
                where=asked.name,
                step="embed both with the same two models",
            )
        own = _own(pairs, queries, ids, query_ids)
        relevance: Relevance | None = None
        source, classes, theirs_by_name = "neighbours", None, None
        if qrels is not None:
            relevance = from_qrels(qrels, asked.rows, pairs.rows, own=own, where=qrels_name)
            source = "qrels"
        elif pairs.labels is not None and asked.labels is not None:
            mine, theirs = _common_codes(asked, pairs)
            relevance = SameClass(mine, theirs, own)
            source, classes, theirs_by_name = "labels", _names(asked), _names(pairs)
        elif queries is not None and (pairs.labels is None) != (asked.labels is None):
            raise BadInput(
                "only one of gallery and queries has labels",
                where=(pairs if pairs.labels is None else asked).name,
                step="give labels for both, or neither",
            )
        return cls(
            name=pairs.name,
            gallery_old=pairs.old,
            gallery_new=pairs.new,
            query_old=asked.old,
            query_new=asked.new,
            own=own,
            relevance=relevance,
            source=source,
            query_classes=classes,
            gallery_classes=theirs_by_name,
            notes=tuple(
                f"{one.name}: {one.dropped} bad rows left out"
                for one in ([pairs] if queries is None else [pairs, queries])
                if one.dropped
            ),
        )

    @property
    def queries(self) -> int:
        return len(self.query_new)

    @property
    def gallery(self) -> int:
        return len(self.gallery_old)


def _own(
    pairs: Pairs, queries: Pairs | None, ids: ArrayLike | None, query_ids: ArrayLike | None
) -> Index | None:
    if ids is None and query_ids is None:
        return np.arange(pairs.rows) if queries is None else None
    if ids is None or (query_ids is None) != (queries is None):
        raise BadInput(
            "ids are given for one of gallery and queries",
            step="give ids for both, or neither",
        )
    theirs = np.asarray(ids)
    mine = theirs if query_ids is None else np.asarray(query_ids)
    for found, rows, what in (
        (theirs, pairs.rows, "gallery"),
        (mine, pairs.rows if queries is None else queries.rows, "query"),
    ):
        if found.shape != (rows,):
            raise BadInput(
                f"there are {len(found)} {what} ids for {rows} rows", step="give one id per row"
            )
    return own_by_id(mine, theirs)


def _common_codes(queries: Pairs, gallery: Pairs) -> tuple[Index, Index]:
    """Labels of both as codes of one list of classes; rows without a label stay `NONE`."""
    names = [_names(queries), _names(gallery)]
    if names[0].dtype.kind != names[1].dtype.kind:
        raise BadInput(
            f"labels are {names[1].dtype} in the gallery and {names[0].dtype} in the queries",
            where=queries.name,
            step="use the same names for classes in both",
        )
    _, codes = np.unique(np.concatenate(names), return_inverse=True)
    codes = codes.astype(np.int64)
    mine, theirs = codes[: len(names[0])], codes[len(names[0]) :]
    mine[np.asarray(queries.labels) == NONE] = NONE
    theirs[np.asarray(gallery.labels) == NONE] = NONE
    return mine, theirs


def _names(pairs: Pairs) -> NDArray[Any]:
    if pairs.classes is None or pairs.labels is None or not len(pairs.classes):
        raise BadInput("no row has a label", where=pairs.name, step="use --no-labels")
    return np.asarray(pairs.classes[pairs.labels])


def _refuse_one_model_twice(pairs: Pairs) -> None:
    if pairs.old_dim == pairs.new_dim and np.array_equal(pairs.old, pairs.new):
        raise BadInput(
            "'old' and 'new' hold the same vectors",
            where=pairs.name,
            step="give the vectors of two models",
        )
