"""The benchmarks' lower bound and peers: the same products as stock RoBERTa."""

import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tupe_fairseq import UsageError

LINEAR = (torch.ops.aten.mm, torch.ops.aten.addmm)


def operations(training, work, contender, kinds=(*LINEAR, torch.ops.aten.bmm)) -> int:
    """What torch counts; its fused attention on CPUs, which it does not count, is not used."""
    step = training.prepare(work, "cpu", contender)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        step()
    return sum(counter.get_flop_counts()["Global"].get(kind, 0) for kind in kinds)


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_products_are_those_of_stock_roberta(script, mode):
    training = script("benchmark_training")
    work = training.Workload(2, 24, layers=2, width=16, heads=2, ffn=40, mode=mode)
    products = operations(training, work, training.PRODUCTS)
    assert products == operations(training, work, training.STOCK) > 0
    padded = training.Workload(4, 24, padding=0.5, layers=2, width=16, heads=2, ffn=40, mode=mode)
    assert padded.lengths() == [24, 16, 8, 1]
    assert operations(training, padded, training.PRODUCTS) < products * 49 / 48


@pytest.mark.parametrize("mode", ["training", "evaluation"])
@pytest.mark.parametrize("name", ["hf_roberta", "hf_modernbert"])
def test_peers_have_the_products_of_stock_roberta(script, mode, name):
    """Those of linear layers; ModernBERT has one more batched product, for its rotations."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    training = script("benchmark_training")
    work = training.Workload(2, 24, layers=2, width=16, heads=2, ffn=48, mode=mode)
    expected = operations(training, work, training.STOCK, LINEAR)
    assert operations(training, work, training.PEERS[name].contender, LINEAR) == expected > 0


def test_predictions_of_the_hub_and_of_peers(measure):
    pytest.importorskip("transformers", reason="transformers is not installed")
    flags = "--workloads predict-half-padding,predict-1x16 --encodings tupe_r"
    results, _ = measure("training", flags)
    padded, short = results["tables"]
    assert padded["facts"].startswith("predict, 2×16 tokens, 50% padding")
    assert "20 times" in short["facts"]
    peers = ["HF Roberta", "HF DebertaV2", "HF ModernBert"]
    assert [row["name"] for row in padded["rows"]] == [
        "stock RoBERTa",
        "tupe_r",
        *peers,
        "matrix products",
    ]
    assert list(padded["rows"][1]["quartiles_of_ratios"]) == ["stock", "products", *peers]


@pytest.mark.parametrize("mode", ["training", "predict"])
def test_optimized_peers_beside_themselves(measure, mode):
    pytest.importorskip("transformers", reason="transformers is not installed")
    flags = "--workloads half-padding --encodings none --peers hf_modernbert,optimized_modernbert"
    results, _ = measure("training", f"{flags} --mode {mode}")
    (table,) = results["tables"]
    names = [row["name"] for row in table["rows"]]
    assert names[2:4] == ["HF ModernBert", "optimize(HF ModernBert)"]
    assert "HF ModernBert" in table["rows"][3]["quartiles_of_ratios"]


@pytest.mark.parametrize("name", ["roberta", "deberta_v2", "modernbert"])
def test_optimized_peers_are_not_those_of_transformers(script, name):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.huggingface.encoders import is_optimized

    training = script("benchmark_training")
    peers = script("benchmarking.peers")
    work = training.Workload(2, 24, layers=2, width=16, heads=2, ffn=48)
    assert is_optimized(peers.build(peers.PEERS[f"optimized_{name}"], work, 50).model)
    assert not is_optimized(peers.build(peers.PEERS[f"hf_{name}"], work, 50).model)


def test_peers_without_transformers(script, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(script("benchmarking.peers").importlib.util, "find_spec", lambda _: None)
    assert script("benchmarking.peers").available() == []
    with pytest.raises(UsageError, match="this needs transformers, which is not installed"):
        script("benchmark_training").main(["--peers", "hf_roberta"])


@pytest.mark.parametrize("name", ["disentangled_flash", "flashdeberta"])
def test_packages_with_kernels_that_are_missing(script, monkeypatch, name):
    pytest.importorskip("transformers", reason="transformers is not installed")
    monkeypatch.setitem(sys.modules, name, None)
    tiny = "--workloads 4x512 --device cpu --layers 1 --width 16 --heads 2 --ffn 16 --length 8"
    with pytest.raises(UsageError, match=f"pip install {name.replace('_', '-')}"):
        script("benchmark_training").main([*tiny.split(), "--peers", name])


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
    st.integers(1, 5000),
)
def test_products_do_not_depend_on_the_size_of_the_cache(script, lengths, heads, learns, cells):
    products = script("benchmarking.products")

    def multiplications(cells):
        shapes = products.shapes_of_layer(lengths, 8, heads, 12, learns, cells)
        return sum(n * a * b * c * times for (n, a, b, c), times in shapes.items())

    words = sum(lengths)
    squares = sum(length**2 for length in lengths)
    expected = words * (4 * 8 * 8 + 2 * 8 * 12) + 2 * squares * 8
    assert multiplications(cells) == expected * (3 if learns else 1)
