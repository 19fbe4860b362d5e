"""Which of a collection's vectors holds the old ones, what Qdrant calls it, and its distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.stores.names import PREFIX
from crossfade.stores.qdrant.rows import UNNAMED

_DISTANCES: dict[str, Distance] = {"Cosine": "cosine", "Euclid": "l2", "Dot": "dot"}


def the_vector(
    vectors: Mapping[str, Any], wanted: str | None, promoting: str | None, where: str
) -> str:
    """The name of the old vectors: the one that is wanted, being promoted, or alone there.

    >>> the_vector({"": None, "crossfade_vector": None}, None, None, "items")
    'vector'
    """
    own = [name or "vector" for name in vectors if not name.startswith(PREFIX)]
    name = wanted or promoting
    if name is None:
        if len(own) != 1:
            raise BadInput(
                f"has {len(own)} vectors" if own else "has no vectors",
                where=where,
                step=f"name one with --vector: {', '.join(own)}",
            )
        name = own[0]
    # While it is being promoted the old vector may be gone for a moment.
    if name not in own and name != promoting:
        raise BadInput(
            f"has no vector {name!r}", where=where, step=f"its vectors are {', '.join(own)}"
        )
    return name


def real_name(vectors: Mapping[str, Any], name: str) -> str:
    """Qdrant's own name for it: a vector without a name is called `vector` here.

    While it is being promoted it may be gone for a moment; then it comes back with its name.
    """
    return UNNAMED if name == "vector" and name not in vectors and UNNAMED in vectors else name


def params_of(vectors: Mapping[str, Any], real: str) -> Any:
    """The settings of the old vector, or of another while it is being promoted."""
    return vectors.get(real) or next(iter(vectors.values()))


def the_distance(params: Any, name: str, wanted: Distance | None, where: str) -> Distance:
    """How the collection compares these vectors; raises if it is not known, or not as wanted."""
    distance = _DISTANCES.get(params.distance.value)
    if distance is None or params.multivector_config is not None:
        raise BadInput(
            f"compares {name!r} in a way that is not known here",
            where=where,
            step="use one vector a point, with Cosine, Euclid or Dot",
        )
    if wanted not in (None, distance):
        raise BadInput(f"compares by {distance}, not by {wanted}", where=where)
    return distance


def refuse_unnamed(where: str) -> None:
    """For local mode, of a collection whose vector has no name."""
    raise BadInput(
        "local mode takes no vectors without a name beside named ones, "
        "and the application could not insert rows",
        where=where,
        step="make the collection with a named vector, or run a Qdrant server",
    )
