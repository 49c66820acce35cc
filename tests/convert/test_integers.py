"""Products in programs whose matrices have 8 bits."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="onnx is not installed (extra onnx)")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tupe_fairseq.convert.integers import quantize  # noqa: E402


def product(tmp_path, x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x W by a program in 8 bits, and the numbers of its matrix."""
    shapes = (["rows", x.shape[1]], ["rows", weight.shape[1]])
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip("xy", shapes, strict=True)
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph(
        [node], "product", values[:1], values[1:], [numpy_helper.from_array(weight, "w")]
    )
    opset = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=10), tmp_path / "fp32.onnx")
    quantize(tmp_path / "fp32.onnx", tmp_path / "int8.onnx")
    program = onnx.load(tmp_path / "int8.onnx")
    (integers,) = (
        numpy_helper.to_array(each)
        for each in program.graph.initializer
        if each.data_type == TensorProto.INT8
    )
    session = onnxruntime.InferenceSession(tmp_path / "int8.onnx")
    return session.run(None, {"x": x})[0], integers


@pytest.mark.parametrize("inputs", [64, 65])
@pytest.mark.parametrize("rows", [1, 7, 40])
def test_the_largest_factors_do_not_overflow(tmp_path, rows, inputs):
    """Sums of two products that are as large as they can be, on processors without VNNI too."""
    signs = np.array([1, -1, 1, 0], dtype=np.float32)
    weight = np.tile(signs, (inputs, 1))
    weight[:, 2] *= np.resize([251, 3], inputs)  # both are rounded up
    x = np.full((rows, inputs), 255, dtype=np.float32)
    found, integers = product(tmp_path, x, weight)
    assert integers[:2, 2].tolist() == [126, 2]
    scales = np.array([2, 2, 254, 1]) / 127
    np.testing.assert_allclose(found, x.astype(float) @ (integers * scales), rtol=1e-6)


def test_weights_are_rounded_to_8_bits(tmp_path):
    """In steps of a 127th of the largest, where no sum of two neighbours is larger."""
    generator = np.random.default_rng(0)
    weight = generator.uniform(0, 1, (48, 10)) * np.resize([1, -1], 48)[:, None]
    weight = weight.astype(np.float32)
    x = generator.normal(size=(9, 48)).astype(np.float32)
    found, integers = product(tmp_path, x, weight)
    scales = abs(weight).max(0) / 127
    np.testing.assert_array_equal(integers, (weight / scales).round())
    expected = x.astype(float) @ weight
    assert np.linalg.norm(found - expected) < 1e-2 * np.linalg.norm(expected)
