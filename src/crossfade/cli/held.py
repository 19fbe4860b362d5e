"""Held-out data named on the command line: a gallery, its queries, and who is relevant to whom."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crossfade.cli.output import note
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.files import list_arrays, open_source, read_values, split_name
from crossfade.lookups import read_held
from crossfade.pairs import Pairs, read_qrels
from crossfade.retrieval import SameClass

_WIDEST_BYTES = 4 << 30


@dataclass(frozen=True)
class Named:
    """One file with all of it, or a file for each part: FILE or FILE:NAME."""

    path: Path | None = None
    old: str | None = None
    new: str | None = None
    labels: str | None = None
    ids: str | None = None

    @property
    def anything(self) -> bool:
        return any(x is not None for x in (self.path, self.old, self.new))


def open_held(
    gallery: Named, queries: Named, qrels: str | None, *, use_labels: bool, drop: bool
) -> Held:
    """Pairs and their queries; a single file may hold `qrels` and `old_queries`, `new_queries`.

    Of a file that `crossfade pairs` wrote, what it holds out of the fit.
    """
    path = gallery.path
    if path is not None and not queries.anything and qrels is None and gallery.labels is None:
        held = read_held(path, use_labels=use_labels)
        if held is not None:
            return held
    present = set() if path is None else {array.name for array in list_arrays(path)}
    if qrels is None and "qrels" in present and gallery.labels is None:
        qrels = f"{path}:qrels"
    if drop and (qrels or gallery.ids or queries.ids):
        raise BadInput(
            "qrels and ids name rows by number, which dropping rows would change",
            step="drop the bad rows from the files first",
        )
    options: dict[str, Any] = {"drop_bad_rows": drop, "strict": False, "use_labels": use_labels}
    data = _open(gallery, options)
    searching = None
    if queries.anything:
        searching = _open(queries, options)
    elif {"old_queries", "new_queries"} <= present:
        names = {side: f"{side}_queries" for side in ("old", "new", "labels")}
        options |= {f"{side}_name": name for side, name in names.items()}
        options["use_labels"] = use_labels and names["labels"] in present
        searching = _open(Named(path), options)
    elif queries.labels is not None or queries.ids is not None:
        raise BadInput("there are no separate queries", step="add --queries FILE")
    return Held.of(
        data,
        searching,
        qrels=None if qrels is None else read_qrels(qrels),
        qrels_name=qrels,
        ids=None if gallery.ids is None else read_list(gallery.ids),
        query_ids=None if queries.ids is None else read_list(queries.ids),
    )


def _open(named: Named, options: dict[str, Any]) -> Pairs:
    pairs = Pairs.open(named.path, old=named.old, new=named.new, labels=named.labels, **options)
    if pairs.dropped:
        note(f"{pairs.name}: {pairs.dropped} bad rows left out")
    return pairs


def read_list(place: str) -> Any:
    """One value per row."""
    path, name = split_name(place)
    values = read_values(path, name).to_pylist()
    longest = max((len(one) for one in values if isinstance(one, str)), default=0)
    if 4 * longest * len(values) > _WIDEST_BYTES:
        # numpy makes every row as wide as the longest of them.
        raise BadInput(
            f"has {len(values):,} values of up to {longest:,} characters",
            where=place,
            step="give shorter ones",
        )
    return np.asarray(values)


def read_vectors(place: str) -> Any:
    """All vectors of one model, as float32."""
    source = open_source(*split_name(place))
    return np.concatenate([np.asarray(x, np.float32) for x in source.vectors(1 << 14)])


def open_zero_shot(vectors: str, labels: str | None) -> tuple[Any, SameClass]:
    """New vectors of another task and who is relevant to whom among them."""
    if labels is None:
        raise BadInput("--zero-shot needs labels", step="add --zero-shot-labels FILE")
    new = read_vectors(vectors)
    pairs = Pairs.from_arrays(new, new, read_list(labels), name=vectors)
    return pairs.new, SameClass.among(np.asarray(pairs.labels))
