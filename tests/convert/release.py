"""Checkpoints in the format of the authors' code, from a table of its names and shapes."""

from argparse import Namespace
from pathlib import Path

import torch

ENCODER = "decoder.sentence_encoder."
WORDS = [f"w{i}" for i in range(20)]
#: Ids of the release: its own symbols, the words, and `<mask>` last.
SYMBOLS = ["<s>", "<pad>", "</s>", "<unk>", "<file>", "<email>", "<url>", *WORDS, "<mask>"]
WIDTH = 16
HEADS = 2
INNER = 24
LAYERS = 2
POSITIONS = 12


def linear(name: str, out: int, into: int = WIDTH) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}


def shapes(
    *,
    relative: bool = True,
    embedding_norm: bool = True,
    pre_norm: bool = False,
    joint: bool = False,
    heads: tuple[str, ...] = (),
    short_heads: tuple[str, ...] = (),
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all parameters."""
    encoder = {
        "embed_tokens.weight": (len(SYMBOLS), WIDTH),
        "pos.weight": (POSITIONS + 1, WIDTH),
        **norm("pos_ln"),
        **(norm("emb_layer_norm") if embedding_norm else {}),
        **(norm("emb_out_layer_norm") if pre_norm else {}),
        **({"relative_attention_bias.weight": (33, HEADS)} if relative else {}),
    }
    for name in ("pos_proj",) if joint else ("pos_q_linear", "pos_k_linear"):
        encoder |= linear(name, 2 * WIDTH if joint else WIDTH)
    for layer in range(LAYERS):
        encoder |= layer_shapes(f"layers.{layer}.")
    head = {
        **linear("decoder.lm_head.dense", WIDTH),
        **norm("decoder.lm_head.layer_norm"),
        "decoder.lm_head.bias": (len(SYMBOLS),),
    }
    for name in heads:
        head |= linear(f"classification_heads.{name}.dense", WIDTH)
    for name in (*heads, *short_heads):
        head |= linear(f"classification_heads.{name}.out_proj", 3)
    return {f"{ENCODER}{name}": shape for name, shape in encoder.items()} | head


def layer_shapes(layer: str) -> dict[str, tuple[int, ...]]:
    return {
        f"{layer}self_attn.in_proj_weight": (3 * WIDTH, WIDTH),
        f"{layer}self_attn.in_proj_bias": (3 * WIDTH,),
        **linear(f"{layer}self_attn.out_proj", WIDTH),
        **norm(f"{layer}self_attn_layer_norm"),
        **linear(f"{layer}fc1", INNER),
        **linear(f"{layer}fc2", WIDTH, INNER),
        **norm(f"{layer}final_layer_norm"),
    }


def state(seed: int = 0, **kind) -> dict[str, torch.Tensor]:
    """Parameters larger than initial ones, so that each of them changes the outputs."""
    generator = torch.Generator().manual_seed(seed)
    made = {name: 0.4 * torch.randn(s, generator=generator) for name, s in shapes(**kind).items()}
    for name in made:
        if name.rpartition(".")[0].endswith(("_ln", "norm")) and name.endswith("weight"):
            made[name] += 1
    made[f"{ENCODER}embed_tokens.weight"][1] = 0
    made["decoder.lm_head.weight"] = made[f"{ENCODER}embed_tokens.weight"]
    return made


def arguments(*, relative=True, embedding_norm=True, pre_norm=False, **_) -> Namespace:
    """The settings that the release records, without those of training."""
    return Namespace(
        arch="bert_base",
        task="masked_lm",
        data="/data",
        encoder_layers=LAYERS,
        encoder_embed_dim=WIDTH,
        encoder_ffn_embed_dim=INNER,
        encoder_attention_heads=HEADS,
        activation_fn="gelu",
        pooler_activation_fn="tanh",
        dropout=0.1,
        attention_dropout=0.1,
        activation_dropout=0.0,
        pooler_dropout=0.1,
        max_positions=POSITIONS,
        embedding_normalize=embedding_norm,
        encoder_normalize_before=pre_norm,
        rel_pos=relative,
    )


def write(folder: Path, parameters: dict | None = None, settings=None, **kind) -> Path:
    """Write checkpoint.pt and dict.txt; returns the checkpoint's path."""
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = {
        "args": arguments(**kind) if settings is None else settings,
        "model": state(**kind) if parameters is None else parameters,
        "optimizer_history": [{"criterion_name": "MaskedLmLoss", "num_updates": 7}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 2.5},
    }
    torch.save(checkpoint, folder / "checkpoint.pt")
    (folder / "dict.txt").write_text("".join(f"{word} {9}\n" for word in WORDS))
    return folder / "checkpoint.pt"


def tokens() -> torch.Tensor:
    """Sentences of 11, 6 and 1 words, padded on the right."""
    ids = torch.randint(4, len(SYMBOLS), (3, 11), generator=torch.Generator().manual_seed(5))
    ids[:, 0] = 0
    ids[1, 6:] = 1
    ids[2, 1:] = 1
    return ids
