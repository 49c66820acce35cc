"""examples/study/length.py: measuring on the same tokens, interruptions, the report."""

import json
import math
import sys
from types import SimpleNamespace

import pytest
import torch

from examples.study import length, length_figures, length_measures, length_report
from examples.study.length_measures import FACTORS, KINDS, bits, chosen_tokens, read_blocks
from tupe_fairseq import TupeTransformerLM, UsageError


def words(data, out, *more):
    small = ("--length", "16", "--masked-length", "16", "--updates", "4", "--masked-updates", "4")
    few = ("--encodings", "alibi", "--masked-encodings", "t5", "--seeds", "1")
    return [str(data), "--out", str(out), *small, *few, "--blocks", "2", *more]


@pytest.mark.slow
def test_all_parts(toy_masked_lm_data, tmp_path, monkeypatch, forking_python):
    """Both parts; and one way of measuring again, as after an interruption."""
    monkeypatch.setattr(sys, "executable", forking_python)
    out = tmp_path / "out"
    length.main(words(toy_masked_lm_data, out))
    check_losses(out, toy_masked_lm_data)
    check_report(out)
    with pytest.raises(UsageError, match="holds causal/alibi/1 with other settings"):
        length.main(words(toy_masked_lm_data, out, "--blocks", "1"))
    path = out / "causal/alibi/1/measured.json"
    ways = json.loads(path.read_text())
    path.write_text(json.dumps({"": "kept"}))
    arguments = ("causal", "alibi", toy_masked_lm_data, path.parent, 16, 2)
    monkeypatch.setattr(sys, "argv", ["length_measures", *map(str, arguments)])
    length_measures.main()
    assert json.loads(path.read_text()) == {"": "kept", "window": ways["window"]}


def test_rope_is_measured_with_each_scaling():
    ways = length_measures.ways("rope", 16)
    assert list(ways) == ["", *length_measures.SCALINGS, "window"]
    assert (ways["yarn"], ways["window"]) == ({"rope_scaling": "yarn"}, {"attention_window": 15})


def test_scores_of_language_models_alone_are_scaled():
    scaled = {"log_scaling_floor": 16}
    assert length_measures.ways("pope", 16, causal=True)["log scaling"] == scaled
    assert "log scaling" not in length_measures.ways("pope", 16)


def check_report(out):
    report = (out / "report.md").read_text()
    for name in ("alibi", "alibi, window", "t5", "t5, window"):
        assert report.count(f"| `{name}` | ") == 3
    # <s> and 16 times the 15 tokens beside it.
    assert "in sequences of 241 tokens" in report
    assert report.count("Planned and not run: nothing.") == 2
    assert "| masked | 1 of 1 | " in report
    assert str(out) not in (out / "results.json").read_text()
    figures = [out / f"{name}.png" for name in ("causal", "masked")]
    for path in figures:
        path.unlink()
    length_report.report(out)
    assert all(path.stat().st_size for path in figures)
    assert (out / "report.md").read_text() == report


def check_losses(out, data):
    """Loss of each token by itself, after the context that it has: logits in float64."""
    found = json.loads((out / "causal/alibi/1/measured.json").read_text())[""]
    hub = TupeTransformerLM.from_pretrained(
        *(out / "causal/alibi/1", "checkpoint_last.pt", data),
        **{"max_target_positions": 256, "tokens_per_sample": 256},
    )
    losses = []
    for block in read_blocks(data, 256, 2):
        logits = hub.models[0](block[None, :-1])[0][0].double()
        losses.append(-logits.log_softmax(-1).gather(1, block[1:, None])[:, 0] / math.log(2))
    expected = torch.stack(losses).mean(0)
    assert found["mean"]["16"] == pytest.approx(expected.mean().item(), abs=1e-4)
    assert found["last"]["16"] == pytest.approx(expected[-16:].mean().item(), abs=1e-4)
    bands = [expected[start:stop].mean().item() for start, stop in length_measures.bands(16)]
    assert found["bands"] == pytest.approx(bands, abs=1e-4)
    assert len(bands) == 7


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


def test_seeds(toy_masked_lm_data, tmp_path):
    """All with the first seed, then masked models and some causal ones with the others."""
    more = ("--seeds", "3", "4", "--encodings", "none,rope,alibi")
    args = length.parse(words(toy_masked_lm_data, tmp_path, *more))
    assert [run.name.partition("/")[2] for run in length.model_runs(args, "causal")] == [
        *("none/3", "rope/3", "alibi/3", "rope/4", "alibi/4")
    ]
    assert [run.name for run in length.model_runs(args, "masked")] == [
        *("masked/t5/3", "masked/t5/4")
    ]


def test_held_out_text_must_fill_a_block(toy_masked_lm_data):
    with pytest.raises(UsageError, match="at least 1000001 are needed"):
        read_blocks(toy_masked_lm_data, 10**6, 1)


def test_growth_and_verdict():
    runs = {seed: {"mean": {str(k): 3 + seed * k / 10 for k in FACTORS}} for seed in (1, 2)}
    changes = length_figures.growth(runs)
    assert changes[1] == 0
    assert changes[16] == pytest.approx(2.25)
    assert [length_figures.verdict(v) for v in (-1, 0.05, 0.4, 0.6)] == [
        *("holds", "holds", "degrades", "breaks")
    ]
