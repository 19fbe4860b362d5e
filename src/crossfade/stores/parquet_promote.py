"""The last step of a migration on Parquet files: shared vectors in the place of the old ones.

A file is written in `_crossfade`, its signature noted, and then it takes the place of the old one:
after a kill the note tells which files are done. A file that the application replaced after that,
and one with no shared vector for any of its rows, are its own affair and are left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossfade.files import replacing
from crossfade.stores.parquet_base import STEP, base_paths
from crossfade.stores.parquet_rows import Changed, id_array, opened, signature
from crossfade.stores.values import read_kept

Shared = Callable[[pa.Array], pa.Array]


def promote_files(folder: Path, side: Path, id: str, vector: str, shared: Shared) -> None:
    """Rewrite every file of `folder`; `shared` gives the vectors of some ids."""
    note, fresh = side / "promote.json", side / "promoted.parquet"
    done: dict[str, list[int]] = read_kept(note) or {}
    if fresh.exists():
        # It was noted, perhaps, but never took its place: that file is still to be done.
        waiting = list(signature(fresh))
        done = {name: mark for name, mark in done.items() if mark != waiting}
        _save(note, done)
        fresh.unlink()
    for path in base_paths(folder):
        while path.name not in done and path.exists():
            try:
                before = signature(path)
                if not _rewrite(path, before, fresh, id, vector, shared):
                    break
                _save(note, {**done, path.name: list(signature(fresh))})
                if signature(path) != before:
                    continue
            except (Changed, FileNotFoundError):
                continue
            done[path.name] = list(signature(fresh))
            fresh.replace(path.resolve())
            _sync_folder(path.resolve().parent)


def _rewrite(path: Path, before: Any, fresh: Path, id: str, vector: str, shared: Shared) -> bool:
    with opened(path, before, step=STEP) as source:
        groups = range(source.metadata.num_row_groups)
        ids = [id_array(source.read_row_group(group, [id])[id]) for group in groups]
        if all(shared(some).null_count == len(some) for some in ids):
            return False
        schema = source.schema_arrow
        at = schema.get_field_index(vector)
        kind = shared(ids[0][:0]).type
        if not pa.types.is_fixed_size_list(schema.field(at).type):
            kind = pa.list_(pa.float32())
        field = schema.field(at).with_type(kind).with_nullable(True)
        schema = schema.set(at, field)
        with (
            replacing(fresh, overwrite=True) as temporary,
            pq.ParquetWriter(temporary, schema, **_options(source, vector)) as writer,
        ):
            for group in groups:
                table = source.read_row_group(group)
                vectors = shared(ids[group]).cast(kind)
                table = table.set_column(at, field, vectors).cast(schema)
                writer.write_table(table, row_group_size=max(1, len(table)))
    return True


def _options(source: Any, vector: str) -> dict[str, Any]:
    """How the file was written, as far as it tells: each column's compression."""
    if not source.metadata.num_row_groups:
        return {}
    group = source.metadata.row_group(0)
    codecs: dict[str, str] = {}
    plain: list[str] = []
    for index in range(group.num_columns):
        column = group.column(index)
        name = column.compression.lower()
        top = column.path_in_schema.split(".")[0]
        codecs[top] = "none" if name == "uncompressed" else name
        if top != vector and column.has_dictionary_page:
            plain.append(column.path_in_schema)
    return {"compression": codecs, "use_dictionary": plain}


def _save(note: Path, told: dict[str, list[int]]) -> None:
    with replacing(note, overwrite=True) as temporary:
        temporary.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
