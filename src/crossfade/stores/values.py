"""The small key-value place of stores that are folders: one JSON file, replaced as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from crossfade.errors import BadInput, StoreError
from crossfade.files import replacing
from crossfade.files.guards import cannot_write


def beside(table: Path, what: str) -> Path:
    """A file of ours next to a table that is a folder, which stays its owner's.

    By the whole name, so that `emb.v1` and `emb.v2` have their own; a link leads to the table.

    >>> beside(Path("/shop/items.lance"), "json").as_posix()
    '/shop/.items.lance.crossfade.json'
    """
    try:
        table = table.resolve()
    except RuntimeError as error:
        raise BadInput(str(error), where=table, step="mend the link") from None
    return table.with_name(f".{table.name}.crossfade.{what}")


def read_kept(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of ours; None if there is no file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"cannot be read ({error.strerror})", where=path, step="check its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from None
    if not isinstance(found, dict):
        raise damaged(path, "it is no JSON object")
    return found


def damaged(path: Path, cause: str) -> StoreError:
    """The error of a file of ours that is not as it was written."""
    return StoreError(
        f"what Crossfade keeps beside the store is damaged ({cause})",
        where=path,
        step="restore it from a backup: it says how far a migration has come",
    )


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
        try:
            self.path.parent.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(self.path, error) from error
        with replacing(self.path, overwrite=True) as temporary:
            temporary.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")

    def clean(self) -> None:
        """Remove what a killed process left on its way to putting a value."""
        for path in self.path.parent.iterdir():
            if path.name.startswith(f".{self.path.name}.tmp-"):
                path.unlink(missing_ok=True)

    def _all(self) -> dict[str, str]:
        values = read_kept(self.path) or {}
        if not all(isinstance(value, str) for value in values.values()):
            raise damaged(self.path, "it does not hold texts alone")
        return values
