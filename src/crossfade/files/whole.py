"""A whole column or a whole array of vectors in memory, named as FILE or FILE:NAME."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files import open_source, read_values, split_name

_WIDEST_BYTES = 4 << 30
_ROWS = 1 << 14


def read_column(source: str) -> NDArray[Any]:
    """One value per row.

    >>> import tempfile
    >>> from pathlib import Path
    >>> path = Path(tempfile.mkdtemp()) / "labels.npy"
    >>> np.save(path, np.array(["cat", "dog"]))
    >>> read_column(str(path)).tolist()
    ['cat', 'dog']
    """
    values = read_values(*split_name(source)).to_pylist()
    longest = max((len(one) for one in values if isinstance(one, str)), default=0)
    if 4 * longest * len(values) > _WIDEST_BYTES:
        # numpy makes every row as wide as the longest of them.
        raise BadInput(
            f"has {len(values):,} values of up to {longest:,} characters",
            where=source,
            step="give shorter ones",
        )
    return np.asarray(values)


def read_vectors(source: str) -> NDArray[np.float32]:
    """All vectors, as float32."""
    found = open_source(*split_name(source))
    return np.concatenate([np.asarray(x, np.float32) for x in found.vectors(_ROWS)])
