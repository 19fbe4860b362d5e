"""Rows whose vectors went into a column that was no longer there.

Lance takes an append that was begun before a column was dropped and ended after it: the row is
there, without what it had in that column, which lies in the file that was appended all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossfade.stores.lance.swap import swapped_in


class Strays:
    """What was appended since the version before `vector`'s old column was dropped, and still
    holds something for it; each file is shown once."""

    def __init__(self, before: Any, path: Path, vector: str) -> None:
        self.before, self.path, self.vector = before, path, vector
        self.swap = swapped_in(before.schema, vector)
        fields = {field.name(): field.id() for field in before.lance_schema.fields()}
        self._field = fields[self.swap.aside]
        self._seen = {fragment.fragment_id for fragment in before.get_fragments()}

    def find(self, now: Any, names: Sequence[str], size: int) -> Iterator[pa.RecordBatch]:
        """Their rows, with `names` as they were before the drop."""
        from lance.file import LanceFileReader

        for fragment in now.get_fragments():
            if fragment.fragment_id in self._seen:
                continue
            self._seen.add(fragment.fragment_id)
            for file in fragment.data_files():
                if self._field in file.fields:
                    reader = LanceFileReader(str(self.path / "data" / file.path))
                    for rows in reader.read_all(batch_size=size).to_batches():
                        yield self._shown(rows, names)

    def _shown(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        found = {}
        for name in names:
            kind = self.before.schema.field(self.swap.kept(name)).type
            # Whoever opened the table before the swap knew the column by its own name.
            known = [name, self.swap.kept(name)] if name == self.vector else [name]
            there = [
                n for n in known if n in rows.schema.names and rows.schema.field(n).type == kind
            ]
            found[name] = rows[there[0]] if there else pa.nulls(len(rows), kind)
        return pa.RecordBatch.from_pydict(found)
