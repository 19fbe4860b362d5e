"""An upgrade's map as an ONNX graph: float32 vectors (rows, in) to shared vectors (rows, n)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput, MissingExtra
from crossfade.files import replacing
from crossfade.maps import Mlp, Orthogonal

if TYPE_CHECKING:
    from crossfade.maps.directed import Directed
    from crossfade.upgrade import Upgrade

OPSET = 17
TOLERANCE = 1e-5


def export_onnx(
    upgrade: Upgrade, path: str | Path, *, direction: str = "backward", overwrite: bool = False
) -> float:
    """Write the map of that direction; returns its largest difference from numpy.

    The written model is run by onnxruntime on random vectors and compared with the upgrade itself.
    Where they differ by more than 1e-5 nothing is left behind.
    """
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise MissingExtra(error.name or "onnx", extra="onnx", need="exporting to ONNX") from None
    if direction not in ("backward", "forward"):
        raise BadInput(f"direction={direction!r} is not known", step="use backward or forward")
    content_hash = upgrade.hash_
    directed = upgrade.backward_ if direction == "backward" else upgrade.forward_
    model = _model(directed, content_hash, direction)
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(size=(256, directed.reads.dim)).astype(np.float32)
    (y,) = session.run(None, {"vectors": x})
    difference = float(np.abs(y - directed._rows(x)).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(y).max())):
        raise BadInput(
            f"the exported map differs from numpy by {difference:.1e}, more than {TOLERANCE:.0e}",
            where=path,
        )
    with replacing(Path(path), overwrite=overwrite) as temporary:
        temporary.write_bytes(data)
    return difference


def _model(directed: Directed, content_hash: str, direction: str) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: NDArray[np.float32]) -> str:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def affine(
        x: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None, name: str
    ) -> str:
        y = node("MatMul", [x, constant(f"{name}.weight", weight.T)], f"{name}.product")
        if bias is None:
            return y
        return node("Add", [y, constant(f"{name}.bias", bias)], f"{name}.sum")

    unit = directed.reads.normalization == "l2"
    x = "vectors"
    if unit:
        x = node("LpNormalization", [x], "unit", axis=1, p=2)
    the_map = directed.map
    if isinstance(the_map, Mlp):
        y = x
        for i, (weight, bias) in enumerate(the_map.layers):
            y = affine(y, weight, bias, f"layer{i}")
            if i < len(the_map.layers) - 1:
                y = node("Relu", [y], f"layer{i}.relu")
        if the_map.skip is not None:
            y = node("Add", [y, affine(x, *the_map.skip, "skip")], "with_skip")
    elif isinstance(the_map, Orthogonal):
        y = affine(x, the_map.weight, None, "map")
    else:
        y = affine(x, the_map.weight, the_map.bias, "map")
    if unit:
        node("LpNormalization", [y], "shared", axis=1, p=2)
    else:
        node("Identity", [y], "shared")
    shapes = {"vectors": directed.reads.dim, "shared": the_map.out_dim}
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", dim])
        for name, dim in shapes.items()
    }
    graph = helper.make_graph(
        nodes, "crossfade", [values["vectors"]], [values["shared"]], constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    helper.set_model_props(
        model,
        {
            "crossfade.direction": direction,
            "crossfade.reads": directed.reads.name,
            "crossfade.writes": "shared",
            "crossfade.upgrade": content_hash,
        },
    )
    return model
