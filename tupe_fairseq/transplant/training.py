"""Distillation of an encoder from its source: the loss, the schedule, checkpoints."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from tqdm import tqdm

from ..base.errors import UsageError
from ..base.files import replacing
from .encoders import Encoder, mean_features
from .fidelity import Fidelity, shown
from .recipe import Recipe
from .texts import SORTED, Batch, Texts

CHECKPOINT = "checkpoint.pt"
PROGRESS = "progress.json"
#: Updates in which the rate rises, and those between two measurements.
WARM_UP = 50
INTERVAL = 100
#: The error must have fallen by this share in so many measurements.
LEAST_GAIN = 0.03
PATIENCE = 2
#: The share of all updates in which the rate falls to 0.
DECAY = 0.25
#: The share of tokens that a head predicts.
HIDDEN = 0.15


def loss_of(
    student: Encoder, source: Encoder, batch: Batch, layers: float, mask_token: int | None
) -> Tensor:
    """The distance of the features of tokens and of texts.

    The squared error of each layer's features, over the variance of the source's, and 1 − the
    cosine of the mean features of texts. With the mask token of a source that predicts masked
    tokens, also the Kullback-Leibler divergence of the predictions for `HIDDEN` of the tokens.
    """
    if mask_token is not None:
        batch = batch.hiding(mask_token, HIDDEN)
    with torch.no_grad():
        expected = source(batch, states=layers > 0)
    found = student(batch, states=layers > 0)
    pairs = list(zip(found, expected, strict=True))
    errors = [F.mse_loss(one, other) / other.var() for one, other in pairs]
    mean = mean_features(found[-1], batch)
    loss = errors[-1] + (1 - F.cosine_similarity(mean, mean_features(expected[-1], batch))).mean()
    loss = loss + layers * sum(errors[:-1]) / max(1, len(errors) - 1)
    if mask_token is None:
        return loss
    cells = batch.ids[batch.mask.bool()].eq(mask_token).nonzero()[:, 0]
    if not len(cells):
        return loss
    with torch.no_grad():
        target = source.logits(expected[-1], batch, cells).log_softmax(-1)
    predicted = student.logits(found[-1], batch, cells).log_softmax(-1)
    return loss + F.kl_div(predicted, target, reduction="batchmean", log_target=True)


class Distillation:
    """A training that stops by itself, and continues from its last measurement.

    The rate rises, stays, and falls linearly to 0 once the error on held-out texts falls no more.
    With more updates than in an earlier call, it goes on, and the rate rises once more.

    Args:
        student: is trained.
        source: has the features that the student should have.
        texts: of both.
        recipe: how it is done.
        out: a directory for the checkpoint and the measures; None: there are none.
    """

    def __init__(
        self,
        student: Encoder,
        source: Encoder,
        texts: Texts,
        recipe: Recipe,
        out: Path | None = None,
    ):
        self.student = student
        self.source = source
        self.texts = texts
        self.recipe = recipe
        self.out = out
        with self._precision():
            self.fidelity = Fidelity(source, texts)
        # Words keep their embeddings, half of the parameters of a small model.
        student.base.get_input_embeddings().requires_grad_(False)
        self.optimizer = torch.optim.AdamW(
            self._groups(), betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        self.update = 0
        #: The update from which the rate rises, and the one until which there are to be any.
        self.rises_from = 0
        self.updates = recipe.updates
        #: The last update, once the rate falls.
        self.end = recipe.updates
        self.falls_from = self._decay()
        self.history: list[dict[str, float]] = []
        self.seconds = 0.0
        #: The batches that are sorted together with the present one.
        self.group: list[Batch] = []

    def _groups(self) -> list[dict[str, Any]]:
        """The parameters with their largest rate."""
        new = self.student.positions()
        known = {id(each) for each in new}
        trained = (each for each in self.student.parameters() if each.requires_grad)
        kept = [each for each in trained if id(each) not in known]
        rates = (self.recipe.lr, self.recipe.position_lr)
        groups = zip((kept, new), rates, strict=True)
        return [{"params": these, "rate": rate} for these, rate in groups if these]

    def run(self) -> None:
        """Train to the end."""
        if not self.history:
            self._measure()
        bar = tqdm(total=self.end, initial=self.update, unit=" updates", disable=None)
        began = time.monotonic()
        with bar:
            while self.update < self.end:
                self._step(self._batch())
                self.update += 1
                bar.update()
                if self.update % INTERVAL == 0 or self.update == self.end:
                    self.seconds += time.monotonic() - began
                    self._measure()
                    began = time.monotonic()
                    bar.total = self.end

    def _batch(self) -> Batch:
        number, place = divmod(self.update, SORTED)
        if place == 0 or not self.group:
            recipe = self.recipe
            shares = (recipe.disordered, recipe.pairs)
            self.group = self.texts.batches(recipe.seed, number, recipe.batch_size, *shares)
        return self.group[place]

    def _step(self, batch: Batch) -> None:
        """One update."""
        self.student.train()
        mask_token = self.texts.tokenizer.mask_token_id if self.source.has_head else None
        with self._precision():
            loss = loss_of(self.student, self.source, batch, self.recipe.layers, mask_token)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = group["rate"] * self._factor()
        self.optimizer.step()

    def _precision(self) -> torch.autocast:
        """In which products of matrices are computed."""
        kind = torch.device(self.texts.device).type
        # A cache would keep copies of parameters that the optimizer changes afterwards.
        return torch.autocast(kind, torch.bfloat16, enabled=self.recipe.bf16, cache_enabled=False)

    def _factor(self) -> float:
        """Of the rate, at this update."""
        rising = (self.update - self.rises_from + 1) / WARM_UP
        falling = (self.end - self.update) / max(1, self.end - self.falls_from)
        return min(1.0, rising, falling)

    def _measure(self) -> None:
        """Measure, decide whether the rate falls from here on, and write a checkpoint."""
        self.student.eval()
        found = {"update": self.update, "minutes": self.seconds / 60}
        with self._precision():
            found |= (measures := self.fidelity(self.student))
        self.history.append(found)
        print(f"update {self.update}: {shown(measures)}", file=sys.stderr, flush=True)
        errors = [e["error"] for e in self.history if e["update"] >= self.rises_from]
        stays = len(errors) > PATIENCE and errors[-1] > (1 - LEAST_GAIN) * errors[-1 - PATIENCE]
        if stays and self.update < self.falls_from:
            self.falls_from = self.update
            self.end = int(self.update / (1 - DECAY))
        if self.out is None:
            return
        # The model card has the measures, so the checkpoint, from which a call continues, is last.
        with replacing(self.out / PROGRESS) as aside:
            aside.write_text(json.dumps(self.history, indent=1) + "\n", encoding="utf-8")
        with replacing(self.out / CHECKPOINT) as aside:
            torch.save(self._state(), aside)

    def _state(self) -> dict[str, Any]:
        names = ("update", "updates", "rises_from", "end", "falls_from", "history", "seconds")
        state = {name: getattr(self, name) for name in names}
        parts = {"student": self.student.state_dict(), "optimizer": self.optimizer.state_dict()}
        return state | parts | {"random": torch.get_rng_state()}

    def resume(self) -> bool:
        """Continue from a checkpoint, with more updates if so many are wanted now.

        Returns:
            Whether there was one.

        Raises:
            UsageError: it is damaged.
        """
        path = None if self.out is None else self.out / CHECKPOINT
        if path is None or not path.exists():
            return False
        try:
            state = torch.load(path, map_location=self.texts.device, weights_only=True)
            self.student.load_state_dict(state.pop("student"))
            self.optimizer.load_state_dict(state.pop("optimizer"))
            torch.set_rng_state(state.pop("random").cpu())
        except Exception as error:
            raise UsageError(f"{path} is damaged ({error}): remove it to begin again.") from error
        vars(self).update(state)
        print(f"continuing at update {self.update}", file=sys.stderr, flush=True)
        if self.recipe.updates > self.updates:
            self._go_on()
        return True

    def _go_on(self) -> None:
        """Raise the number of updates; where the rate has fallen, it rises again."""
        if self.update > self.falls_from:
            self.rises_from = self.update
        self.updates = self.recipe.updates
        self.end = self.updates
        self.falls_from = max(self.update, self._decay())

    def _decay(self) -> int:
        """The update from which the rate falls, if nothing stops the training before."""
        return self.updates - int(DECAY * self.updates)
