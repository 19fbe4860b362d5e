"""What the operating system says about a file, turned into errors that name file and next step."""

from __future__ import annotations

import errno
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crossfade.errors import BadInput

_ALWAYS_HELD = 256 << 20
_TIMES_PACKED = 20
_FULL = {errno.ENOSPC, errno.EDQUOT}
_TRUNCATED_STEP = "copy or download it again"


def truncated(path: Path, detail: str) -> BadInput:
    """The error for a file that ends before its contents do."""
    return BadInput(f"is truncated: {detail}", where=path, step=_TRUNCATED_STEP)


def check_unpacked(path: Path, name: str, nbytes: int, packed: int) -> None:
    """Raise if values that are held in memory take far more there than in the file.

    What is not packed passes, however large it is; so does what any machine can hold.
    """
    if nbytes > max(_ALWAYS_HELD, _TIMES_PACKED * packed):
        raise BadInput(
            f"'{name}' unpacks from {packed:,} bytes to {nbytes:,} or more",
            where=path,
            step="write it with np.save, which packs nothing, if it is meant to be so large",
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Errors of the operating system and of the unpackers become `BadInput` about `path`."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadInput("no such file", where=path, step="check the path") from error
    except IsADirectoryError as error:
        raise BadInput("is a folder, not a file", where=path, step="name one file") from error
    except PermissionError as error:
        raise BadInput("may not be read", where=path, step="check its permissions") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise BadInput(f"is damaged ({error})", where=path, step=_TRUNCATED_STEP) from error
    except ValueError as error:
        # No system has a name for it: pathlib's words for a NUL, or for half a character.
        if "null byte" not in str(error) and not isinstance(error, UnicodeEncodeError):
            raise
        raise BadInput("is no path", where=ascii(str(path)), step="check it") from error
    except OSError as error:
        raise BadInput(
            f"cannot be read ({error.strerror or error})", where=path, step="check the disk"
        ) from error


def file_size(path: Path) -> int:
    """Bytes of a file that is there and not empty."""
    with reading(path):
        if path.is_dir():
            raise BadInput("is a folder, not a file", where=path, step="name one file")
        size = path.stat().st_size
    if size == 0:
        raise BadInput("is empty (0 bytes)", where=path, step="write it again")
    return size


def cannot_write(path: Path, error: OSError) -> BadInput:
    """The error for an output that could not be written; nothing is left of it."""
    number = error.errno
    if number is None:
        # Libraries written in Rust give the number only in the text.
        found = re.search(r"os error (\d+)", str(error))
        number = int(found[1]) if found else None
    if number in _FULL:
        return BadInput(
            "the disk is full, nothing was written",
            where=path,
            step="free some space, or write to another disk",
        )
    if number == errno.EFBIG:
        return BadInput(
            "the file would be larger than this system allows, nothing was written",
            where=path,
            step="raise the limit (ulimit -f), or write to another disk",
        )
    reason = os.strerror(number) if number is not None else str(error)
    return BadInput(
        f"cannot be written ({reason})", where=path, step="name a folder you can write to"
    )
