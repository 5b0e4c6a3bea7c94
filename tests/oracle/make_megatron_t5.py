#!/usr/bin/env python3
"""Small checkpoints of T5s in the layout of Megatron-LM: tests/data/megatron-checkpoints/t5-*.

  make_megatron_t5.py OUT

The files are put together here, by the rules of megatron/checkpointing.py, megatron/model/t5_model.py and
language_model.py (pipeline stages: that of the split rank begins with both embeddings again, the last one has the word
embedding for its head): upstream's own T5 wants GPUs for more than one stage. Values are random.

  NAME/                       the checkpoint of step 3
  NAME.truth.safetensors      the whole tensors in today's order of rows, with both moments where the case has them
"""
import argparse
import collections
import os
import re
import sys

import torch
from safetensors.torch import save_file

HIDDEN, HEADS, HEAD, FFN, WORDS, PADDED, POSITIONS, LAYERS = 8, 4, 3, 12, 59, 64, 16, 2

# name: tensor ranks, pipeline stages, split rank, checkpoint_version, with the state of Adam
CASES = {
    "t5-fp32-tp2pp4": (2, 4, 2, 3.0, True),
    "t5-fp32-tp2pp3": (2, 3, 1, 3.0, False),
    "t5-version1-tp2": (2, 1, None, 1.0, False),
    "t5-version0": (1, 1, None, None, False),
}


def shapes():
    """In the order of the module."""
    wide = HEADS * HEAD
    found = [("word_embeddings.weight", [PADDED, HIDDEN]), ("position_embeddings.weight", [POSITIONS, HIDDEN])]

    def norm(name):
        return [(name + ".weight", [HIDDEN]), (name + ".bias", [HIDDEN])]

    def linear(name, rows, columns):
        return [(name + ".weight", [rows, columns]), (name + ".bias", [rows])]

    for stack in ("encoder", "decoder"):
        for layer in range(LAYERS):
            at = f"{stack}.layers.{layer}."
            found += norm(at + "input_layernorm")
            found += linear(at + "self_attention.query_key_value", 3 * wide, HIDDEN)
            found += linear(at + "self_attention.dense", HIDDEN, wide)
            found += norm(at + "post_attention_layernorm")
            if stack == "decoder":
                found += linear(at + "inter_attention.query", wide, HIDDEN)
                found += linear(at + "inter_attention.key_value", 2 * wide, HIDDEN)
                found += linear(at + "inter_attention.dense", HIDDEN, wide)
                found += norm(at + "post_inter_attention_layernorm")
            found += linear(at + "mlp.dense_h_to_4h", FFN, HIDDEN)
            found += linear(at + "mlp.dense_4h_to_h", HIDDEN, FFN)
        found += norm(stack + ".final_layernorm")
    return collections.OrderedDict(found + [("lm_head.bias", [PADDED])])


def part_of(name, value, tensor, rank):
    if re.search(r"query|key_value|dense_h_to_4h|word_embeddings|lm_head", name):
        return value.chunk(tensor, 0)[rank]
    if re.search(r"attention\.dense\.weight|dense_4h_to_h\.weight", name):
        return value.chunk(tensor, 1)[rank]
    return value


def stored_rows(name, value, version):
    """Rows of a rank as checkpoint_version has them: 0 [parts][heads][size], 1 [heads][size][parts]."""
    parts = 3 if "query_key_value" in name else 2 if "key_value" in name else 1
    if parts == 1 or (version or 0) >= 2:
        return value
    rows = value.view(-1, parts, HEAD, *value.shape[1:])
    rows = rows.transpose(1, 2) if version else rows.transpose(0, 1)
    return rows.reshape(value.shape)


def stages_of(name, pipeline, split):
    """The stages that have a parameter, the first of which is its own."""
    if pipeline == 1:
        return [0]
    if name == "position_embeddings.weight":
        return [0, split]
    if name == "word_embeddings.weight":
        return sorted({0, split, pipeline - 1})
    if name == "lm_head.bias" or name.startswith("decoder.final"):
        return [pipeline - 1]
    if name.startswith("encoder.final"):
        return [split - 1]
    stack, layer = re.match(r"(\w+)\.layers\.(\d+)\.", name).groups()
    first, count = (0, split) if stack == "encoder" else (split, pipeline - split)
    return [first + int(layer) // (LAYERS // count)]


def name_in_stage(name, pipeline, split):
    if pipeline == 1 or ".layers." not in name:
        return name
    stack, layer, rest = re.match(r"(\w+)\.layers\.(\d+)\.(.*)", name).groups()
    count = split if stack == "encoder" else pipeline - split
    return f"{stack}.layers.{int(layer) % (LAYERS // count)}.{rest}"


def put(model, name, value, is_head_copy):
    language = model["language_model"]
    if is_head_copy:
        model["word_embeddings_for_head"] = {"weight": value}
    elif "_embeddings." in name:
        kind, rest = name.split(".", 1)
        language.setdefault("embedding", {})[kind] = {rest: value}
    elif name.startswith("lm_head."):
        model["lm_head"] = collections.OrderedDict(bias=value)
    else:
        stack, rest = name.split(".", 1)
        language.setdefault(stack, collections.OrderedDict())[rest] = value


def namespace(tensor, pipeline, split):
    return argparse.Namespace(
        num_layers=LAYERS, encoder_num_layers=LAYERS, decoder_num_layers=LAYERS, hidden_size=HIDDEN,
        num_attention_heads=HEADS, kv_channels=HEAD, ffn_hidden_size=FFN, seq_length=16, encoder_seq_length=16,
        decoder_seq_length=8, max_position_embeddings=POSITIONS, padded_vocab_size=PADDED,
        make_vocab_size_divisible_by=64 // tensor, vocab_extra_ids=0, tokenizer_type="BertWordPieceLowerCase",
        layernorm_epsilon=1e-5, apply_residual_connection_post_layernorm=False, openai_gelu=False, bias_gelu_fusion=True,
        add_bias_linear=True, normalization="LayerNorm", swiglu=False, squared_relu=False, fp16=False, bf16=False,
        micro_batch_size=4, global_batch_size=8, lr=1e-3, train_iters=6, consumed_train_samples=24, seed=1234,
        tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline, pipeline_model_parallel_split_rank=split,
        world_size=tensor * pipeline, data_parallel_size=1)


def adam_of(params, moments):
    """As apex's FusedAdam has it: parameters with weight decay, then the others; the step next to them."""
    decays = [name for name in params if not name.endswith(".bias") and "norm." not in name]
    ordered = decays + [name for name in params if name not in decays]
    state = {at: {kind: moments[name][kind] for kind in ("exp_avg", "exp_avg_sq")} for at, name in enumerate(ordered)}
    groups = [{"params": list(range(len(decays))), "step": 3, "lr": 1e-3, "weight_decay": 0.01},
              {"params": list(range(len(decays), len(ordered))), "step": 3, "lr": 1e-3, "weight_decay": 0.0}]
    return {"state": state, "param_groups": groups}


def save_rank(path, case, rank, stage, truth):
    tensor, pipeline, split, version, with_adam = case
    model, params, moments = {"language_model": {}}, [], {}
    for name in shapes():
        if stage not in stages_of(name, pipeline, split):
            continue
        def own(kind=""):
            return stored_rows(name, part_of(name, truth[name + kind], tensor, rank), version).contiguous().clone()
        is_head_copy = name == "word_embeddings.weight" and stage not in (0, split)
        put(model, name_in_stage(name, pipeline, split), own(), is_head_copy)
        params.append(name)
        if with_adam:
            moments[name] = {"exp_avg": own(".exp_avg"), "exp_avg_sq": own(".exp_avg_sq")}
    if "word_embeddings_for_head" in model:  # the module has it right before the head
        params.remove("word_embeddings.weight")
        params.insert(params.index("lm_head.bias"), "word_embeddings.weight")
    root = {"args": namespace(tensor, pipeline, split), "iteration": 3, "model": model}
    if version is not None:
        root["checkpoint_version"] = version
    if with_adam:
        root["optimizer"] = adam_of(params, moments)
    os.makedirs(path)
    torch.save(root, os.path.join(path, "model_optim_rng.pt"))


def main():
    out = sys.argv[1]
    for number, (name, case) in enumerate(CASES.items()):
        torch.manual_seed(number)
        tensor, pipeline, _, _, with_adam = case
        truth = collections.OrderedDict()
        for param, shape in shapes().items():
            truth[param] = torch.randn(shape)
            if with_adam:
                truth[param + ".exp_avg"] = torch.randn(shape)
                truth[param + ".exp_avg_sq"] = torch.rand(shape)
        for rank in range(tensor):
            for stage in range(pipeline):
                folder = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if pipeline > 1 else "")
                save_rank(os.path.join(out, name, "iter_0000003", folder), case, rank, stage, truth)
        with open(os.path.join(out, name, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as file:
            file.write("3")
        save_file(dict(truth), os.path.join(out, name + ".truth.safetensors"))


if __name__ == "__main__":
    main()
