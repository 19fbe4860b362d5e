"""Batches of rows into a Lance table that is searched meanwhile.

`merge_insert` moves the rows it touches: where they were, a mark of deletion remains, which every
search pays for, by a fifth of its time where it reads all vectors. So a batch that is no small part
of its table is written in place: the columns of the fragments it touches are written anew. It is
only done where no index covers them, for an index forgets fragments that were written in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crossfade.stores.lance.fragments import discard, in_use, is_conflict, is_cut_off
from crossfade.stores.lance.schema import indexed, literal, quoted

# Old versions keep their files: all batches together write a column at most so many times.
_TIMES = 16


def write_batch(dataset: Any, folder: Path, id: str, rows: pa.RecordBatch) -> int:
    """Set the columns of these rows in a table as it was when they were read.

    Gives the number of rows written: none if one of them has changed since, or may have.
    """
    names = set(rows.schema.names) - {id}
    if dataset.count_rows() <= _TIMES * len(rows) and not names & indexed(dataset):
        written = _in_place(dataset, folder, id, rows)
        if written is not None:
            return written
    merge = dataset.merge_insert(id).when_matched_update_all().conflict_retries(0)
    try:
        return int(merge.execute(pa.Table.from_batches([rows]))["num_updated_rows"])
    except (OSError, RuntimeError) as error:
        # Of an answer that broke off nobody knows what was done: the rows tell who reads them.
        if is_conflict(error) or is_cut_off(error):
            return 0
        raise


def _in_place(dataset: Any, folder: Path, id: str, rows: pa.RecordBatch) -> int | None:
    """None if anything in a fragment has changed since, perhaps rows that are not of the batch."""
    import lance

    wanted = ", ".join(map(literal, rows[id].to_pylist()))
    there = dataset.to_table(
        columns=[id], filter=f"{quoted(id)} IN ({wanted})", with_row_address=True
    )
    parts = np.unique(there["_rowaddr"].to_numpy() >> np.uint64(32))
    table = pa.Table.from_batches([rows])
    updated, fields, committed = [], set(), False
    before = {file.path for part in dataset.get_fragments() for file in part.data_files()}
    try:
        for part in parts.tolist():
            fragment, changed = dataset.get_fragment(part).update_columns(
                table, left_on=id, right_on=id
            )
            updated.append(fragment)
            fields |= set(changed)
        if updated:
            update = lance.LanceOperation.Update(
                updated_fragments=updated,
                fields_modified=sorted(fields),
                update_mode="rewrite_columns",
            )
            lance.LanceDataset.commit(
                dataset.uri, update, read_version=dataset.version, max_retries=0
            )
        committed = True
    except (OSError, RuntimeError) as error:
        committed = bool(in_use(dataset.uri, _files(updated) - before))
        if not committed and (is_conflict(error) or is_cut_off(error)):
            return None
        if not committed:
            raise
    finally:
        if not committed:
            discard(dataset.uri, folder, _files(updated) - before)
    return len(there)


def _files(fragments: Sequence[Any]) -> set[str]:
    return {file.path for part in fragments for file in part.files}
