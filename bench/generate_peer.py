#!/usr/bin/env python3
"""How fast transformers generates with the same GPT, for bench/run.py: one process, a JSON line of all figures so far after
each.

    bench/generate_peer.py --type bf16 --threads 2 --context 512

A random GPT-2 (12 layers of width 768) through transformers' own cache: tokens a second of one text and of 16 texts, each
token after `context` others, and of reading prompts of 512 and 2,000 tokens; medians of five turns.
"""
import argparse
import json
import statistics
import time

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

TURNS = 5


def median_seconds(work):
    work()
    seconds = []
    for _ in range(TURNS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


@torch.inference_mode()
def decode(model, streams, context):
    """Seconds of one more token of every stream."""
    ids = torch.randint(0, 50000, (streams, context))
    cache = DynamicCache(config=model.config)
    model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    token = ids[:, :1]

    def step():
        model(token, past_key_values=cache, use_cache=True, logits_to_keep=1).logits.argmax(-1)
        cache.crop(-1)  # the token that was added

    return median_seconds(step)


@torch.inference_mode()
def read_prompt(model, length):
    ids = torch.randint(0, 50000, (1, length))
    return median_seconds(lambda: model(ids, use_cache=True, logits_to_keep=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--type", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=512)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    config = GPT2Config(vocab_size=50304, n_positions=2048, n_embd=768, n_layer=12, n_head=12)
    model = GPT2LMHeadModel(config).eval().to(torch.bfloat16 if arguments.type == "bf16" else torch.float32)
    measures = {"one": lambda: 1 / decode(model, 1, arguments.context), "sixteen": lambda: 16 / decode(model, 16, arguments.context),
                "prompt_512": lambda: 512 / read_prompt(model, 512), "prompt_2000": lambda: 2000 / read_prompt(model, 2000)}
    result = {}
    for name, measure in measures.items():
        result[f"{name}_tokens_per_s"] = measure()
        print(json.dumps(result), flush=True)


main()
