"""Write tupe_fairseq/arguments/README.md: the flags of all models with defaults and meanings.

    python scripts/list_flags.py > tupe_fairseq/arguments/README.md

`fairseq-train --help` shows no flags of models. A test compares the page with the parsers.
"""

import argparse
import logging
from argparse import Namespace
from collections.abc import Iterator

logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from examples.shared.markdown import table  # noqa: E402
from tupe_fairseq.arguments.architectures import TUPE_DEFAULTS  # noqa: E402
from tupe_fairseq.arguments.flags import add_position_args  # noqa: E402
from tupe_fairseq.arguments.roberta import ROBERTA  # noqa: E402
from tupe_fairseq.arguments.specification import ModelArguments, with_architecture  # noqa: E402
from tupe_fairseq.arguments.transformers import (  # noqa: E402
    LANGUAGE_MODEL,
    OPTION_DEFAULTS,
    REFUSED,
    TRANSFORMER,
)
from tupe_fairseq.position import POSITION_ENCODINGS, known_options  # noqa: E402

HEADER = """# Flags of the models

`fairseq-train --help` shows no flags of models; this page does. `--arch` selects the model, and
defaults are those of `tupe_roberta`, `tupe_transformer` and `tupe_transformer_lm`; other
architectures set other sizes ([`architectures.py`](architectures.py)). In hydra, a flag
`--position-encoding` is the key `model.position_encoding`. A default in parentheses depends on the
data or on other flags. All other flags are fairseq's and are shown by `fairseq-train --help`.

This page is written by `python scripts/list_flags.py`, and a test compares it with the programs.
"""
SIDES = ("encoder", "decoder")
#: What fairseq's flags mean, without the side of those that exist for encoder and decoder.
MEANINGS = {
    "activation_dropout": "dropout after the activation in the feed-forward network",
    "activation_fn": "activation of the feed-forward network",
    "adaptive_input_cutoff": "without effect here",
    "adaptive_input_factor": "without effect here",
    "adaptive_softmax_cutoff": "ranks at which adaptive softmax divides the words",
    "adaptive_softmax_dropout": "dropout in adaptive softmax, for rare words",
    "adaptive_softmax_factor": "ratio of widths of neighbouring parts of adaptive softmax",
    "attention_dropout": "dropout of attention weights",
    "attention_heads": "heads of attention",
    "base_shuffle": "without effect here",
    "base_sublayers": "without effect here",
    "char_embedder_highway_layers": "without effect here",
    "char_inputs": "without effect here",
    "character_embedding_dim": "without effect here",
    "character_filters": "without effect here",
    "checkpoint_activations": "recompute layers in the backward pass instead of storing them",
    "compile_layers": "run the layers through torch.compile, which needs a C++ compiler",
    "dropout": "dropout after embeddings, attention and feed-forward network",
    "embed_dim": "width of the model",
    "embed_path": "file with trained word vectors",
    "export": "without effect here",
    "ffn_blocks_to_remove": "AdaPrune: units of each feed-forward network to remove; -1: none",
    "ffn_embed_dim": "width of the feed-forward network",
    "ffn_reg_scale_factor": "AdaPrune: weight of the regularization of feed-forward units",
    "input_dim": "width of the word embeddings",
    "layerdrop": "probability to skip a layer in training",
    "layernorm_embedding": "LayerNorm of the embeddings",
    "layers": "number of layers",
    "layers_to_keep": "keep these layers of a checkpoint only, e.g. 0,2,4",
    "load_checkpoint_heads": "restore the classification heads of a checkpoint",
    "max_positions": "most tokens of a sequence; with masked_lm `--tokens-per-sample`",
    "max_source_positions": "most tokens of a source",
    "max_target_positions": "most tokens of a target",
    "merge_src_tgt_embed": "one table of embeddings for source and target",
    "mha_reg_scale_factor": "AdaPrune: weight of the regularization of heads",
    "mha_heads_to_keep": "AdaPrune: heads cannot be pruned here; only -1 is supported",
    "min_params_to_wrap": "FSDP wraps a layer with at least as many parameters",
    "no_cross_attention": "decoder without attention to the encoder",
    "no_decoder_final_norm": "no LayerNorm after the last layer if layers begin with one",
    "no_scale_embedding": "do not multiply word embeddings by the root of the width",
    "normalize_before": "LayerNorm before each part of a layer instead of after it",
    "output_dim": "width before the output projection",
    "pooler_activation_fn": "activation of classification heads",
    "pooler_dropout": "dropout of classification heads",
    "quant_noise_pq": "share of weight blocks with quantization noise in training",
    "quant_noise_pq_block_size": "size of these blocks",
    "quant_noise_scalar": "share of weights with noise of scalar quantization",
    "relu_dropout": "older name of `--activation-dropout`",
    "share_all_embeddings": "one table for source, target and output; needs a joined dictionary",
    "share_decoder_input_output_embed": "one table for target and output",
    "spectral_norm_classification_head": "spectral normalization of classification heads",
    "tie_adaptive_proj": "needs adaptive input, which is not supported",
    "tie_adaptive_weights": "needs adaptive input, which is not supported",
    "untie_weights_roberta": "a table of its own for the output of the masked-word head",
}
#: Values that the data or other flags decide.
DERIVED = {
    "max_positions": "(512)",
    "max_source_positions": "(1024)",
    "max_target_positions": "(1024)",
}


def flag_of(action: argparse.Action) -> str:
    """The longest name, in Markdown."""
    return f"`{max(action.option_strings, key=len)}`"


def default_of(value: object) -> str:
    """A default in Markdown."""
    return "-" if value in (None, "") else f"{value}"


def meaning_of(name: str) -> str:
    """What a flag of fairseq means."""
    if name in REFUSED:
        return f"not supported: {REFUSED[name]}"
    for side in SIDES:
        short = name.removeprefix(f"{side}_")
        if short != name and short in MEANINGS:
            return f"{side}: {MEANINGS[short]}"
    return MEANINGS[name]


def common_rows() -> Iterator[tuple[str, str, str]]:
    """Flags of all models that no single encoding owns."""
    parser = argparse.ArgumentParser(add_help=False)
    add_position_args(parser)
    for action in parser._actions:
        if action.dest not in known_options():
            text = (action.help or "").rpartition(" (default:")[0]
            yield flag_of(action), default_of(TUPE_DEFAULTS[action.dest]), text


def option_rows() -> Iterator[tuple[str, str, str, str]]:
    """Options of encodings."""
    for name, option in known_options().items():
        owners = {
            encoding: next((o.default for o in cls.options() if o.name == name), option)
            for encoding, cls in POSITION_ENCODINGS.items()
        }
        owners = {encoding: value for encoding, value in owners.items() if value is not option}
        values = set(map(default_of, owners.values()))
        default = (
            values.pop()
            if len(values) == 1
            else ", ".join(
                f"{encoding}: {default_of(value)}" for encoding, value in owners.items()
            )
        )
        if name in OPTION_DEFAULTS:
            default = f"{default}; transformers: {OPTION_DEFAULTS[name]}"
        encodings = ", ".join(f"`{encoding}`" for encoding in owners)
        yield f"`{option.flag}`", encodings, default, option.help


def model_rows(spec: ModelArguments) -> Iterator[tuple[str, str, str]]:
    """Flags that one model has beside the common ones."""
    common, parser = (argparse.ArgumentParser(add_help=False) for _ in range(2))
    add_position_args(common)
    spec.add_flags(parser)
    values = vars(with_architecture(spec, spec.name, Namespace()))
    shared = {action.dest for action in common._actions}
    for action in parser._actions:
        name = action.dest
        if name not in shared:
            default = DERIVED.get(name) or default_of(values.get(name, action.default))
            yield flag_of(action), default, meaning_of(name)


def page() -> str:
    """The whole page."""
    columns = ("flag", "default", "meaning")
    lines = [HEADER, "## Positions and attention, all models", "", *table(columns, common_rows())]
    lines += ["", "## Options of encodings", ""]
    lines += table(("flag", "encodings", "default", "meaning"), option_rows())
    for spec in (ROBERTA, TRANSFORMER, LANGUAGE_MODEL):
        lines += ["", f"## `{spec.name}`", "", *table(columns, model_rows(spec))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
