"""A model that does not fit on the GPU: decide by measured speed which block goes where, and generate with it.

    python examples/split_live_model.py --memory cuda:0=2GiB            # on a machine with a GPU
    python examples/split_live_model.py --dry-run --memory cuda:0=2GiB  # anywhere: modelled costs, no weight is made

The model is a mixture of experts with random weights; put ``from_pretrained`` in its place for a real one.
"""

from __future__ import annotations

import argparse

import torch
import transformers

import placewright.torch as live


def main() -> None:
    """Build, fit, explain, generate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="append", default=[], metavar="DEVICE=SIZE", help="a limit, cuda:0=2GiB")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--dry-run", action="store_true", help="no weights, modelled costs")
    options = parser.parse_args()
    memory = dict(limit.split("=", 1) for limit in options.memory)
    config = transformers.MixtralConfig(
        vocab_size=8000, hidden_size=1024, intermediate_size=2048, num_hidden_layers=options.layers,
        num_attention_heads=16, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2,
    )  # fmt: skip
    with torch.device("meta" if options.dry_run else "cpu"):
        model = transformers.MixtralForCausalLM(config).to(torch.bfloat16).eval()
        prompt = torch.ones((1, 128), dtype=torch.long)
    placement = live.fit(model, {"input_ids": prompt}, memory=memory, phase={"prefill": 1, "decode": 100})
    print(live.explain(placement))
    device_map, lost = live.device_map(placement)
    print(f"as Accelerate's device_map: {len(device_map)} entries; it cannot express: {'; '.join(lost) or 'nothing'}")
    if options.dry_run:
        return
    live.dispatch(model, placement)
    tokens = model.generate(prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)
    print(f"generated {tokens.shape[1] - prompt.shape[1]} tokens")
    live.undispatch(model)


if __name__ == "__main__":
    main()
