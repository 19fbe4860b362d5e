"""The small key-value place of stores that are folders: one JSON file, replaced as a whole."""

from __future__ import annotations

import json
from pathlib import Path

from crossfade.errors import StoreError
from crossfade.files import replacing


def beside(table: Path, what: str) -> Path:
    """A file of ours next to a table that is a folder, which stays its owner's.

    By the whole name, so that `emb.v1` and `emb.v2` have their own; a link leads to the table.

    >>> beside(Path("/shop/items.lance"), "json").as_posix()
    '/shop/.items.lance.crossfade.json'
    """
    table = table.resolve()
    return table.with_name(f".{table.name}.crossfade.{what}")


class FileValues:
    """Texts by name, kept in a file.

    >>> import tempfile
    >>> values = FileValues(Path(tempfile.mkdtemp()) / "values.json")
    >>> values.put("stage", "started")
    >>> values.get("stage"), values.get("other")
    ('started', None)
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, key: str) -> str | None:
        return self._all().get(key)

    def put(self, key: str, value: str | None) -> None:
        values = {k: v for k, v in self._all().items() if k != key}
        if value is not None:
            values[key] = value
        self.path.parent.mkdir(exist_ok=True)
        with replacing(self.path, overwrite=True) as temporary:
            temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    def clean(self) -> None:
        """Remove what a killed process left on its way to putting a value."""
        for path in self.path.parent.iterdir():
            if path.name.startswith(f".{self.path.name}.tmp-"):
                path.unlink(missing_ok=True)

    def _all(self) -> dict[str, str]:
        try:
            values: dict[str, str] = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise StoreError(f"is damaged ({error})", where=self.path, step="restore it") from None
        return values
