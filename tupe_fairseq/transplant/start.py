"""The parameters that an encoder begins with, beside those that it shares with its source."""

import torch
import torch.nn.functional as F
from torch import Tensor

from ..position.learned import LearnedPosition
from .encoders import Encoder
from .texts import Texts

#: Texts of a batch, and texts from which the longest are chosen, for each of these.
BATCH = 32
CHOICE = 16
#: Updates of the fit, and their rate.
UPDATES = 400
RATE = 2e-3


@torch.no_grad()
def keep_mean_position(source: Encoder, student: Encoder, length: int) -> None:
    """Add the mean of the source's position embeddings to the input of each token.

    The first LayerNorm then reads what it has read before, but for the place. For sources that
    add positions to the input, and encoders with token types.
    """
    positions = source.base.encoder.embed_positions
    types = student.base.encoder.embed_token_types
    if isinstance(positions, LearnedPosition) and types is not None:
        first = positions.first_row
        types.weight += positions.weight[first : first + length].mean(0)


def fit_bias(source: Encoder, student: Encoder, texts: Texts) -> None:
    """Fit what an encoding adds to scores to what positions add to them in the source.

    That is the mean over layers; encodings that add nothing or have no parameters stay.
    """
    encoding = student.base.encoder.embed_positions
    parameters = list(encoding.parameters())
    if not (encoding.uses("attention_bias") and parameters):
        return
    expected = positional_scores(source, texts).nanmean(0).nan_to_num()
    length = expected.size(-1)
    # Row 0 is that of [CLS], whose bias may be constant.
    expected = _centred(expected)[:, 1:]
    optimizer = torch.optim.Adam(parameters, RATE)
    for _ in range(UPDATES):
        found = _centred(encoding.attention_bias(length, length).dense())[:, 1:]
        optimizer.zero_grad()
        F.mse_loss(found, expected).backward()
        optimizer.step()


@torch.no_grad()
def positional_scores(source: Encoder, texts: Texts) -> Tensor:
    """The mean scores of positions over texts: layers × H × T × T; T is the longest they share.

    There are as many texts as held-out ones. The mean of the row is 0, since softmax ignores it.
    Scores are logarithms of attention weights, so they contain what the source adds to scores;
    those outside a window are NaN.
    """
    number = len(texts.held_out)
    ids = sorted(texts.ids(texts.train[: CHOICE * number]), key=len)[-number:]
    length = len(ids[0])
    total: Tensor | float = 0.0
    for first in range(0, len(ids), BATCH):
        group = [each[: length - 1] + each[-1:] for each in ids[first : first + BATCH]]
        weights = torch.stack(source.attentions(texts.batch(group)))
        scores = weights.where(weights > 0, torch.nan).log()
        total = total + _centred(scores).sum(1)
    return torch.as_tensor(total) / len(ids)


def _centred(scores: Tensor) -> Tensor:
    return scores - scores.nanmean(-1, keepdim=True)
