#!/usr/bin/env python3
"""Training speed of the same model in PyTorch, for bench/run.py: one process, a JSON line for each thing that happened.

    bench/train_peer.py --mode eager --precision bf16 --length 256 --steps 6 [--model bloom]

The models of shapes.py as most people write them: tied embedding, F.scaled_dot_product_attention (ALiBi as its mask, grouped
queries by enable_gqa), no dropout, fused AdamW with two groups, clipping by the global norm; bf16 is autocast over fp32 weights.
"compiled" is torch.compile of model and loss. --device cuda: on a GPU, a step ends when its loss has come back. Prints {"parameters"} when the model is there, {"step", "seconds", "loss"} after each
step, {"saved"} with the seconds of each torch.save, and {"round"} at the end of --steps steps. With --wait each line of the
standard input begins a round of so many steps; the caller measures memory.
"""
import argparse
import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional

from shapes import GPU_SHAPES, SHAPES, shape_of

LARGEST_ID = 5000  # as the token file of the other side


def alibi_mask(heads, length, dtype):
    """What is added to the scores: -distance * 2^(-8 k / heads) of head k (for a power of two), -inf for what comes later."""
    slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])
    distances = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    mask = slopes[:, None, None] * distances
    return mask.masked_fill(distances > 0, float("-inf"))[None].to(dtype)


def rotations(width, length):
    angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, width, 2) / width))
    return torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


def rotate(x, rotation):
    cosines, sines = (part.to(x.dtype) for part in rotation)
    left, right = x.chunk(2, -1)
    return x * cosines + torch.cat((-right, left), -1) * sines


def new_norm(shape):
    return nn.RMSNorm(shape.hidden, eps=1e-5) if shape.rms_norm else nn.LayerNorm(shape.hidden)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.norm1, self.norm2 = new_norm(shape), new_norm(shape)
        self.query_key_value, self.dense, self.up, self.down = (
            nn.Linear(inputs, outputs, bias=shape.bias) for inputs, outputs in shape.products)

    def attention(self, x, mask, rotation):
        b, s, h = x.shape
        heads, groups = self.shape.heads, self.shape.groups
        parts = self.query_key_value(x).view(b, s, heads + 2 * groups, -1).transpose(1, 2)
        query, key, value = parts.split((heads, groups, groups), 1)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        attended = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=mask is None,
                                                           enable_gqa=groups != heads)
        return self.dense(attended.transpose(1, 2).reshape(b, s, h))

    def mlp(self, x):
        if self.shape.gated:
            gate, up = self.up(x).chunk(2, -1)
            return self.down(functional.silu(gate) * up)
        return self.down(functional.gelu(self.up(x), approximate="tanh"))

    def forward(self, x, mask, rotation):
        x = x + self.attention(self.norm1(x), mask, rotation)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, shape, length, max_positions, mask_type, device):
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.hidden)
        self.positions = nn.Embedding(max_positions, shape.hidden) if shape.positions == "learned" else None
        self.words_norm = nn.LayerNorm(shape.hidden) if shape.embedding_norm else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = new_norm(shape)
        self.mask = alibi_mask(shape.heads, length, mask_type).to(device) if shape.positions == "alibi" else None
        self.rotation = None
        if shape.positions == "rotary":
            self.rotation = [table.to(device) for table in rotations(shape.hidden // shape.heads, length)]
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                last = name.endswith(("dense.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** 0.5 if last else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        self.to(device)

    def forward(self, ids, labels):
        x = self.words(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        if self.words_norm is not None:
            x = self.words_norm(x)
        for block in self.blocks:
            x = block(x, self.mask, self.rotation)
        logits = functional.linear(self.norm(x), self.words.weight)
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def new_optimizer(model):
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() != 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def step(loss_of, model, optimizer, tokens, precision):
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = loss_of(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def profile(take_step):
    on_gpu = torch.cuda.is_initialized()
    activities = [torch.profiler.ProfilerActivity.CUDA if on_gpu else torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profiler:
        take_step()
    order = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    table = profiler.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=60)
    print(table, file=sys.stderr)


def say(**what):
    print(json.dumps(what), flush=True)


def save(model, optimizer, file):
    """Until the bytes are on the disk, as a checkpoint has to be."""
    start = time.perf_counter()
    with open(file, "wb") as opened:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, opened)
        opened.flush()
        os.fsync(opened.fileno())
    say(saved=time.perf_counter() - start, bytes=os.path.getsize(file))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=["eager", "compiled"], required=True)
    parser.add_argument("--precision", choices=["fp32", "bf16"], required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--model", choices=SHAPES | GPU_SHAPES, default="gpt2")
    parser.add_argument("--layers", type=int, help="fewer or more than the model has")
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--max-positions", type=int, default=1024)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--save", metavar="FILE", help="torch.save of model and optimizer, with --save-interval")
    parser.add_argument("--save-interval", type=int, default=1)
    parser.add_argument("--wait", action="store_true", help="rounds of as many steps as each line of the standard input says")
    parser.add_argument("--simd-bits", type=int, help="of the code that torch.compile generates")
    parser.add_argument("--profile", action="store_true", help="where one more step spends its time, on stderr")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    shape = shape_of(arguments.model, arguments.layers)
    mask_type = torch.bfloat16 if arguments.precision == "bf16" else torch.float32
    model = Model(shape, arguments.length, arguments.max_positions, mask_type, arguments.device)
    if arguments.simd_bits:
        from torch._inductor import config
        config.cpp.simdlen = arguments.simd_bits
    loss_of = torch.compile(model) if arguments.mode == "compiled" else model
    optimizer = new_optimizer(model)
    say(parameters=sum(parameter.numel() for parameter in model.parameters()), torch=torch.__version__)

    def take_step():
        tokens = torch.randint(LARGEST_ID, (arguments.micro_batch, arguments.length + 1)).to(arguments.device)
        return step(loss_of, model, optimizer, tokens, arguments.precision)

    for steps in sys.stdin if arguments.wait else [arguments.steps]:
        for number in range(1, int(steps) + 1):
            start = time.perf_counter()
            loss = take_step()
            say(step=number, seconds=time.perf_counter() - start, loss=loss)
            if arguments.save and number % arguments.save_interval == 0:
                save(model, optimizer, arguments.save)
        say(round="done", **({"peak_mib": torch.cuda.max_memory_allocated() >> 20} if arguments.device == "cuda" else {}))
    if arguments.profile:
        profile(take_step)


main()
