"""Time of updates of Hugging Face's RoBERTa, trained as fairseq-train trains ours.

    python -m examples.gpu.huggingface --batch 32 --tokens 512 --updates 60

Masked language modelling of random ids in bfloat16 under autocast, with torch's fused AdamW and
clipped gradients; at the end it logs `clock | {"updates": N, "seconds": S}` as
examples/study/timed_train.py does. The first --log-interval updates are not counted.
"""

import argparse
import json
import time

import torch

from examples.gpu.data import VOCABULARY
from examples.shared import script
from tupe_fairseq.extras import import_extra

#: Share of the tokens that are predicted, and the label of the others.
MASKED, IGNORED = 0.15, -100
SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def main(argv: list[str] | None = None) -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    for name, default in (("batch", 32), ("tokens", 512), ("updates", 60), ("log-interval", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tiny", action="store_true", help="a model for a check on a CPU")
    args = parser.parse_args(argv)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    transformers = import_extra("transformers", "hf")
    torch.manual_seed(1)
    config = transformers.RobertaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=args.tokens + 2,
        type_vocab_size=1,
        attn_implementation="sdpa",
        **({**SMALL, "intermediate_size": 32} if args.tiny else {}),
    )
    model = transformers.RobertaForMaskedLM(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=device == "cuda")
    ids = torch.randint(4, VOCABULARY, (args.batch, args.tokens), device=device)
    for update in range(args.updates):
        if update == args.log_interval:
            start = now(device)
        labels = ids.masked_fill(torch.rand(ids.shape, device=device) > MASKED, IGNORED)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    seconds = now(device) - start
    entry = {"updates": args.updates - args.log_interval, "seconds": round(seconds, 3)}
    print(f"huggingface | clock | {json.dumps(entry)}", flush=True)


def now(device: str) -> float:
    """Seconds, when the device has completed its work; on a CPU processor time."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    script.run(main)
