"""A head that is trained anew begins with BERT's pooler, as in transformers."""

import torch

from tests.convert.samples import masked_lm, perturbed

HEAD = "classification_heads.sentence_classification_head"
POOLER = "classification_heads.pooler"


def converted(width: int = 32) -> dict[str, torch.Tensor]:
    """The parameters of a model whose pooler is the head `pooler`."""
    model, _ = masked_lm("learned")
    model.register_classification_head("pooler", width, width)
    return perturbed(model, 1).state_dict()


def test_head_begins_with_the_pooler():
    model, _ = masked_lm("learned")
    model.register_classification_head("sentence_classification_head", 3)
    before = {name: value.clone() for name, value in model.state_dict().items() if HEAD in name}
    state = converted()
    model.load_state_dict(dict(state))
    after = model.state_dict()
    for part in ("weight", "bias"):
        assert torch.equal(after[f"{HEAD}.dense.{part}"], state[f"{POOLER}.dense.{part}"])
        assert torch.equal(after[f"{HEAD}.out_proj.{part}"], before[f"{HEAD}.out_proj.{part}"])


def test_a_trained_head_and_one_of_another_width_stay():
    model, _ = masked_lm("learned", 3)
    trained = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(trained | {n: v for n, v in converted().items() if POOLER in n})
    assert torch.equal(model.state_dict()[f"{HEAD}.dense.weight"], trained[f"{HEAD}.dense.weight"])
    other, _ = masked_lm("learned")
    other.register_classification_head("sentence_classification_head", 3, inner_dim=16)
    before = other.state_dict()[f"{HEAD}.dense.weight"].clone()
    other.load_state_dict(converted())
    assert torch.equal(other.state_dict()[f"{HEAD}.dense.weight"], before)
