"""Folders and files of an object store (`s3://`, `gs://`, `az://`), as paths.

`RemotePath` has as much of `pathlib.Path` as this package uses, by pyarrow's filesystems. Keys come
from where each service's own tools look for them (the environment, a profile, the machine's role),
never from an address, and are taken out of whatever a service says.

What is different from a disk: there are no folders, only names; a file appears whole when its last
byte is written; nothing is renamed, and nobody can be kept from writing (see `stores.ledger`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import cache, total_ordering
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from crossfade.errors import BadInput, StoreError
from crossfade.redaction import redact

if TYPE_CHECKING:
    _Base = Path
else:
    _Base = object

T = TypeVar("T")
SCHEMES = ("s3", "gs", "az")
# As a `Path` an address has lost a slash.
_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}):/+(.*)", re.DOTALL)
_SECRETS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
)  # fmt: skip
# The clients try again by themselves; what they give up on is tried again from the beginning.
_ATTEMPTS, _FIRST_WAIT = 5, 0.2
_REQUESTS = 10


def to_path(path: str | Path) -> Path:
    """The path that is meant, of this machine or of an object store.

    >>> str(to_path("s3://shop/items")), str(to_path(Path("s3://shop/items")))
    ('s3://shop/items', 's3://shop/items')
    >>> to_path("items").name
    'items'
    """
    if isinstance(path, RemotePath):
        return path
    found = _ADDRESS.fullmatch(str(path))
    return Path(path) if found is None else RemotePath(found[1], found[2])


def is_remote(path: str | Path) -> bool:
    """
    >>> is_remote("s3://shop/items"), is_remote("s3/items")
    (True, False)
    """
    return isinstance(path, RemotePath) or _ADDRESS.fullmatch(str(path)) is not None


def without_keys(text: str) -> str:
    """What a service said, without the keys it was asked with."""
    secrets = [value for name in _SECRETS if len(value := os.environ.get(name, "")) > 3]
    return redact(text, secrets) if secrets else text


class Status(NamedTuple):
    """As much of `os.stat_result` as there is."""

    st_size: int
    st_mtime_ns: int
    st_ino: int = 0


@total_ordering
class RemotePath(_Base):
    """A name in a bucket.

    >>> path = RemotePath("s3", "shop/items/a.parquet")
    >>> str(path), path.name, path.suffix, str(path.parent), str(path.parent / "b")
    ('s3://shop/items/a.parquet', 'a.parquet', '.parquet', 's3://shop/items', 's3://shop/items/b')
    """

    def __init__(self, scheme: str, key: str) -> None:
        parts = PurePosixPath(key.strip("/"))
        if not key.strip("/") or ".." in parts.parts:
            raise BadInput(
                "names no bucket", where=f"{scheme}://{key}", step=f"name {scheme}://BUCKET/PATH"
            )
        self.scheme, self.key = scheme, str(parts)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.key}"

    __repr__ = __str__

    def __hash__(self) -> int:
        return hash(str(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemotePath) and str(self) == str(other)

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: Any) -> RemotePath:
        return RemotePath(self.scheme, f"{self.key}/{name}")

    @property
    def name(self) -> str:
        return PurePosixPath(self.key).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.key).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.key).stem

    @property
    def parent(self) -> RemotePath:
        above = str(PurePosixPath(self.key).parent)
        return self if above == "." else RemotePath(self.scheme, above)

    def with_name(self, name: str) -> RemotePath:
        return RemotePath(self.scheme, str(PurePosixPath(self.key).with_name(name)))

    def resolve(self, strict: bool = False) -> RemotePath:
        return self

    def exists(self, **_: Any) -> bool:
        return bool(self._info().type.name != "NotFound")

    def is_file(self, **_: Any) -> bool:
        return bool(self._info().is_file)

    def is_dir(self, **_: Any) -> bool:
        return bool(self._info().type.name == "Directory")

    def stat(self, **_: Any) -> Any:
        info = self._info()
        if info.type.name == "NotFound":
            raise FileNotFoundError(2, "no such file", str(self))
        return Status(info.size or 0, info.mtime_ns or 0)

    def mark(self) -> tuple[int, int]:
        """What changes whenever it is written: a hash of the service's own mark, and the size."""

        def asked(files: Any) -> tuple[int, int]:
            with files.open_input_file(self.key) as file:
                known = file.metadata()
                # By the mark of its contents where there is one, else by the hour it was written.
                text = known.get("ETag") or known.get("Last-Modified") or str(self.stat())
                hashed = hashlib.blake2b(str(text).encode(), digest_size=8).digest()
                return int.from_bytes(hashed, "big") >> 1, int(file.size())

        return self._asked(asked)

    def iterdir(self) -> Generator[Any, None, None]:
        for info in self.listed():
            yield RemotePath(self.scheme, info.path)

    def listed(self, recursive: bool = False) -> list[Any]:
        """What is there, each with its size and the time it was written: one request a thousand."""
        from pyarrow import fs

        asked = fs.FileSelector(self.key, allow_not_found=True, recursive=recursive)
        return list(self._asked(lambda files: files.get_file_info(asked)))

    def glob(self, pattern: str) -> Generator[Any, None, None]:
        return (path for path in self.iterdir() if fnmatch(path.name, pattern))

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:
        if mode == "rb":
            return self._asked(lambda files: files.open_input_file(self.key))
        if mode in ("wb", "xb"):
            return self._asked(lambda files: files.open_output_stream(self.key))
        raise ValueError(f"an object is not opened for {mode!r}")

    def read_bytes(self) -> bytes:
        def read(files: Any) -> bytes:
            with files.open_input_file(self.key) as file:
                found: bytes = file.readall()
                return found

        return self._asked(read)

    def read_text(self, encoding: str | None = None, *_: Any, **__: Any) -> str:
        return self.read_bytes().decode(encoding or "utf-8")

    def write_bytes(self, data: Any) -> int:
        def write(files: Any) -> int:
            with files.open_output_stream(self.key) as file:
                file.write(data)
            return len(data)

        return self._asked(write)

    def unlink(self, missing_ok: bool = False) -> None:
        if not missing_ok or self.exists():
            self._asked(lambda files: files.delete_file(self.key))

    def remove_folder(self) -> None:
        """All that is below this name."""
        for info in self.listed(recursive=True):
            if info.is_file:
                RemotePath(self.scheme, info.path).unlink(missing_ok=True)

    def mkdir(self, *_: Any, **__: Any) -> None:
        """A name needs no folder."""

    def copy_to(self, target: RemotePath) -> None:
        """A copy that the service makes by itself."""
        self._asked(lambda files: files.copy_file(self.key, target.key))

    def download(self, target: Path) -> None:
        """The whole of a file, to a disk."""

        def fetch(files: Any) -> None:
            with files.open_input_stream(self.key) as source, target.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 22)

        self._asked(fetch)

    def upload(self, source: Path) -> None:
        """The whole of a file, from a disk; it is there when all of it is."""

        def send(files: Any) -> None:
            with source.open("rb") as file, files.open_output_stream(self.key) as target:
                shutil.copyfileobj(file, target, 1 << 22)

        self._asked(send)

    def _info(self) -> Any:
        return self._asked(lambda files: files.get_file_info(self.key))

    def _asked(self, act: Callable[[Any], T]) -> T:
        """What a filesystem answers; again for a while if it fails, then an error of ours."""
        for attempt in range(_ATTEMPTS):
            try:
                return act(filesystem(self.scheme))
            except FileNotFoundError:
                raise FileNotFoundError(2, "no such file", str(self)) from None
            except OSError as error:
                if attempt + 1 < _ATTEMPTS and not _is_final(error):
                    time.sleep(_FIRST_WAIT * 2**attempt)
                    continue
                said = without_keys((str(error).splitlines() or [type(error).__name__])[0])[:300]
                raise StoreError(
                    said, where=self, step="check the address, the keys and the network"
                ) from None
        raise AssertionError


def _is_final(error: OSError) -> bool:
    """Whether asking again cannot help: what is refused stays so."""
    return isinstance(error, PermissionError) or any(
        word in str(error) for word in ("ACCESS_DENIED", "INVALID_ACCESS", "NO_SUCH_BUCKET", "403")
    )


@cache
def filesystem(scheme: str) -> Any:
    """pyarrow's filesystem, with the settings that each service's own tools are given."""
    from pyarrow import fs

    # Nobody lists or makes buckets here.
    if scheme == "s3":
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
        endpoint = next((os.environ[name] for name in names if os.environ.get(name)), None)
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return fs.S3FileSystem(
            endpoint_override=endpoint,
            region=region,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_REQUESTS),
        )
    if scheme == "gs":
        return fs.GcsFileSystem()
    account = os.environ.get("AZURE_STORAGE_ACCOUNT_NAME")
    if not account:
        raise BadInput(
            "the environment variable AZURE_STORAGE_ACCOUNT_NAME is not set", step="export it"
        )
    return fs.AzureFileSystem(account, account_key=os.environ.get("AZURE_STORAGE_ACCOUNT_KEY"))


@contextmanager
def replacing_remote(path: RemotePath, last: tuple[str, ...]) -> Iterator[Path]:
    """A place on this machine's disk; what was made there is written to `path` at the end.

    A file is then there whole or not at all. Of a folder the files named `last` are written after
    the others: whoever reads by them finds all of it, or what was there before in part, which its
    hash tells.
    """
    with tempfile.TemporaryDirectory(prefix="crossfade-") as folder:
        made = Path(folder) / path.name
        yield made
        if made.is_file():
            path.upload(made)
        else:
            found = [file for file in sorted(made.rglob("*")) if file.is_file()]
            for file in sorted(found, key=lambda file: file.name in last):
                (path / file.relative_to(made).as_posix()).upload(file)


@contextmanager
def on_disk(folder: str | Path) -> Iterator[Path]:
    """The files of a folder on this machine's disk: itself, or a copy for as long as it is used."""
    there = to_path(folder)
    if not isinstance(there, RemotePath):
        yield there
        return
    with tempfile.TemporaryDirectory(prefix="crossfade-") as name:
        copy = Path(name) / there.name
        for info in there.listed():
            if info.is_file:
                copy.mkdir(exist_ok=True)
                RemotePath(there.scheme, info.path).download(copy / Path(info.path).name)
        yield copy
