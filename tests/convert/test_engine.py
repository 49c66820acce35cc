"""`optimize(model, engine="onnxruntime")` against the classes of transformers."""

import copy
import gc
import multiprocessing
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
for _library in ("onnxruntime", "onnxscript"):
    pytest.importorskip(_library, reason=f"{_library} is not installed")

from tests.convert.samples import writes_onnx  # noqa: E402
from tests.huggingface.encoders import NAMES, batch, build  # noqa: E402
from tupe_fairseq.base.errors import UsageError  # noqa: E402
from tupe_fairseq.huggingface import optimize  # noqa: E402

pytestmark = writes_onnx


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the programs of this file are, each made when it is first read."""
    return tmp_path_factory.mktemp("programs")


def by_program(model, folder, name, precision="fp32"):
    return optimize(model, precision, engine="onnxruntime", directory=folder / name)


def classifier():
    """A model with a head, whose encoder is that of the programs "bert"."""
    return build("bert", "ForSequenceClassification")


@pytest.fixture
def fast(folder):
    return by_program(classifier().bert, folder, "bert")


@pytest.mark.parametrize("side", ["right", "none"])
@pytest.mark.parametrize("name", NAMES)
def test_features_are_those_of_transformers(folder, name, side):
    model = classifier().bert if name == "bert" else build(name)
    fast, inputs = by_program(model, folder, name), batch(model, side)
    if side == "none":
        # MPNet's positions depend on the ids of padding, mask or not.
        inputs["input_ids"].clamp_(min=4)
    shown = inputs.get("attention_mask", torch.ones_like(inputs["input_ids"])).bool()
    with torch.no_grad():
        theirs, ours = model(**inputs), fast(**inputs)
        assert list(theirs) == list(ours)
        for here, there in zip(ours.to_tuple(), fast(**inputs, return_dict=False), strict=True):
            assert torch.equal(here, there)
    here, there = ours[0][shown], theirs[0][shown]
    assert (here - there).abs().max() < 1e-4 * there.abs().max()
    assert not ours[0][~shown].any()


@pytest.mark.parametrize("name", ["bert", "v3"])
def test_int8_is_near(folder, name):
    model = classifier().bert if name == "bert" else build(name)
    fast, inputs = by_program(model, folder, name, "int8"), batch(model)
    shown = inputs["attention_mask"].bool()
    with torch.no_grad():
        here, there = (each(**inputs)[0][shown] for each in (fast, model))
    assert torch.cosine_similarity(here, there, dim=-1).mean() > 0.99
    assert 0.99 < fast.fidelity.least <= fast.fidelity.mean < 1


def test_heads_pipelines_and_the_given_model(folder, tmp_path):
    """The encoder's program serves it under a head; the given model stays."""
    model = classifier()
    fast = by_program(model, folder, "bert")
    inputs = batch(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(**inputs).logits, model(**inputs).logits)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizerFast(str(tmp_path / "vocab.txt"))
    pipe = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    served = by_program(pipe, folder, "bert")
    for here, there in zip(served(["a b c", "c"]), pipe(["a b c", "c"]), strict=True):
        assert here["label"] == there["label"]
        assert here["score"] == pytest.approx(there["score"], abs=1e-5)


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def in_fork(function):
    """What a function returns in a forked process, which ends."""
    here, there = multiprocessing.Pipe()

    def run():
        # torch's own threads do not go along either, and it waits for them.
        torch.set_num_threads(1)
        there.send(function())

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    try:
        assert here.poll(60)
        result = here.recv()
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
    return result


@pytest.mark.parametrize("kind", ["copy", "pickle", "threads", "fork"])
def test_copies_threads_and_processes(two_threads, folder, kind):
    model = build("bert")
    ids = batch(model)["input_ids"]
    fast = by_program(model, folder, "bert")
    with torch.no_grad():
        expected = fast(ids)[0]
        if kind == "copy":
            found = copy.deepcopy(fast)(ids)[0]
        elif kind == "pickle":
            found = pickle.loads(pickle.dumps(fast))(ids)[0]
        elif kind == "threads":
            run = torch.no_grad()(lambda _: fast(ids)[0])
            with ThreadPoolExecutor(4) as pool:
                results = list(pool.map(run, range(8)))
            assert all(torch.equal(each, expected) for each in results)
            found = results[0]
        else:
            found = torch.from_numpy(in_fork(lambda: fast(ids)[0].numpy()))
    assert torch.equal(found, expected)


def test_a_forked_process_drops_a_program(two_threads, folder):
    """Which has threads in the first process alone; others may have got their memory."""
    model = build("v3")
    ids = batch(model)["input_ids"]
    fast = [by_program(model, folder, "v3") for _ in range(2)]
    with torch.no_grad():
        expected = [each(ids)[0] for each in fast][1]

        def drop():
            found = fast[1](ids)[0].numpy()
            del fast[0]
            gc.collect()
            return found

        assert torch.equal(torch.from_numpy(in_fork(drop)), expected)


def test_temporary_programs_go_with_the_model():
    fast = optimize(classifier().bert, engine="onnxruntime")
    other = pickle.loads(pickle.dumps(fast))
    paths = [each.program.path for each in (fast, other)]
    assert all(path.exists() for path in paths)
    ids = torch.ones(1, 5, dtype=torch.int64)
    with torch.no_grad():
        assert torch.equal(fast(ids)[0], other(ids)[0])
    del fast, other
    gc.collect()
    assert not any(path.exists() or path.parent.exists() for path in paths)


IDS = torch.ones(2, 5, dtype=torch.int64)
LONG = torch.ones(1, 10_000, dtype=torch.int64)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input_ids": IDS, "output_hidden_states": True}, "does not serve output_hidden_states"),
        ({"input_ids": IDS, "output_attentions": True}, "does not serve output_attentions"),
        ({"input_ids": IDS, "position_ids": IDS}, "does not serve position_ids"),
        ({"inputs_embeds": torch.zeros(2, 5, 32)}, "does not serve inputs_embeds"),
        ({"input_ids": IDS, "attention_mask": IDS[:, None, None]}, "attention_mask has the shape"),
        ({"input_ids": IDS, "attention_mask": IDS.triu(1).flip(0)}, "padding before a token"),
        ({"input_ids": LONG}, "input_ids have 10000 tokens, but the program takes"),
    ],
)
def test_what_is_not_served_is_refused(fast, given, message):
    with torch.no_grad(), pytest.raises(UsageError, match=message):
        fast(**given)


def test_gradients_saving_and_answers_are_refused(fast, folder, tmp_path):
    with pytest.raises(UsageError, match="computes no gradients"):
        fast(IDS)
    with pytest.raises(UsageError, match="cannot be saved"):
        fast.save_pretrained(tmp_path)
    reader = build("bert", "ForQuestionAnswering", num_labels=2)
    reader.bert = classifier().bert
    answers = by_program(reader, folder, "bert")
    with torch.no_grad():
        expected = reader(IDS).start_logits
        torch.testing.assert_close(answers(IDS).start_logits, expected, atol=1e-5, rtol=0)
        with pytest.raises(UsageError, match="reads padding"):
            answers(**batch(reader.bert))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"engine": "tensorrt"}, "engine is 'tensorrt', but must be one of: torch, onnxruntime"),
        ({"engine": "onnxruntime", "precision": "bf16"}, "must be one of: fp32, int8"),
        ({"directory": "here"}, "engine 'torch' has no program: leave it out"),
    ],
)
def test_bad_arguments(more, message):
    with pytest.raises(UsageError, match=message):
        optimize(classifier().bert, **more)


def test_programs_of_another_model_are_refused(fast, folder):
    with pytest.raises(UsageError, match="or directory has another model's program"):
        by_program(transformers.BertModel(fast.config).eval(), folder, "bert")


def test_hooks_are_not_ignored(fast, folder):
    model = classifier().bert
    model.encoder.layer[1].output.register_forward_hook(lambda module, given, out: out.flip(-1))
    with pytest.raises(UsageError, match="or the encoder hooks, which a program has not"):
        by_program(model, folder, "bert")


def test_without_the_extra(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="this needs onnxruntime"):
        by_program(classifier().bert, folder, "bert")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: build("bert", is_decoder=True), "is_decoder"),
        (lambda: optimize(build("modernbert")), "it has been optimized already"),
    ],
)
def test_encoders_without_a_program_stay(model, reason):
    model = model()
    with pytest.warns(UserWarning, match=f"these encoders stay as they are: .*{reason}"):
        assert type(optimize(model, engine="onnxruntime")) is type(model)
