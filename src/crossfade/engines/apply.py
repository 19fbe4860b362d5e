"""Applying an upgrade to files, wherever an engine has it done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from numpy.typing import DTypeLike

from crossfade.engines.contract import Engine
from crossfade.errors import BadInput
from crossfade.files import (
    Layout,
    is_folder,
    is_lance,
    open_source,
    refuse_existing,
    replacing,
    write_batches,
)
from crossfade.files.parts import Part, parts_of
from crossfade.remote import is_remote, to_path
from crossfade.upgrade.apply import ApplyReport, Direction, Job, Maps, apply_file, apply_folder

Progress = Callable[[int, int], None]


def apply(
    upgrade: Maps,
    source: str | Path,
    target: str | Path,
    *,
    direction: Direction,
    engine: Engine | None = None,
    column: str | None = None,
    dtype: DTypeLike | None = None,
    batch_rows: int | None = None,
    overwrite: bool = False,
    device: str = "cpu",
    progress: Progress | None = None,
) -> ApplyReport:
    """`apply_file`, with the work done by an engine.

    Files of a folder and fragments of a Lance table are written by the workers, which therefore
    need to see both places; a single file is written here, of what they send.
    """
    if engine is None:
        return apply_file(
            upgrade,
            source,
            target,
            direction=direction,
            column=column,
            dtype=dtype,
            batch_rows=batch_rows,
            overwrite=overwrite,
            device=device,
            progress=progress,
        )
    if device != "cpu":
        raise BadInput("an engine's workers map on their processors", step="leave --device away")
    begin, job = time.perf_counter(), Job(upgrade, direction, column, dtype, batch_rows)
    # Workers may be called in another folder.
    source, target = to_path(source).resolve(), to_path(target)
    refuse_existing(target, overwrite=overwrite)
    if is_folder(source) and not target.suffix:
        return apply_folder(
            job, source, target, overwrite=overwrite, progress=progress, each=engine.each
        )
    opened, parts = open_source(source, column), parts_of(source)
    layout = job.layout(opened)
    if is_lance(target):
        with _dataset(target, overwrite=overwrite) as place_of_it:
            _write_dataset(engine, job, parts, layout, place_of_it, progress)
    else:
        write_batches(
            target, _sent(engine, job, parts, opened.rows, progress), layout, overwrite=overwrite
        )
    return job.report(opened, layout, target, begin)


@dataclass(frozen=True)
class PartJob:
    """The rows of a part, mapped."""

    job: Job

    def __call__(self, part: Part) -> pa.Table:
        return pa.Table.from_batches(self.job.mapped(part.source(self.job.column), part.first))


@dataclass(frozen=True)
class FragmentJob:
    """Writes the mapped rows of a part as fragments of a dataset that is yet to be committed."""

    job: Job
    uri: str
    schema: pa.Schema

    def __call__(self, numbered: tuple[int, Part]) -> tuple[int, int, list[str]]:
        from lance.fragment import write_fragments

        number, part = numbered
        raised: list[Exception] = []

        def watched() -> Iterator[pa.RecordBatch]:
            try:
                yield from self.job.mapped(part.source(self.job.column), part.first)
            except Exception as error:
                # The library passes on only the text of an error in its input.
                raised.append(error)
                raise

        reader = pa.RecordBatchReader.from_batches(self.schema, watched())
        try:
            found: Any = write_fragments(reader, self.uri, schema=self.schema)
        except Exception as error:
            raise (raised[0] if raised else error) from None
        return number, part.rows, [json.dumps(fragment.to_json()) for fragment in found]


def _sent(
    engine: Engine, job: Job, parts: list[Part], rows: int, progress: Progress | None
) -> Iterator[pa.RecordBatch]:
    done = 0
    for part, table in engine.in_order(PartJob(job), parts):
        yield from table.to_batches()
        done += part.rows
        if progress is not None:
            progress(done, rows)


def _write_dataset(
    engine: Engine,
    job: Job,
    parts: list[Part],
    layout: Layout,
    uri: str,
    progress: Progress | None,
) -> None:
    import lance

    made: dict[int, list[str]] = {}
    done = 0
    for number, rows, fragments in engine.each(
        FragmentJob(job, uri, layout.schema), list(enumerate(parts))
    ):
        made[number] = fragments
        done += rows
        if progress is not None:
            progress(done, layout.rows)
    found = [
        lance.FragmentMetadata.from_json(text) for number in sorted(made) for text in made[number]
    ]
    lance.LanceDataset.commit(uri, lance.LanceOperation.Overwrite(layout.schema, found))


@contextmanager
def _dataset(target: Path, *, overwrite: bool) -> Iterator[str]:
    """Where its files are written: beside a folder of a disk, or at once, for the commit counts."""
    if is_remote(target):
        yield str(target)
        return
    with replacing(target, overwrite=overwrite) as temporary:
        yield str(temporary)
