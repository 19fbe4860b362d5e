"""The maps between the old, the new and the shared space: one file per mathematical object."""

from crossfade.maps.affine import Affine
from crossfade.maps.mlp import Mlp
from crossfade.maps.near_orthogonal import NearOrthogonal
from crossfade.maps.orthogonal import Orthogonal

Map = Orthogonal | NearOrthogonal | Affine | Mlp

KINDS: dict[str, type[Orthogonal] | type[NearOrthogonal] | type[Affine] | type[Mlp]] = {
    kind.kind: kind for kind in (Orthogonal, NearOrthogonal, Affine, Mlp)
}

__all__ = ["KINDS", "Affine", "Map", "Mlp", "NearOrthogonal", "Orthogonal"]
