#!/usr/bin/env python3
"""Training speed of the same GPT in PyTorch, for bench/run.py: one process, one JSON line.

    bench/train_peer.py --mode eager --precision bf16 --length 256 --steps 6

GPT-2 as most people write it: tied embedding, learned positions, F.scaled_dot_product_attention, tanh GELU, biases, no
dropout, fused AdamW with two groups, clipping by the global norm; bf16 is autocast over fp32 weights. "compiled" is
torch.compile of model and loss. Prints the seconds of every step and its loss; the caller measures memory.
"""
import argparse
import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.query_key_value, self.dense = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, s, h = x.shape
        parts = self.query_key_value(self.norm1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.dense(attended.transpose(1, 2).reshape(b, s, h))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, hidden, heads, vocabulary, positions):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(positions, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, labels):
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.words.weight)
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def new_optimizer(model):
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def step(loss_of, model, optimizer, tokens, precision):
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        loss = loss_of(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def profile(take_step):
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        take_step()
    table = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=60)
    print(table, file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["eager", "compiled"], required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--shape", default="12,768,12,50304", help="layers,hidden,heads,vocabulary")
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--profile", action="store_true", help="where one more step spends its time, on stderr")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    model = Gpt(*map(int, arguments.shape.split(",")), positions=1024)
    loss_of = torch.compile(model) if arguments.mode == "compiled" else model
    optimizer = new_optimizer(model)
    vocabulary = int(arguments.shape.split(",")[3])

    def take_step():
        tokens = torch.randint(vocabulary, (arguments.micro_batch, arguments.length + 1))
        return step(loss_of, model, optimizer, tokens, arguments.precision)

    seconds, losses = [], []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        losses.append(take_step())
        seconds.append(time.perf_counter() - start)
    if arguments.profile:
        profile(take_step)
    print(json.dumps({"seconds": seconds, "losses": losses, "torch": torch.__version__}))


main()
