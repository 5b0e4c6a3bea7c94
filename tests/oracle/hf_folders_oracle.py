#!/usr/bin/env python3
"""Hugging Face folders of small random models with the logits that transformers gives: what src/convert is tested with.

    tests/oracle/hf_folders_oracle.py                   writes tests/data/hf again
    tests/oracle/hf_folders_oracle.py --check           the committed logits are still transformers', and transformers
                                                        gives them for what `espalier checkpoint` makes of the folders
    tests/oracle/hf_folders_oracle.py --fresh SEED DIR  the same with new random models of every family, in DIR/hf

Needs the environment of tests/oracle/requirements.txt and, for the last two, build/bin/espalier. Each folder is what
save_pretrained writes (safetensors, in one file or in shards, or pytorch_model.bin), with logits.safetensors next to them:
ids [rows, length] and logits in fp32. Every size is odd where the family lets it be.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = pathlib.Path(__file__).parent.parent.parent
LENGTH = 13
TOLERANCE = 2e-5  # of the largest logit: what fp32 leaves between two orders of summation

BASE = {"vocab_size": 31, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager"}
LLAMA = {**BASE, "hidden_size": 27, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 9,
         "num_key_value_heads": 3, "head_dim": 6, "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
COMMITTED = {
    "gpt2": ("gpt2", {**BASE, "n_embd": 15, "n_head": 3, "n_layer": 2, "n_inner": 23, "n_positions": 17,
                      "activation_function": "gelu_new", "layer_norm_epsilon": 1e-6}, {"dtype": "float32"}),
    # As the published file of GPT-2: no prefix, no output layer, torch.save.
    "gpt2_bin": ("gpt2", {**BASE, "n_embd": 7, "n_head": 1, "n_layer": 1, "n_positions": 13,
                          "activation_function": "gelu"}, {"dtype": "float32", "base": True, "bin": True}),
    "gpt2_untied": ("gpt2", {**BASE, "n_embd": 9, "n_head": 3, "n_layer": 1, "n_positions": 13,
                             "tie_word_embeddings": False}, {"dtype": "float16"}),
    "bloom": ("bloom", {**BASE, "hidden_size": 21, "n_head": 3, "n_layer": 2}, {"dtype": "bfloat16"}),
    "bloom_post": ("bloom", {**BASE, "hidden_size": 15, "n_head": 5, "n_layer": 1, "bias_dropout_fusion": True,
                             "apply_residual_connection_post_layernorm": True}, {"dtype": "float32", "base": True}),
    "llama": ("llama", {**LLAMA, "rope_parameters": LLAMA3}, {"dtype": "bfloat16", "shard": "6KB"}),
    "llama_tied_bias": ("llama", {**LLAMA, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
                                  "num_hidden_layers": 1, "num_key_value_heads": 9,
                                  "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
                        {"dtype": "float32"}),
    "llama_base": ("llama", {**LLAMA, "num_hidden_layers": 1, "num_key_value_heads": 1, "hidden_act": "gelu_new",
                             "tie_word_embeddings": True}, {"dtype": "bfloat16", "bin": True, "base": True}),
    "mistral": ("mistral", {**LLAMA, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 10,
                            "sliding_window": 5}, {"dtype": "bfloat16"}),
    "qwen2": ("qwen2", {**LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1,
                        "head_dim": 6, "rope_parameters": YARN, "tie_word_embeddings": True}, {"dtype": "bfloat16"}),
    "qwen2_window": ("qwen2", {**LLAMA, "hidden_size": 18, "num_attention_heads": 3, "num_key_value_heads": 3,
                               "num_hidden_layers": 1, "head_dim": 6, "use_sliding_window": True, "sliding_window": 3,
                               "max_window_layers": 0}, {"dtype": "float16"}),
    "qwen3": ("qwen3", {**LLAMA, "hidden_size": 25, "num_attention_heads": 3, "num_key_value_heads": 3,
                        "head_dim": 14}, {"dtype": "bfloat16"}),
    "phi3": ("phi3", {**LLAMA, "hidden_size": 30, "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6,
                      "pad_token_id": 0, "original_max_position_embeddings": 16, "rope_parameters": {
                          "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.3],
                          "long_factor": [1.5, 2.0, 4.0]}}, {"dtype": "bfloat16"}),
    "phi3_partial": ("phi3", {**LLAMA, "hidden_size": 24, "num_attention_heads": 3, "num_key_value_heads": 3,
                              "head_dim": 8, "num_hidden_layers": 1, "pad_token_id": 0, "sliding_window": 7,
                              "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                                  "partial_rotary_factor": 0.75}}, {"dtype": "float32"}),
}


def fresh_case(family, rng):
    """A random model of a family: (family, config, how it is stored)."""
    stored = {"dtype": rng.choice(["float32", "bfloat16", "float16"]), "bin": rng.random() < 0.2,
              "shard": rng.choice([None, "9KB"]), "base": False}
    groups, heads = rng.choice([1, 2, 3]), rng.choice([1, 2, 3, 5])
    common = {**BASE, "vocab_size": rng.randint(5, 99), "tie_word_embeddings": rng.random() < 0.5}
    if family in ("gpt2", "bloom"):
        hidden = groups * heads * rng.choice([3, 5, 8])
        own = ({"n_embd": hidden, "n_inner": rng.choice([None, rng.randint(1, 99)]), "n_positions": rng.randint(LENGTH, 40),
                "activation_function": rng.choice(["gelu_new", "gelu", "relu", "silu"]),
                "layer_norm_epsilon": rng.choice([1e-5, 1e-6, 1e-3])} if family == "gpt2" else
               {"hidden_size": hidden, "apply_residual_connection_post_layernorm": rng.random() < 0.3})
        return family, {**common, **own, "n_head": groups * heads, "n_layer": rng.randint(1, 3)}, stored
    head_dim = rng.choice([4, 6, 10])
    free_head = family in ("mistral", "qwen3")  # the others want hidden = heads * head size, or heads that divide it
    hidden = rng.randint(5, 40) if free_head else groups * heads * head_dim
    rope = {"rope_type": "default", "rope_theta": rng.choice([1e4, 5e5])}
    if family == "phi3":
        if rng.random() < 0.6:
            rope |= {"rope_type": "longrope", "short_factor": [rng.uniform(1, 2) for _ in range(head_dim // 2)],
                     "long_factor": [rng.uniform(2, 8) for _ in range(head_dim // 2)]}
    else:
        rope |= rng.choice([{}, {"rope_type": "linear", "factor": rng.uniform(1, 8)},
                            {k: v for k, v in LLAMA3.items() if k != "rope_theta"},
                            {k: v for k, v in YARN.items() if k != "rope_theta"}])
    config = {**common, "hidden_size": hidden, "intermediate_size": rng.randint(1, 70), "head_dim": head_dim,
              "num_hidden_layers": rng.randint(1, 3), "num_attention_heads": groups * heads,
              "num_key_value_heads": groups, "max_position_embeddings": 64, "rms_norm_eps": rng.choice([1e-5, 1e-6]),
              "hidden_act": rng.choice(["silu", "silu", "gelu", "relu"]), "rope_parameters": rope}
    if family == "llama" and rng.random() < 0.3:
        config |= {"attention_bias": True, "mlp_bias": True}
    if family in ("mistral", "phi3"):
        config["sliding_window"] = rng.choice([None, 3, 50])
    if family in ("qwen2", "qwen3") and rng.random() < 0.3:
        config |= {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
    if family == "phi3":
        config |= {"pad_token_id": 0, "original_max_position_embeddings": 16}
    return family, config, stored


def new_model(family, config, seed):
    config = json.loads(json.dumps(config))  # transformers changes what it is given
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **config))
    rng = random.Random(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            norm = parameter.dim() == 1 and name.endswith("weight")
            values = [norm + rng.gauss(0, 0.2) for _ in range(parameter.numel())]
            parameter.copy_(torch.tensor(values, dtype=torch.float64).view(parameter.shape))
    return model.eval()


def logits_of(folder, ids):
    """What transformers computes from a folder, in fp32."""
    config = AutoConfig.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", config=config)
    with torch.no_grad():
        return model.float().eval()(ids).logits.float()


def make(name, family, config, stored, folder):
    model = new_model(family, config, name).to(getattr(torch, stored["dtype"]))
    model.config.dtype = getattr(torch, stored["dtype"])
    target = model.base_model if stored.get("base") else model
    target.save_pretrained(folder, max_shard_size=stored.get("shard") or "5GB")
    if stored.get("bin"):  # transformers 5 writes only safetensors
        tensors = {}
        for file in sorted(folder.glob("*.safetensors")):
            tensors |= load_file(file)
            file.unlink()
        (folder / "model.safetensors.index.json").unlink(missing_ok=True)
        torch.save(tensors, folder / "pytorch_model.bin")
    rng = random.Random(f"ids {name}")
    ids = torch.tensor([[rng.randrange(config["vocab_size"]) for _ in range(LENGTH)] for _ in range(2)])
    save_file({"ids": ids, "logits": logits_of(folder, ids).contiguous()}, folder / "logits.safetensors")


def distance(found, expected):
    return ((found[..., : expected.size(-1)] - expected).abs().max() / expected.abs().max()).item()


def espalier(*arguments):
    program = ROOT / "build" / "bin" / "espalier"
    done = subprocess.run([program, "checkpoint", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"espalier checkpoint {' '.join(map(str, arguments))}: {done.stderr}")


def check_folder(folder):
    """Problems of one folder: its own logits, and those of what it becomes by way of a checkpoint."""
    expected = load_file(folder / "logits.safetensors")
    with tempfile.TemporaryDirectory() as temporary:
        run, back = pathlib.Path(temporary) / "run", pathlib.Path(temporary) / "hf"
        espalier("import-hf", "--input", folder, "--save", run)
        espalier("export-hf", "--load", run, "--output", back)
        for what, place in (("committed logits", folder), ("logits of the export", back)):
            found = distance(logits_of(place, expected["ids"]), expected["logits"])
            if not found <= TOLERANCE:
                yield f"{what} differ by {found:.3g} of the largest"


def check(folders):
    failed = 0
    for folder in sorted(folders):
        try:
            problems = list(check_folder(folder))
        except RuntimeError as error:
            problems = [str(error)]
        failed += bool(problems)
        print(f"{folder.name}: " + ("; ".join(problems) or "equal"), flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    committed = ROOT / "tests" / "data" / "hf"
    if arguments.check:
        sys.exit(check(committed / name for name in COMMITTED) > 0)
    if arguments.fresh:
        folder = pathlib.Path(arguments.fresh[1]) / "hf"
        rng = random.Random(int(arguments.fresh[0]))
        for family in ("gpt2", "bloom", "llama", "mistral", "qwen2", "qwen3", "phi3"):
            for number in range(2):
                make(f"{family}{number}", *fresh_case(family, rng), folder / f"{family}{number}")
        sys.exit(check(folder.iterdir()) > 0)
    for name, case in COMMITTED.items():
        make(name, *case, committed / name)


main()
