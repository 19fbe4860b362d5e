"""What an upgrade is measured on, read from files: a gallery, its queries, and who is relevant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.files import list_arrays
from crossfade.files.whole import read_column
from crossfade.lookups.file import read_held as read_sampled
from crossfade.pairs import Pairs, read_qrels


def read_held(
    path: str | Path | None = None,
    *,
    old: str | None = None,
    new: str | None = None,
    labels: str | None = None,
    ids: str | None = None,
    queries: str | Path | None = None,
    query_old: str | None = None,
    query_new: str | None = None,
    query_labels: str | None = None,
    query_ids: str | None = None,
    qrels: str | None = None,
    use_labels: bool = True,
    drop_bad_rows: bool = False,
) -> Held:
    """Held-out rows from one file, or from a file for each part: FILE or FILE:NAME.

    Of a file that `crossfade pairs` wrote, what it holds out of the fit. A single file may hold
    `qrels`, and queries that are no items as `old_queries`, `new_queries` and `labels_queries`.

    >>> import numpy as np, tempfile
    >>> rng = np.random.default_rng(0)
    >>> path = Path(tempfile.mkdtemp()) / "pairs.npz"
    >>> old, new = rng.normal(size=(6, 2)), rng.normal(size=(6, 3))
    >>> np.savez(path, old=old, new=new, labels=list("aabbcc"))
    >>> held = read_held(path)
    >>> held.queries, held.gallery, held.source
    (6, 6, 'labels')
    """
    separate = any(part is not None for part in (queries, query_old, query_new))
    if path is not None and not separate and qrels is None and labels is None:
        held = read_sampled(path, use_labels=use_labels)
        if held is not None:
            return held
    present = set() if path is None else {array.name for array in list_arrays(path)}
    if qrels is None and "qrels" in present and labels is None:
        qrels = f"{path}:qrels"
    if drop_bad_rows and (qrels or ids or query_ids):
        raise BadInput(
            "qrels and ids name rows by number, which dropping rows would change",
            step="drop the bad rows from the files first",
        )
    options: dict[str, Any] = {
        "drop_bad_rows": drop_bad_rows,
        "strict": False,
        "use_labels": use_labels,
    }
    gallery = Pairs.open(path, old=old, new=new, labels=labels, **options)
    asked = None
    if separate:
        asked = Pairs.open(queries, old=query_old, new=query_new, labels=query_labels, **options)
    elif {"old_queries", "new_queries"} <= present:
        names = {side: f"{side}_queries" for side in ("old", "new", "labels")}
        options |= {f"{side}_name": name for side, name in names.items()}
        options["use_labels"] = use_labels and names["labels"] in present
        asked = Pairs.open(path, **options)
    elif query_labels is not None or query_ids is not None:
        raise BadInput("there are no separate queries", step="add --queries FILE")
    return Held.of(
        gallery,
        asked,
        qrels=None if qrels is None else read_qrels(qrels),
        qrels_name=qrels,
        ids=None if ids is None else read_column(ids),
        query_ids=None if query_ids is None else read_column(query_ids),
    )
