"""Whole columns of a Lance table, a fragment at a time.

`merge_insert` writes every row that it touches anew, with its old vector and all the rest, and so
takes it out of the application's index. A fragment can as well be given a file more, that holds the
new columns alone: its rows stay where they are, and indexed. Lance refuses the commit if the
fragment was changed or rewritten in between.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossfade.stores.contract import TOKEN, Spread, Work
from crossfade.stores.lance.fragments import (
    discard,
    in_use,
    is_conflict,
    is_cut_off,
    looked_up,
)
from crossfade.stores.lance.schema import translate_errors
from crossfade.threads import ahead

# Of one fragment; an application that writes to it all the time is met row by row instead.
_ATTEMPTS = 3
# Batches that wait for the disk: it takes them in gulps, which what lifts them need not wait for.
_BEHIND = 6


def can_write_columns(dataset: Any) -> bool:
    """Files of Lance's first format are not written any more."""
    return not str(dataset.data_storage_version).startswith("0")


def write_columns(
    now: Callable[[], Any],
    folder: Path,
    id: str,
    names: Sequence[str],
    read: Sequence[str],
    work: Work,
    size: int,
) -> Iterator[int]:
    """Give the columns `names` to every fragment that has nothing of them yet.

    `work` is shown rows as (id, *read, TOKEN). Yields after each batch how many rows were committed
    since the last; who stops in between loses what was made of one fragment.
    """
    for number in [fragment.fragment_id for fragment in now().get_fragments()]:
        for attempt in range(_ATTEMPTS):
            time.sleep(0.05 * attempt)
            dataset = now()
            fragment = dataset.get_fragment(number)
            if fragment is None or _has(dataset, fragment, names):
                break
            file = folder / "data" / f"{uuid.uuid4().hex}.lance"
            written, committed = 0, False
            try:
                for some in _write(file, dataset, fragment, id, names, read, work, size):
                    written += some
                    yield 0
                committed = _commit(dataset, fragment, file.name, names)
            finally:
                if not committed:
                    discard(dataset.uri, folder, [file.name])
            if committed:
                yield written
                break


@dataclass(frozen=True)
class _Task:
    """What a worker is told: which fragment of which version, and what to make of it."""

    uri: str
    version: int
    id: str
    names: tuple[str, ...]
    read: tuple[str, ...]
    work: Work
    size: int
    run: str

    def __call__(self, number: int) -> dict[str, Any]:
        """Write a file with the columns of a fragment; its name, rows shown and rows written."""
        import lance

        dataset = looked_up(lambda: lance.dataset(self.uri, version=self.version))
        # Who is taken for lost may still be at it: every attempt has a file of its own.
        name = f"{self.run}{uuid.uuid4().hex}.lance"
        shown = written = 0
        with translate_errors(self.uri):
            fragment: Any = dataset.get_fragment(number)
            file = f"{self.uri}/data/{name}"
            for some in _write(
                file, dataset, fragment, self.id, self.names, self.read, self.work, self.size
            ):
                written += some
            shown = fragment.count_rows()
        return {"fragment": number, "file": name, "shown": shown, "written": written}


def spread_columns(
    now: Callable[[], Any],
    remove: Callable[[str, set[str]], None],
    id: str,
    names: Sequence[str],
    read: Sequence[str],
    work: Work,
    size: int,
    spread: Spread,
) -> Generator[tuple[int, int], None, None]:
    """As `write_columns`, with the files written by others and committed here.

    Yields for each fragment how many rows were shown and written. `remove` deletes the files whose
    names begin so but for some: those of fragments that changed meanwhile, and of lost workers.
    """
    run = f"crossfade-{uuid.uuid4().hex}-"
    used: set[str] = set()
    try:
        for attempt in range(_ATTEMPTS):
            time.sleep(0.05 * attempt)
            dataset = now()
            todo = [
                fragment.fragment_id
                for fragment in dataset.get_fragments()
                if not _has(dataset, fragment, names)
            ]
            task = _Task(
                dataset.uri, dataset.version, id, tuple(names), tuple(read), work, size, run
            )
            with closing(spread(task, todo)) as turns:
                for made in turns:
                    fragment = dataset.get_fragment(made["fragment"])
                    if _commit(dataset, fragment, made["file"], names):
                        used.add(made["file"])
                        yield made["shown"], made["written"]
            if not todo:
                return
    finally:
        remove(run, used)


def _has(dataset: Any, fragment: Any, names: Sequence[str]) -> bool:
    there = {number for file in fragment.metadata.files for number in file.fields}
    return bool(there & set(_fields(dataset, names)))


def _fields(dataset: Any, names: Sequence[str]) -> list[int]:
    known = {field.name(): field.id() for field in dataset.lance_schema.fields()}
    return [known[name] for name in names]


def _write(
    file: str | Path,
    dataset: Any,
    fragment: Any,
    id: str,
    names: Sequence[str],
    read: Sequence[str],
    work: Work,
    size: int,
) -> Iterator[int]:
    from lance.file import LanceFileWriter

    schema = pa.schema([dataset.schema.field(name) for name in names])
    scanner = dataset.scanner(
        columns=list(dict.fromkeys([id, *read])),
        fragments=[fragment],
        batch_size=size,
        scan_in_order=True,
        # A file has a place for every row that the fragment ever had.
        with_row_id=True,
        include_deleted_rows=True,
    )
    version = str(dataset.data_storage_version)
    with ThreadPoolExecutor(1) as pool:
        writing: deque[Future[None]] = deque()
        with LanceFileWriter(str(file), schema, version=version) as writer:
            try:
                for rows in ahead(iter(scanner.to_batches())):
                    live = rows["_rowid"].is_valid()
                    shown = rows.filter(live).drop_columns(["_rowid"])
                    token = pa.array(np.full(len(shown), dataset.version, np.int64))
                    made = work(shown.append_column(TOKEN, token)) if len(shown) else None
                    while len(writing) >= _BEHIND:
                        writing.popleft().result()
                    whole = _scattered(made, rows[id], live, id, schema)
                    writing.append(pool.submit(writer.write_batch, whole))
                    yield 0 if made is None else len(made)
            finally:
                for one in writing:
                    one.result()


def _scattered(
    made: pa.RecordBatch | None, ids: pa.Array, live: pa.Array, id: str, schema: pa.Schema
) -> pa.RecordBatch:
    """What was made, each row in its place, and nothing in the places of the others."""
    if made is None:
        return pa.RecordBatch.from_arrays(
            [pa.nulls(len(ids), f.type) for f in schema], schema=schema
        )
    columns = [made[name].cast(schema.field(name).type) for name in schema.names]
    if len(made) < len(ids) or not made[id].equals(ids):
        places = pc.index_in(ids, value_set=made[id])
        places = pc.if_else(live, places, pa.scalar(None, places.type))
        columns = [column.take(places) for column in columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _commit(dataset: Any, fragment: Any, file: str, names: Sequence[str]) -> bool:
    """Whether the fragment was still as it had been read."""
    import lance
    from lance.fragment import DataFile

    fields = _fields(dataset, names)
    major, minor = map(int, str(dataset.data_storage_version).split("."))
    changed = fragment.metadata
    changed.files.append(DataFile(file, fields, list(range(len(fields))), major, minor))
    update = lance.LanceOperation.Update(
        updated_fragments=[changed], fields_modified=fields, update_mode="rewrite_columns"
    )
    try:
        lance.LanceDataset.commit(dataset.uri, update, read_version=dataset.version, max_retries=0)
    except (OSError, RuntimeError) as error:
        if in_use(dataset.uri, [file]):
            return True
        if is_conflict(error) or is_cut_off(error):
            return False
        raise
    return True
