"""B written into a FAISS index of old vectors, so that new queries are put to it as they are.

`IndexPreTransform` keeps transforms before an index: to unit length (`NormalizationTransform`), the
product with B (`LinearTransform`), then the old index as it was.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crossfade.errors import BadInput
from crossfade.files import replacing
from crossfade.files.faiss import library, read_index
from crossfade.upgrade import Upgrade
from crossfade.upgrade.steps import Normalize, Step, query_steps

TOLERANCE = 1e-5


def export_faiss(
    upgrade: Upgrade, old_index: str | Path, path: str | Path, *, overwrite: bool = False
) -> float:
    """Write the index with B before it; returns the largest difference from the upgrade itself.

    The index that was written takes new vectors, and answers as the old one does to
    `Upgrade.query_for_old` of them. Nothing of the old index is changed.
    """
    faiss = library("writing B into a FAISS index")
    if Path(path).resolve() == Path(old_index).resolve():
        raise BadInput(
            "is the old index itself",
            where=path,
            step="name another file: queries of the old model need it as it is",
        )
    index = read_index(Path(old_index))
    if index.d != upgrade.old_dim_:
        raise BadInput(
            f"holds vectors of {index.d} dimensions, and the upgrade's old ones have "
            f"{upgrade.old_dim_}",
            where=old_index,
            step="name the index of the old model",
        )
    transforms = [_transform(faiss, step) for step in query_steps(upgrade)]
    made = faiss.IndexPreTransform(index)
    for transform in reversed(transforms):
        made.prepend_transform(transform)
    x = np.random.default_rng(0).normal(size=(256, upgrade.new_dim_)).astype(np.float32)
    found = x
    for transform in transforms:
        found = transform.apply(found)
    expected = upgrade.query_for_old(x)
    difference = float(np.abs(found - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise BadInput(
            f"B in FAISS differs from numpy by {difference:.1e}, more than {TOLERANCE:.0e}",
            where=path,
        )
    with replacing(Path(path), overwrite=overwrite) as temporary:
        try:
            faiss.write_index(made, str(temporary))
        except RuntimeError as error:
            raise BadInput(f"FAISS cannot write it ({error})", where=path) from error
    return difference


def _transform(faiss: Any, step: Step) -> Any:
    if isinstance(step, Normalize):
        return faiss.NormalizationTransform(step.dim, 2.0)
    out, given = step.weight.shape
    made = faiss.LinearTransform(given, out, step.bias is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(step.weight, np.float32).ravel(), made.A)
    if step.bias is not None:
        faiss.copy_array_to_vector(np.ascontiguousarray(step.bias, np.float32), made.b)
    made.is_trained = True
    return made
