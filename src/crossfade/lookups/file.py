"""The one file that `fit`, `evaluate` and `plan` all take: which array of it is for whom.

| arrays | what they are | who reads them |
|---|---|---|
| `old`, `new`, `ids`, perhaps `labels` | sampled rows of the store | `fit` |
| `log_old`, `log_new` | queries of a log, pairs like the rows | `fit` |
| `held_old`, `held_new`, `held_ids`, perhaps `held_labels` | rows that are no pairs: a gallery | \
`evaluate`, `plan` |
| `lookup_new`, perhaps `lookup_old` | queries, each of which wants one row of that gallery | \
`evaluate`, `plan` |
| `lookup_items` | the number of that row | `evaluate`, `plan` |

`fit` never opens what is held, so that one file serves all three and nothing is judged by what was
learned from.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from crossfade.compatibility.held import Held
from crossfade.errors import BadInput
from crossfade.files import Extra, Layout, list_arrays, open_source, read_values, write_batches
from crossfade.files.rawrows import as_batches, vector_schema
from crossfade.lookups.spool import FLOAT, Spool
from crossfade.pairs import Pairs
from crossfade.pairs.files import LOG
from crossfade.retrieval.relevance import from_qrels

HELD = ("held_old", "held_new")
LOOKUP_OLD, LOOKUP_NEW, ITEMS = "lookup_old", "lookup_new", "lookup_items"
Kind = Literal["npz", "safetensors"]
_KINDS: dict[str, Kind] = {".npz": "npz", ".safetensors": "safetensors"}


def check_kind(path: Path, *, text: bool) -> Kind:
    """The format of `path`, if it holds arrays of different lengths, and `text` where needed."""
    kind = _KINDS.get(path.suffix.lower())
    if kind is None:
        raise BadInput(
            "pairs with lookups are several arrays of different lengths",
            where=path,
            step="name a file that ends in .npz or .safetensors",
        )
    if kind == "safetensors" and text:
        raise BadInput(
            "a .safetensors file holds no text, and ids or labels are text",
            where=path,
            step="name a file that ends in .npz",
        )
    return kind


def write_parts(
    path: Path, vectors: dict[str, Spool], values: dict[str, NDArray[Any]], *, overwrite: bool
) -> None:
    """Write all arrays, or none; `vectors` begin with `old`."""
    kind = check_kind(path, text=any(x.dtype.kind == "U" for x in values.values()))
    names = list(vectors)
    first = vectors[names[0]]
    schema = vector_schema(names[0], first.dim, FLOAT)
    extras = [_vectors(name, vectors[name], kind) for name in names[1:]]
    extras += [_values(name, x, kind) for name, x in values.items()]
    layout = Layout(schema, names[0], first.rows, tuple(extras))
    write_batches(path, as_batches(first.blocks(), schema), layout, overwrite=overwrite)


def _vectors(name: str, spool: Spool, kind: Kind) -> Extra:
    return _extra(name, kind, (spool.rows, spool.dim), FLOAT, spool.nbytes, spool.chunks)


def _values(name: str, x: NDArray[Any], kind: Kind) -> Extra:
    x = np.ascontiguousarray(x, x.dtype.newbyteorder("<"))
    return _extra(name, kind, x.shape, x.dtype, x.nbytes, lambda: iter([x.tobytes()]))


def _extra(
    name: str,
    kind: Kind,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    nbytes: int,
    chunks: Callable[[], Iterator[bytes]],
) -> Extra:
    if kind == "safetensors":
        stored = "F32" if dtype == FLOAT else "I64"
        return Extra(name, kind, nbytes, chunks, stored, shape)
    # A member of an .npz is copied whole, with its header.
    header = io.BytesIO()
    described = {"shape": shape, "fortran_order": False, "descr": npy_format.dtype_to_descr(dtype)}
    npy_format.write_array_header_1_0(header, described)
    head = header.getvalue()
    return Extra(name, kind, len(head) + nbytes, partial(_after, head, chunks))


def _after(head: bytes, chunks: Callable[[], Iterator[bytes]]) -> Iterator[bytes]:
    yield head
    yield from chunks()


def parts_of(path: Path) -> dict[str, int]:
    """How many rows are held, lookups and logged queries, in a file that has any."""
    rows = {array.name: array.shape[0] or 0 for array in list_arrays(path) if array.shape}
    named = {"held": HELD[1], "lookups": LOOKUP_NEW, "logged_queries": LOG[1]}
    return {word: rows[name] for word, name in named.items() if name in rows}


def read_held(path: str | Path, *, use_labels: bool = True) -> Held | None:
    """The gallery held out of the fit and its lookups; None in a file that holds none.

    Without lookups the held rows query each other, by their labels where there are any.
    """
    path = Path(path)
    present = {array.name for array in list_arrays(path)}
    if not set(HELD) <= present:
        return None
    gallery = Pairs.open(
        path,
        old_name=HELD[0],
        new_name=HELD[1],
        labels_name="held_labels",
        use_labels=use_labels and "held_labels" in present,
        strict=False,
    )
    if LOOKUP_NEW not in present:
        return Held.of(gallery)
    gallery = gallery.load()
    items = np.asarray(read_values(path, ITEMS))
    asked = {name: _whole(path, name) for name in (LOOKUP_OLD, LOOKUP_NEW) if name in present}
    for name, x in asked.items():
        if len(x) != len(items):
            raise BadInput(
                f"has {len(x)} rows in {name!r} and {len(items)} in {ITEMS!r}",
                where=path,
                step="make the pairs again",
            )
    qrels = np.stack([np.arange(len(items)), items], axis=1)
    return Held(
        name=str(path),
        gallery_old=gallery.old,
        gallery_new=gallery.new,
        query_old=asked.get(LOOKUP_OLD),
        query_new=asked[LOOKUP_NEW],
        own=None,
        relevance=from_qrels(qrels, len(items), gallery.rows, where=f"{path}:{ITEMS}"),
        source="lookups",
        gallery_ids=np.asarray(read_values(path, "held_ids").to_pylist())
        if "held_ids" in present
        else None,
    )


def _whole(path: Path, name: str) -> NDArray[np.float32]:
    source = open_source(path, name)
    return np.concatenate([np.asarray(x, np.float32) for x in source.vectors(1 << 14)])
