"""examples/study/longer_texts.py: the losses of the same tokens in sequences of each length."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from examples.study import longer_texts
from examples.study.longer_texts import bits, chosen_tokens, read_blocks
from tests.fairseq_commands import pretrain
from tupe_fairseq import TupeRobertaModel, UsageError


def test_losses_of_a_model(toy_masked_lm_data, tmp_path, monkeypatch):
    """Those of single blocks in float64; a second call measures what is missing."""
    data = toy_masked_lm_data
    length = 16
    flags = ("--position-encoding", "alibi", "--tokens-per-sample", length)
    pretrain(data, tmp_path, *flags, "--sample-break-mode", "none")
    words = ("longer_texts", "alibi", data, tmp_path, length, 2)
    monkeypatch.setattr("sys.argv", [*map(str, words)])
    longer_texts.main()
    measured = json.loads((path := tmp_path / "measured.json").read_text())
    assert list(measured) == ["", "window"]
    last = length - 1
    # <s> and 16 times the 15 tokens beside it.
    longest = {"max_positions": 16 * last + 1, "tokens_per_sample": 16 * last + 1}
    hub = TupeRobertaModel.from_pretrained(tmp_path, "checkpoint_last.pt", data, **longest)
    symbols = hub.task.source_dictionary
    losses = []
    ends = []
    blocks = read_blocks(data, length, 2)
    for block, chosen in zip(blocks[:, 1:], chosen_tokens(blocks), strict=True):
        tokens = F.pad(block.masked_fill(chosen, symbols.index("<mask>")), (1, 0))
        with torch.no_grad():
            logits = hub.model(tokens[None])[0][0, 1:].double()
        loss = -logits.log_softmax(-1).gather(1, block[:, None])[:, 0] / math.log(2)
        losses.append(loss[chosen])
        ends.append(loss[-last:][chosen[-last:]])
    found = measured[""]
    assert found["tokens"] == len(torch.cat(losses))
    assert found["mean"]["16"] == pytest.approx(torch.cat(losses).mean().item(), abs=1e-4)
    assert found["last"]["16"] == pytest.approx(torch.cat(ends).mean().item(), abs=1e-4)
    path.write_text(json.dumps({"": "kept"}))
    longer_texts.main()
    assert json.loads(path.read_text()) == {"": "kept", "window": measured["window"]}


def test_rope_is_measured_with_each_scaling():
    ways = longer_texts.ways("rope", 16)
    assert list(ways) == ["", *longer_texts.SCALINGS, "window"]
    assert (ways["yarn"], ways["window"]) == ({"rope_scaling": "yarn"}, {"attention_window": 15})


def test_the_same_tokens_are_predicted_at_all_lengths():
    """Masks do not depend on the length, and the loss is that of masked tokens alone."""
    blocks = torch.randint(4, 40, (3, 33), generator=torch.Generator().manual_seed(0))
    mask = 41
    first = 0
    chosen = chosen_tokens(blocks)
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
        loss = bits(hub, blocks, chosen, size)
        expected = torch.where(chosen, mask, blocks[:, 1:])
        assert torch.equal(torch.cat(seen).view(3, 32), expected)
        assert torch.equal(loss.isnan(), ~chosen)
        torch.testing.assert_close(loss[chosen], torch.full_like(loss[chosen], math.log2(42)))


def test_held_out_text_must_fill_a_block(toy_masked_lm_data):
    with pytest.raises(UsageError, match="at least 1600001 are needed"):
        read_blocks(toy_masked_lm_data, 100_001, 1)
