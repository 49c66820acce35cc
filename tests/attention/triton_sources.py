"""Compile the Triton kernels for a GPU that is not there, with the arguments of a launch."""

import torch

POINTERS = {
    **dict.fromkeys(("q", "k", "v", "out", "of_out", "of_q", "of_k", "of_v"), "*bf16"),
    **dict.fromkeys(("bias", "lse", "delta", "of_cells"), "*fp32"),
    **dict.fromkeys(("lengths", "sequences"), "*i32"),
    "padding": "*u8",
}
SCALARS = {"key": "i64", "scale": "fp32"}
OPTIONAL = ("bias", "padding", "lengths", "sequences")


def compiled(name: str, architecture: int, optional: bool):
    """A kernel in bfloat16, D = 64; with dropout and all that is optional, or without.

    Without, also for one sentence of one word: Triton compiles a 1 in as a constant.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tupe_fairseq.kernels.triton import backward, forward, launch

    kernel = getattr(forward if name == "attend" else backward, name)
    tiles = launch.tiles(64, torch.bfloat16)
    options = {key: tiles.pop(key) for key in ("num_warps", "num_stages")}
    constants = {"D": 64, "BLOCK_D": 64, "DROPS": optional, "PRECISION": "ieee", **tiles}
    constants["bias_column"] = 1
    if not optional:
        # Without a bias there is nothing to differentiate.
        absent = (argument for argument in OPTIONAL if (name, argument) != ("of_bias", "bias"))
        constants.update(dict.fromkeys(absent), B=1, T=1, num_rows=1)
    types = {argument: "i32" for argument in kernel.arg_names} | SCALARS | POINTERS
    types |= dict.fromkeys(constants, "constexpr")
    signature = {argument: types[argument] for argument in kernel.arg_names}
    places = {argument: (place,) for place, argument in enumerate(kernel.arg_names)}
    values = {places[a]: value for a, value in constants.items() if a in places}
    # Pointers as torch allocates them.
    aligned = {places[a]: [["tt.divisibility", 16]] for a, t in signature.items() if t[0] == "*"}
    source = ASTSource(kernel, signature, values, aligned)
    return triton.compile(source, GPUTarget("cuda", architecture, 32), options)
