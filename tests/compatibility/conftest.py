"""An upgrade and rows it has not seen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from crossfade import Upgrade
from crossfade.compatibility import Held
from crossfade.pairs import Pairs


@pytest.fixture(scope="session")
def scene(made):
    """Fitted on the first half of the rows, held out the second."""

    def make(rows=400, **options):
        fit = {
            name: options.pop(name) for name in ("backward_map", "rotate_old") if name in options
        }
        old, new, labels = made(rows=rows, **options)
        half = rows // 2
        upgrade = Upgrade(solver="closed_form", **fit).fit(old[:half], new[:half], labels[:half])
        pairs = Pairs.from_arrays(old[half:], new[half:], labels[half:])
        return SimpleNamespace(
            upgrade=upgrade,
            pairs=pairs,
            held=Held.of(pairs),
            old=old[half:],
            new=new[half:],
            labels=labels[half:],
        )

    return make
