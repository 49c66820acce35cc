"""examples/study/length.py: measuring on the same tokens, interruptions, the report."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from examples.study import (
    algorithmic,
    length,
    length_figures,
    length_measures,
    length_report,
    length_results,
    training,
)
from examples.study.length_measures import FACTORS, KINDS, bits, chosen_tokens, read_blocks
from tests import processes
from tupe_fairseq import TupeTransformerLM, UsageError


def words(data, out, *more):
    small = ("--length", "16", "--masked-length", "16", "--updates", "2", "--masked-updates", "2")
    few = ("--encodings", "learned,rope", "--masked-encodings", "t5", "--seeds", "1")
    return [str(data), "--out", str(out), *small, *few, "--blocks", "2", *more]


@pytest.fixture
def quick(monkeypatch):
    """One round in forked processes; two lengths; one scaling; tiny models of strings."""

    def run_module(words, log, what, workers, lock):
        tiny = ("--batch-size", "2", "--longest", "60", "--every", "30", "--tasks")
        algorithmic.main([*map(str, words[1:]), *tiny, "reverse_string"])

    monkeypatch.setattr(training, "run_module", processes.run_module)
    monkeypatch.setattr(length, "run_module", run_module)
    monkeypatch.setattr(length, "ROUNDS", 1)
    monkeypatch.setattr(length, "SCALINGS", ("linear",))
    for module in (length, length_measures, length_figures, length_report, length_results):
        monkeypatch.setattr(module, "FACTORS", (1, 4))


@pytest.mark.slow
def test_an_interrupted_study_goes_on(toy_masked_lm_data, tmp_path, monkeypatch, quick, capsys):
    out, measured = tmp_path / "out", []
    causal = words(toy_masked_lm_data, out, "--parts", "causal")
    measure = length.measure

    def interrupted(*given):
        if measured:
            raise KeyboardInterrupt
        measured.append(given)
        return measure(*given)

    monkeypatch.setattr(length, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        length.main(causal)
    log = (out / "causal/rope/1/log.txt").read_text()
    loss = (out / "causal/learned/1/loss.json").read_text()
    assert not (out / "causal/rope/1/loss.json").exists()

    monkeypatch.setattr(
        length, "measure", lambda *given: measured.append(given) or measure(*given)
    )
    length.main(causal)
    changed = [{}, {}, {"rope_scaling": "linear"}, {"attention_window": 15}]
    assert [given[-1] for given in measured] == changed
    assert (out / "causal/rope/1/log.txt").read_text() == log, "nothing is trained again"
    assert (out / "causal/learned/1/loss.json").read_text() == loss
    check_losses(out, toy_masked_lm_data)
    report_of_all_parts(out, toy_masked_lm_data, tmp_path)
    assert len(measured) == 6, "causal models are not measured again"
    with pytest.raises(UsageError, match=r"other settings \(see measuring.json\)"):
        length.main([*causal, "--blocks", "1"])


def report_of_all_parts(out, data, tmp_path):
    """Run the other parts; the report has all of them, and is drawn again by --report."""
    others = ("--parts", "masked", "algorithmic", "--algorithmic-encodings", "none")
    results = tmp_path / "results"
    more = (*others, "--algorithmic-updates", "1", "--results", str(results))
    length.main(words(data, out, *more))
    report = (results / "report.md").read_text()
    for name in ("rope", "rope, linear", "rope, window", "t5", "t5, window"):
        assert report.count(f"| `{name}` | ") == 3
    assert "| `reverse_string` | `none` | " in report
    assert "1 updates of 2 strings" in report
    # <s> and four times the 15 tokens beside it.
    assert "in sequences of 61 tokens" in report
    assert report.count("Planned and not run: nothing.") == 3
    assert str(tmp_path) not in report
    figures = [results / "length.png", results / "algorithmic.png"]
    for path in figures:
        path.unlink()
    length.main(words(data, out, *more, "--report"))
    assert all(path.stat().st_size for path in figures)
    found = json.loads((results / "results.json").read_text())
    assert list(found) == ["causal", "masked", "algorithmic"]
    (solved,) = found["algorithmic"]["reverse_string"]["none"]
    assert solved["by_length"].keys() == {"30", "60"}
    assert solved["minutes"] >= 0
    assert found["causal"]["learned"]["1"]["4"].keys() == {"mean", "last"}


def check_losses(out, data):
    """Loss of each token by itself, after the context that it has: logits in float64."""
    found = json.loads((out / "causal/rope/1/loss.json").read_text())["4"]
    hub = TupeTransformerLM.from_pretrained(
        *(out / "causal/rope/1", "checkpoint_last.pt", data),
        **{"max_target_positions": 64, "tokens_per_sample": 64},
    )
    blocks, losses = read_blocks(data, 64, 2), []
    for block in blocks:
        for end in (1, 5, 16, 40, 64):
            logits = hub.models[0](block[None, :end])[0][0, -1].double()
            share = logits.exp() / logits.exp().sum()
            losses.append(-math.log2(share[block[end]].item()))
    expected = (torch.tensor(losses[:5]) + torch.tensor(losses[5:])) / 2
    got = torch.tensor([found["by_position"][end - 1] for end in (1, 5, 16, 40, 64)])
    torch.testing.assert_close(got, expected, atol=2e-4, rtol=0)
    assert found["mean"] == pytest.approx(sum(found["by_position"]) / 64, abs=1e-4)
    assert found["last"] == pytest.approx(sum(found["by_position"][48:]) / 16, abs=1e-4)


def test_masked_models_predict_the_same_tokens_at_all_lengths():
    """Masks do not depend on the length, and the loss is that of masked tokens alone."""
    blocks = torch.randint(4, 40, (3, 33), generator=torch.Generator().manual_seed(0))
    kind, mask, first = KINDS["masked"], 41, 0
    chosen = chosen_tokens(kind, blocks)
    assert 0 < chosen.float().mean() < 0.4

    def model(inputs):
        assert (inputs[:, 0] == first).all()
        seen.append(inputs[:, 1:].reshape(-1))
        # Masked tokens get probability 1/42, as all others.
        return (torch.zeros(*inputs.shape, 42),)

    task = SimpleNamespace(mask_idx=mask, source_dictionary=SimpleNamespace(bos=lambda: first))
    hub = SimpleNamespace(model=model, task=task)
    for size in (2, 8, 32):
        seen: list[torch.Tensor] = []
        loss = bits(kind, hub, blocks, chosen, size)
        expected = torch.where(chosen, mask, blocks[:, 1:])
        assert torch.equal(torch.cat(seen).view(3, 32), expected)
        assert torch.equal(loss.isnan(), ~chosen)
        torch.testing.assert_close(loss[chosen], torch.full_like(loss[chosen], math.log2(42)))


def test_seeds(toy_masked_lm_data):
    """All with the first seed, and then the repeated causal ones with the others."""
    flags = ("--seeds", "3", "4", "--updates", "4", "--masked-updates", "4")
    args = length.parse([str(toy_masked_lm_data), "--out", "out", *flags])
    args.causal = args.masked = ["none", "rope", "alibi"]
    assert list(length.runs_of(args, "causal")) == [
        *("none/3", "rope/3", "alibi/3", "rope/4", "alibi/4")
    ]
    assert list(length.runs_of(args, "masked")) == ["none/3", "rope/3", "alibi/3"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--encodings", "tupe"), "--position-encoding is 'tupe'"),
        (("--masked-encodings", "xpos"), "--masked-encodings has 'xpos'"),
        (("--encodings", "rope+randomize_positions=9"), "must draw from at least 256 positions"),
        (("--repeated", "learned,roep"), "--repeated has 'roep', which --encodings does not have"),
        (("--updates", "6"), "--updates must be a multiple of 4, but is 6"),
        (("--workers", "0"), "--workers, --blocks and --algorithmic-updates must be"),
        (("--length", "8"), "--length and --masked-length must be at least 16"),
    ],
)
def test_mistakes(more, message, toy_masked_lm_data, tmp_path):
    args = words(toy_masked_lm_data, tmp_path / "out", "--updates", "4", "--masked-updates", "4")
    with pytest.raises(UsageError, match=message):
        length.main([*args, *more])
    with pytest.raises(UsageError, match=r"holds no dict\.txt"):
        length.main([*words(tmp_path, tmp_path / "out"), "--updates", "4"])
    assert not (tmp_path / "out").exists()


def test_held_out_text_must_fill_a_block(toy_masked_lm_data):
    with pytest.raises(UsageError, match="at least 1000001 are needed"):
        read_blocks(toy_masked_lm_data, 10**6, 1)


def test_options_become_flags():
    assert length.flags_of("tupe_r+tie_cls=false+num_buckets=8", 3) == [
        *("--position-encoding", "tupe_r", "--seed", "3", "--no-tie-cls", "--num-buckets", "8")
    ]


def test_growth_and_verdict():
    runs = {seed: {str(k): {"mean": 3 + seed * k / 10} for k in FACTORS} for seed in (1, 2)}
    changes = length_results.growth(runs)
    assert changes[1] == 0
    assert changes[16] == pytest.approx(2.25)
    assert [length_results.verdict(v) for v in (-1, 0.05, 0.4, 0.6)] == [
        *("holds", "holds", "degrades", "breaks")
    ]
