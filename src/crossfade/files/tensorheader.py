"""The header of a safetensors file, parsed by hand because the library cannot stream a tensor.

Eight bytes give the header's length, little-endian; the header is JSON: a name for each tensor,
with its type, shape and the bytes it takes after the header. Nothing in it is believed before it is
checked: lengths against the file's size, offsets against each other, types against a list.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossfade.errors import BadInput
from crossfade.files.contract import ArrayInfo
from crossfade.files.guards import file_size, reading, truncated

MAX_HEADER = 100_000_000  # The safetensors library's own bound.

BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}
NUMPY = {
    "BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16",
    **{f"{kind}{bits}": f"{word}{bits}" for kind, word in (("I", "int"), ("U", "uint"))
       for bits in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor: its type and shape, and where in the file its bytes begin."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int

    def info(self) -> ArrayInfo:
        return ArrayInfo(self.name, self.shape, NUMPY.get(self.dtype, self.dtype))


@dataclass(frozen=True)
class TensorHeader:
    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def read_header(path: Path) -> TensorHeader:
    """Read and check the header of the file."""
    size = file_size(path)
    with reading(path), path.open("rb") as file:
        if size < 8:
            raise truncated(path, f"{size} bytes are no header")
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER:
            raise _foreign(path, f"a header of {length} bytes")
        if length > size - 8:
            raise truncated(path, f"its header takes {length} bytes and {size - 8} are there")
        text = file.read(length)
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _foreign(path, "a header that is not JSON") from error
    if not isinstance(entries, dict):
        raise _foreign(path, "a header that is not a JSON object")
    metadata = entries.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _foreign(path, "metadata that is not text")
    begin = 8 + length
    tensors = {name: _tensor(path, name, entry, begin) for name, entry in entries.items()}
    _check_offsets(path, list(tensors.values()), begin, size)
    return TensorHeader(tensors, metadata)


def write_header(
    tensors: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> bytes:
    """The bytes before the first tensor, for tensors that lie in the order of `tensors`."""
    entries: dict[str, object] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + nbytes(dtype, shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # So that the numbers begin at a multiple of eight bytes.
    return len(text).to_bytes(8, "little") + text


def nbytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * BITS[dtype] // 8


def _tensor(path: Path, name: str, entry: Any, begin: int) -> Tensor:
    try:
        dtype, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _foreign(path, f"no type, shape and place for '{name}'") from error
    whole = isinstance(shape, list) and all(
        type(n) is int and n >= 0 for n in [*shape, first, last]
    )
    if not whole or not isinstance(dtype, str) or dtype not in BITS:
        raise _foreign(path, f"'{name}' of type {dtype!r} and shape {shape!r}")
    tensor = Tensor(name, dtype, tuple(shape), begin + first, last - first)
    if tensor.nbytes != nbytes(dtype, tensor.shape):
        raise _foreign(path, f"{tensor.info()} in {tensor.nbytes} bytes")
    return tensor


def _check_offsets(path: Path, tensors: list[Tensor], begin: int, size: int) -> None:
    place = begin
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != place:
            raise _foreign(path, f"'{tensor.name}' at byte {tensor.offset} instead of {place}")
        place += tensor.nbytes
    if place > size:
        raise truncated(path, f"its tensors end at byte {place} and the file at byte {size}")


def _foreign(path: Path, what: str) -> BadInput:
    return BadInput(
        f"is not a safetensors file, or is damaged: it has {what}",
        where=path,
        step="write it with safetensors' save_file",
    )
