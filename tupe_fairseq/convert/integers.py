"""Programs in ONNX whose matrices have 8 bits, with a scale for each row of inputs and weights.

A product x W of floats becomes, by standard operators,

    step = (high − low) / 255            of each row of x, whose range includes 0
    zero = round(−low / step)
    q    = QuantizeLinear(x, step, zero)
    x W  ≈ step · (MatMulInteger(q, W₈) · s − zero · Σ W₈ s)

with W₈ = round(W / s), and s for each output. So no text depends on the others in its batch, apart
from rounding in attention.

Without VNNI, processors add products of 8 bits in pairs, and such a sum overflows beyond 16 bits.
So s is such that the weights of each two neighbouring inputs have a sum of at most 128.
"""

from pathlib import Path
from typing import Any

import numpy as np

#: The largest weight and, before they are rounded, the largest sum of two neighbours.
LARGEST_WEIGHT = 127
#: Programs of more bytes have their parameters in a file beside them.
LARGEST_FILE = 1 << 30
#: Names of the constants, and the beginning of all other names.
ROW = "by_row/"
CONSTANTS = {
    "zero": np.float32(0),
    "share": np.float32(1 / 255),
    "least": np.finfo(np.float32).tiny,
    "last": np.array([-1]),
}


class Graph:
    """The nodes and constants of a program that is rewritten.

    Args:
        weights: arrays by the names of constants.
    """

    def __init__(self, weights: dict[str, Any]):
        self.weights = weights
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        #: What inputs are quantized to, by their names: integers, steps and zeros of rows.
        self.quantized: dict[str, tuple[str, str, str]] = {}
        for name, value in CONSTANTS.items():
            self.constant(name, value)

    def constant(self, name: str, value: Any) -> str:
        """Add a constant, and return its name in the program."""
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(np.asarray(value), ROW + name))
        return ROW + name

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        from onnx import helper

        out = out or f"{ROW}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def quantize(self, x: str, width: int) -> tuple[str, str, str]:
        """The rows of x, of this width, as integers, and the step and zero of each row."""
        from onnx import TensorProto

        if x not in self.quantized:
            last = ROW + "last"
            zero = ROW + "zero"
            low = self.node("Min", self.node("ReduceMin", x, last), zero)
            high = self.node("Max", self.node("ReduceMax", x, last), zero)
            share = self.node("Mul", self.node("Sub", high, low), ROW + "share")
            step = self.node("Max", share, ROW + "least")
            start = self.node("Round", self.node("Neg", self.node("Div", low, step)))
            flat_start = self.node("Reshape", start, last)
            flat_zero = self.node("Cast", flat_start, to=TensorProto.UINT8)
            flat_step = self.node("Reshape", step, last)
            rows = self.node("Reshape", x, self.constant(f"{x}/rows", np.array([-1, width])))
            integers = self.node("QuantizeLinear", rows, flat_step, flat_zero, axis=0)
            q = self.node("Reshape", integers, self.node("Shape", x))
            self.quantized[x] = (q, step, start)
        return self.quantized[x]

    def multiply(self, x: str, weight: str, out: str) -> None:
        """Add the nodes of a product with a weight, I×O."""
        from onnx import TensorProto

        values = self.weights[weight]
        seconds = values[1::2]
        of_pairs = abs(values[: 2 * len(seconds) : 2] + seconds).max(0, initial=0)
        largest = np.maximum(abs(values).max(0), of_pairs)
        scales = (largest / LARGEST_WEIGHT).clip(np.finfo(np.float32).tiny)
        rounded = (values / scales).round().astype(np.int8)
        sums = rounded.sum(0, dtype=np.float32) * scales
        q, step, start = self.quantize(x, len(values))
        product = self.node("MatMulInteger", q, self.constant(f"{out}/weight", rounded))
        total = self.node("Cast", product, to=TensorProto.FLOAT)
        scaled = self.node("Mul", total, self.constant(f"{out}/scales", scales))
        of_zeros = self.node("Mul", start, self.constant(f"{out}/sums", sums))
        self.node("Mul", self.node("Sub", scaled, of_zeros), step, out=out)


def quantize(path: Path, out: Path) -> None:
    """Write the program with 8-bit matrices."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(path)
    graph = model.graph
    matrices = {each.name: each for each in graph.initializer if len(each.dims) == 2}
    products = [n for n in graph.node if n.op_type == "MatMul" and n.input[1] in matrices]
    used = {node.input[1] for node in products}
    outputs = {node.output[0] for node in products}
    made = Graph({name: numpy_helper.to_array(matrices[name]) for name in used})
    for node in graph.node:
        if node.output[0] in outputs:
            made.multiply(node.input[0], node.input[1], node.output[0])
        else:
            made.nodes.append(node)
    left = {name for node in made.nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name not in used - left]
    del graph.node[:]
    graph.node.extend(made.nodes)
    del graph.initializer[:]
    graph.initializer.extend([*kept, *made.constants])
    is_large = model.ByteSize() > LARGEST_FILE
    onnx.save(model, out, save_as_external_data=is_large, location=f"{out.name}.data")
