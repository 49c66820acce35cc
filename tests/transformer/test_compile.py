"""--compile-layers: no graph breaks, the same results, a compiler, and when it is the default."""

import logging
from functools import partial

import pytest
import torch

from tests.attention.cases import EMBED_DIM, encoder_of, normal, words
from tests.tolerances import assert_close
from tupe_fairseq import UsageError
from tupe_fairseq.attention import Feature, choose_backend
from tupe_fairseq.kernels import native
from tupe_fairseq.transformer import compiling, layers
from tupe_fairseq.transformer.forward_pass import Pass
from tupe_fairseq.transformer.layer import TransformerLayer

LENGTH = 9
MASK = torch.arange(LENGTH) >= torch.tensor([9, 4])[:, None]
#: Before torch 2.13, the choice of a backend breaks the graph of a whole encoder.
TRACES_ENUMERATIONS = torch.__version__ >= "2.13"


def counted(graphs, graph, inputs):
    """In place of a compiler."""
    graphs.append(graph)
    return graph.forward


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        *(("eager", name) for name in ("shaw", "deberta")),
        *(("sdpa", name) for name in ("rope", "tupe_r", "transformer_xl")),
        *(("flash", name) for name in ("learned", "tupe_a", "pope")),
    ],
)
def test_layers_are_one_graph(backend, name):
    """With fullgraph, a break is an error."""
    encoder = encoder_of(name, LENGTH, attention_backend=backend)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    expected = encoder(x, MASK, words(x))
    graphs = []
    torch._dynamo.reset()
    for layer in encoder.layers:
        layer.compile(backend=partial(counted, graphs), fullgraph=True)
    out = encoder(x, MASK, words(x))
    out.sum().backward()
    assert 1 <= len(graphs) <= len(encoder.layers)
    assert_close(out, expected)


def test_any_number_of_tokens_read_is_one_graph():
    """The last layer has a graph for its first number, and one for all others."""
    encoder = encoder_of("tupe_r", LENGTH, num_layers=1, attention_backend="sdpa")
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    expected = encoder(x).flatten(0, 1)
    graphs = []
    torch._dynamo.reset()
    encoder.layers[0].compile(backend=partial(counted, graphs), fullgraph=True)
    for number in (7, 5, 3, 11):
        cells = torch.randperm(2 * LENGTH)[:number]
        assert_close(encoder.encode(x, wanted=Pass(read=cells)).x, expected[cells])
    assert len(graphs) == 2


@pytest.mark.parametrize("name", ["tupe_r", "rope", "deberta", "alibi"])
def test_whole_encoder(name):
    """As with torch.compile(encoder), for texts of equal length; one graph."""
    encoder = encoder_of(name, LENGTH)
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    expected = encoder(x, None, words(x))
    torch._dynamo.reset()
    encoder.compile(backend="eager", fullgraph=TRACES_ENUMERATIONS)
    assert_close(encoder(x, None, words(x)), expected)


def test_compiled_layers_give_the_same():
    """Through the compiler, forward and backward, with dropout in training."""
    if native.find_compiler() is None:
        pytest.skip("no C++ compiler")
    assert compiling.fault("cpu") is None
    torch._dynamo.reset()
    plain, compiled = (
        encoder_of("tupe_r", LENGTH, num_layers=1, dropout=0.1, compile_layers=each)
        for each in (False, True)
    )
    compiled.load_state_dict(plain.state_dict())
    x = normal(2, LENGTH, EMBED_DIM, seed=0)
    compiled(x, MASK).sum().backward()
    assert all(p.grad.isfinite().all() for p in compiled.layers.parameters())
    assert_close(compiled.eval()(x, MASK), plain.eval()(x, MASK))


def test_backends_that_cannot_be_compiled():
    assert choose_backend("auto", {Feature.COMPILED, Feature.DISTANCE}).name == "sdpa"
    with pytest.raises(UsageError, match=r"'blocked', but .*--compile-layers"):
        encoder_of("tupe_r", LENGTH, attention_backend="blocked", compile_layers=True)


def test_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UsageError, match=r"needs a C\+\+ compiler"):
        encoder_of("none", LENGTH, compile_layers=True)


@pytest.fixture
def compiled(monkeypatch):
    """The layers that are compiled, on CPUs too, with nothing in place of a compiler."""
    found = []
    monkeypatch.setattr(layers, "FASTER_ON", ("cpu",))
    monkeypatch.setattr(compiling, "fault", lambda device: None)
    monkeypatch.setattr(TransformerLayer, "compile", lambda layer: found.append(layer))
    return found


def in_training(encoder):
    encoder.train()(normal(2, LENGTH, EMBED_DIM, seed=0))


def test_layers_are_compiled_by_default_in_training(compiled, caplog):
    """Once, and one line says so."""
    caplog.set_level(logging.INFO, "tupe_fairseq.transformer.compiling")
    encoder = encoder_of("tupe_r", LENGTH, compile_layers=None)
    encoder.eval()(normal(2, LENGTH, EMBED_DIM, seed=0))
    assert not compiled
    for _ in range(2):
        in_training(encoder)
    assert compiled == list(encoder.layers)
    (line,) = (each for each in caplog.messages if "torch.compile" in each)
    assert "--no-compile-layers" in line


def test_layers_are_not_compiled_where_they_shall_not_be(compiled, monkeypatch):
    in_training(encoder_of("tupe_r", LENGTH, compile_layers=False))
    monkeypatch.undo()
    monkeypatch.setattr(TransformerLayer, "compile", lambda layer: compiled.append(layer))
    in_training(encoder_of("tupe_r", LENGTH, compile_layers=None))
    assert not compiled


class Wrapped(torch.nn.Module):
    """As data-parallel classes wrap a layer."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return self.module(*args)


def wrapped(encoder):
    encoder.layers[0] = Wrapped(encoder.layers[0])


def hooked(encoder):
    encoder.layers[1].fc1.register_forward_pre_hook(lambda *_: None)


@pytest.mark.parametrize(
    ("change", "backend", "told"),
    [
        (wrapped, "auto", "fully_sharded"),
        (hooked, "auto", "hooks"),
        (lambda _: None, "blocked", "blocked, torch.compile"),
    ],
)
def test_what_prevents_compilation(compiled, caplog, change, backend, told):
    caplog.set_level(logging.INFO, "tupe_fairseq.transformer.compiling")
    encoder = encoder_of("tupe_r", LENGTH, compile_layers=None, attention_backend=backend)
    change(encoder)
    in_training(encoder)
    assert not compiled
    (line,) = (each for each in caplog.messages if "torch.compile" in each)
    assert "do not run through torch.compile" in line
    assert told in line


def test_a_compiler_that_fails_is_named(monkeypatch):
    def fails(function):
        raise RuntimeError("\nno kernel\nfor this device")

    compiling.fault.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", fails)
        patch.setattr(compiling, "find_compiler", lambda: ["cc"])
        assert compiling.fault("cpu") == "no kernel"
        compiling.fault.cache_clear()
        patch.setattr(compiling, "find_compiler", lambda: None)
        assert compiling.fault("cpu") == "there is no C compiler"
    compiling.fault.cache_clear()
