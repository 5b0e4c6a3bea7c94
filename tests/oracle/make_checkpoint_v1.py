#!/usr/bin/env python3
"""A checkpoint of format version 1, made from docs/checkpoint-format.md alone: tests/data/checkpoints/v1.

Usage: tests/oracle/make_checkpoint_v1.py FOLDER
Needs: safetensors==0.8.0 (writes the tensor files), xxhash==4.1.0 (the checksums).

Element i of every tensor is (i % 251 - 125) / 64, exact in every type used. The checkpoint in tests/data is never made
again: every later release must load it.
"""
import ctypes
import json
import math
import os
import struct
import sys

import safetensors
import xxhash

TYPES = {"BF16": ("bfloat16", 2), "F16": ("float16", 2), "F32": ("float32", 4)}
SHAPES = {
    "embedding": {"word_embeddings.weight": [40, 6]},
    "00000": {"layers.0.mlp.dense_h_to_4h.weight": [9, 6], "layers.0.mlp.dense_h_to_4h.bias": [9]},
    "final": {"final_layernorm.weight": [6], "final_layernorm.bias": [6]},
}
STATE = {
    "step": 1000, "consumed_train_samples": 512000, "consumed_train_tokens": 1048576000, "consumed_valid_samples": 320,
    "scheduler_samples": 511744, "scheduler_tokens": 1048576000, "scheduler_warmup_tokens": 0, "optimizer_steps": 999,
    "skipped_steps": 1, "nan_steps": 0, "loss_scale": 65536.0, "loss_scale_growth_tracker": 17,
    "loss_scale_hysteresis_tracker": 2, "random_scheme": 1, "sample_order": "0123456789abcdef", "layout": "tp1pp1dp1",
    "num_threads": 2, "cpu_type": "some CPU", "libtorch_version": "2.11.0", "run_id": "fixture",
    "counts": {"lm loss/en": 3}, "sums": {"lm loss/en": 0.1, "lm loss/fr": "nan"},
}
CONFIG = "[network_size]\nnum_layers = 1\nhidden_size = 6\nnum_attention_heads = 1\n\n[training]\nseed = 1234\nbf16 = true\n"


def checksum(content):
    return xxhash.xxh3_64_hexdigest(content)


def values(shape, kind):
    count = math.prod(shape)
    numbers = [(i % 251 - 125) / 64 for i in range(count)]
    if kind == "BF16":  # the upper half of the float32
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    return struct.pack("<%d%s" % (count, "f" if kind == "F32" else "e"), *numbers)


def write_tensors(folder, name, shapes, kind, manifest):
    """Writes one safetensors file; appends its tensors in the order of their data."""
    buffers = {key: ctypes.create_string_buffer(values(shape, kind), TYPES[kind][1] * math.prod(shape)) for key, shape in shapes.items()}
    content = safetensors.serialize(
        {key: safetensors.TensorSpec(dtype=TYPES[kind][0], shape=shape, data_ptr=ctypes.addressof(buffers[key]), data_len=len(buffers[key]))
         for key, shape in shapes.items()}, {"format": "pt"})
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    header.pop("__metadata__")
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content)
    manifest["files"].append({"path": name, "bytes": len(content), "hashed_bytes": begin, "xxh3": checksum(content[:begin])})
    for key, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, end = entry["data_offsets"]
        data = content[begin + first:begin + end]
        # Short blocks, as another writer might cut them: any contiguous ranges are legal.
        cut = len(data) // 3 // 4 * 4 or len(data)
        blocks = [[at, min(cut, len(data) - at), checksum(data[at:at + cut])] for at in range(0, len(data), cut)]
        manifest["tensors"].append({"name": key, "dtype": entry["dtype"], "shape": entry["shape"], "file": name, "blocks": blocks})


def main(folder):
    os.makedirs(os.path.join(folder, "tokenizer"))
    manifest = {
        "format": "espalier-checkpoint", "version": 1, "checksum": "0" * 16,
        "model": {"family": "gpt", "compute_type": "bf16", "vocab_size": 37, "padded_vocab_size": 40, "num_parameters": 315},
        "state": STATE, "config": CONFIG, "files": [], "tensors": [],
    }
    for group, shapes in SHAPES.items():
        write_tensors(folder, "weights-%s.safetensors" % group, shapes, "BF16", manifest)
        optimizer = {key + "." + part: shape for key, shape in shapes.items() for part in ("master", "exp_avg", "exp_avg_sq")}
        write_tensors(folder, "optimizer-%s.safetensors" % group, optimizer, "F32", manifest)
    vocab = b'{"a": 0, "b": 1}\n'
    with open(os.path.join(folder, "tokenizer", "vocab.json"), "wb") as file:
        file.write(vocab)
    manifest["files"].append({"path": "tokenizer/vocab.json", "bytes": len(vocab), "hashed_bytes": len(vocab), "xxh3": checksum(vocab)})
    text = json.dumps(manifest, indent=1)
    text = text.replace('"checksum": "' + "0" * 16, '"checksum": "' + checksum(text.encode()), 1)
    with open(os.path.join(folder, "manifest.json"), "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1])
