"""What models begin with, and that they learn."""

import math

import pytest
import torch

from tests.fairseq.decoder.samples import MODELS, VARIANTS, WITH_ENCODER, build, stock

EVERY_MODEL = [*MODELS, *(("tupe_roberta", variant) for variant in WITH_ENCODER)]
every_model = pytest.mark.parametrize(("arch", "variant"), EVERY_MODEL)


@every_model
def test_one_seed_gives_all_encodings_the_same_backbone(variant, arch):
    """Or else a comparison of encodings would compare initialisations too."""
    name, options = VARIANTS[variant]
    without = stock(arch, position_encoding="none").state_dict()
    found = stock(arch, position_encoding=name, **options).state_dict()
    assert without.keys() <= found.keys()
    for key, value in without.items():
        assert torch.equal(found[key], value), key


@pytest.mark.parametrize("arch", ["tupe_transformer", "tupe_transformer_lm"])
def test_positions_from_sinusoids_begin_as_large_as_sinusoids(arch):
    """Beside words times √C, as in Vaswani et al. 2017."""
    model = stock(arch, position_encoding="learned", from_sinusoids=True)
    waves = [k / 10000 ** (2 * i / 16) for k in range(80) for i in range(8)]
    expected = torch.tensor([f(angle) for angle in waves for f in (math.sin, math.cos)])
    for side in ("encoder", "decoder"):
        if (stack := getattr(model, side, None)) is not None:
            # fairseq's row of position 0 is 2; that of padding is 1.
            table = stack.embed_positions.weight.detach()
            torch.testing.assert_close(table[2:], expected.view(80, 16))
            assert not table[1].any()


@pytest.mark.parametrize("width", [64, 80], ids=["as wide", "wider"])
def test_parameters_begin_as_large_as_fairseqs(width):
    """Also where the decoder is wider than the encoder, and its attention begins larger."""
    settings = {
        **dict.fromkeys(("encoder_embed_dim", "encoder_ffn_embed_dim"), 64),
        **dict.fromkeys(("decoder_embed_dim", "decoder_ffn_embed_dim"), width),
        **dict.fromkeys(("decoder_input_dim", "decoder_output_dim"), width),
    }
    learned = dict.fromkeys(("encoder_learned_pos", "decoder_learned_pos"), True)
    theirs = dict(stock("transformer", **learned, **settings).named_parameters())
    ours = dict(
        stock("tupe_transformer", position_encoding="learned", **settings).named_parameters()
    )
    assert ours.keys() <= theirs.keys()
    for name, parameter in ours.items():
        if parameter.dim() == 2:
            expected = theirs[name].std().item()
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name


@every_model
def test_every_parameter_learns(variant, arch):
    """But for single rows that no sentence reaches; FLOATER once it has begun to move.

    All hidden units of FIRE bend within the sentences: biases of linear ones have no effect.
    """
    model = build(variant, arch)
    parameters = dict(model.named_parameters())
    for key in parameters:
        if key.endswith("hidden_bias"):
            weight = parameters[key.replace("hidden_bias", "hidden_weight")]
            parameters[key].data = -0.1 * weight.data[:, 0]
    words = torch.randint(4, 34, (2, 60))
    source = (torch.randint(4, 34, (2, 9)), None) if arch == "tupe_transformer" else ()
    model(*source, words)[0].square().sum().backward()
    assert not [key for key, p in parameters.items() if p.grad is None or not p.grad.any()]


@pytest.mark.parametrize("arch", ["tupe_transformer", "tupe_transformer_lm"])
def test_counting_updates_draws_no_random_numbers(arch):
    """fairseq calls it before every update; the dropout masks must depend on the seed alone."""
    model = build("tupe_r", arch)
    state = torch.get_rng_state()
    model.set_num_updates(3)
    assert torch.equal(torch.get_rng_state(), state)
