"""A checkpoint of one encoding does not load as another, and the message names both."""

from argparse import Namespace

import pytest

from tests import toy_data
from tupe_fairseq import TupeRobertaModel, UsageError

DICTIONARY = toy_data.word_dictionary()


class Task:
    """As much of a task as building a model needs."""

    source_dictionary = target_dictionary = DICTIONARY

    def max_positions(self):
        return 8


def build(name):
    sizes = {"layers": 2, "embed_dim": 8, "ffn_embed_dim": 8, "attention_heads": 2}
    own = {f"encoder_{key}": value for key, value in sizes.items()}
    return TupeRobertaModel.build_model(Namespace(**own, position_encoding=name), Task())


@pytest.mark.parametrize(
    ("trained", "built"),
    [
        ("kerple_log", "kerple_power"),
        ("kerple_power", "kerple_log"),
        ("fire", "t5"),
        ("t5", "fire"),
        ("rnn", "learned"),
        ("fire", "rnn"),
        ("rnn", "kerple_log"),
        ("cape", "fire"),
    ],
)
def test_another_encoding(trained, built):
    state = build(trained).state_dict()
    with pytest.raises(UsageError) as raised:
        build(built).load_state_dict(state, strict=True)
    message = str(raised.value)
    assert f"--position-encoding is '{built}', but the checkpoint's encoding is" in message
    assert trained in message
    assert "\n" not in message
