#!/usr/bin/env python3
"""What transformers' T5 and mT5 make of small random models: expected values for the family t5 and its conversion.

    tests/oracle/t5_oracle.py                   writes tests/data/t5 again
    tests/oracle/t5_oracle.py --check           makes them again and compares with the committed ones
    tests/oracle/t5_oracle.py --fresh SEED DIR  writes new random models into DIR/t5; the golden test reads them when
                                                ESPALIER_FRESH_ORACLES=DIR

Needs the environment of tests/oracle/requirements.txt (tests/oracle/run makes it). Per model a folder: `weights` and
`gradients`, Hugging Face folders of the same names and shapes, and case.json with a batch (some rows padded), its loss
(a mean over the labels that are there) and what greedy generation answers to each row. All in fp32; gradients are
computed in float64.
"""
import argparse
import json
import pathlib
import random
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import MT5Config, MT5ForConditionalGeneration, T5Config, T5ForConditionalGeneration

NEW_TOKENS, BEGIN, END, PAD = 6, 0, 1, 0
SMALLEST_MARGIN = 1e-3  # rounding must not decide which of two tokens is generated
SIZES = {"vocab_size": 37, "d_model": 14, "d_kv": 5, "d_ff": 19, "num_layers": 2, "num_decoder_layers": 3,
         "num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9}
COMMITTED = {
    "t5": {"kind": "t5", "tied": True, **SIZES, "feed_forward_proj": "relu", "lengths": [13, 1, 6], "decoder": [5, 1, 4]},
    "t5_v1_1": {"kind": "t5", "tied": False, **SIZES, "num_layers": 1, "num_decoder_layers": 1, "num_heads": 1, "d_kv": 7,
                "feed_forward_proj": "gated-gelu", "lengths": [1, 7], "decoder": [1, 3]},
    "mt5": {"kind": "mt5", "tied": True, **SIZES, "num_decoder_layers": 1, "feed_forward_proj": "gated-gelu",
            "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "lengths": [33, 20],
            "decoder": [7, 7]},
}
TOLERANCE = {"gradients": 2e-5, "loss": 2e-6}


def fresh_case(rng):
    kind, rows = rng.choice(["t5", "mt5"]), rng.randint(1, 4)
    buckets = 2 * rng.randint(2, 16)
    return {"kind": kind, "tied": kind == "mt5" or rng.random() < 0.5, "vocab_size": rng.randint(9, 300),
            "d_model": rng.randint(4, 60), "d_kv": rng.randint(1, 17), "d_ff": rng.randint(1, 70),
            "num_layers": rng.randint(1, 4), "num_decoder_layers": rng.randint(1, 4), "num_heads": rng.choice([1, 2, 3, 5, 7]),
            "relative_attention_num_buckets": buckets,
            "relative_attention_max_distance": buckets // 2 + rng.randint(1, 130),
            "feed_forward_proj": rng.choice(["relu", "gated-gelu", "gated-silu", "gelu_new"]),
            "lengths": [rng.randint(1, 150) for _ in range(rows)], "decoder": [rng.randint(1, 60) for _ in range(rows)]}


def new_model(case, seed):
    torch.manual_seed(seed)
    sizes = {key: case[key] for key in (*SIZES, "feed_forward_proj")}
    config, model = (MT5Config, MT5ForConditionalGeneration) if case["kind"] == "mt5" else (T5Config, T5ForConditionalGeneration)
    tied = {} if case["kind"] == "mt5" else {"tie_word_embeddings": case["tied"]}
    made = model(config(dropout_rate=0.0, decoder_start_token_id=BEGIN, **sizes, **tied))
    for name, parameter in made.named_parameters():  # away from what initialization leaves at 1 or too small to matter
        with torch.no_grad():
            if name.endswith("layer_norm.weight"):
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif "relative_attention_bias" in name:
                parameter.copy_(torch.randn_like(parameter))
    if not case["tied"]:
        made.lm_head.weight = torch.nn.Parameter(0.5 * torch.randn_like(made.lm_head.weight))
    return made.float().eval()


def padded(rows, length, filler):
    return torch.tensor([row + [filler] * (length - len(row)) for row in rows])


def batch_of(case, seed):
    rng = random.Random(seed)
    ids = lambda count: [rng.randrange(2, case["vocab_size"]) for _ in range(count)]
    encoder, labels = [ids(count) for count in case["lengths"]], [ids(count) for count in case["decoder"]]
    decoder = [[BEGIN, *row[:-1]] for row in labels]
    mask = padded([[1] * len(row) for row in encoder], max(case["lengths"]), 0)
    longest = max(case["decoder"])
    return padded(encoder, max(case["lengths"]), PAD), mask, padded(decoder, longest, PAD), padded(labels, longest, -1)


def loss_of(model, batch):
    encoder, mask, decoder, labels = batch
    logits = model(input_ids=encoder, attention_mask=mask, decoder_input_ids=decoder).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)


def greedy(model, row):
    ids = [BEGIN]
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row]), decoder_input_ids=torch.tensor([ids])).logits[0, -1]
        first, second = logits.topk(2).values.tolist()
        if first - second < SMALLEST_MARGIN:
            break
        ids.append(logits.argmax().item())
        if ids[-1] == END:
            break
    return ids[1:]


def make(name, case, seed, folder):
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    model, batch = new_model(case, seed), batch_of(case, seed)
    model.save_pretrained(target / "weights")
    (target / "weights" / "generation_config.json").unlink(missing_ok=True)
    with torch.no_grad():
        loss = loss_of(model, batch).item()
    answers = [greedy(model, batch[0][row, :count].tolist()) for row, count in enumerate(case["lengths"])]
    exact = model.double()
    loss_of(exact, batch).backward()
    stored = load_file(target / "weights" / "model.safetensors").keys()
    gradients = {key: parameter.grad.float().contiguous() for key, parameter in exact.named_parameters() if key in stored}
    (target / "gradients").mkdir()
    save_file(gradients, target / "gradients" / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(target / "weights" / "config.json", target / "gradients" / "config.json")
    content = {"encoder": batch[0].tolist(), "lengths": case["lengths"], "decoder": batch[2].tolist(),
               "labels": batch[3].tolist(), "loss": loss, "answers": answers}
    (target / "case.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")


def differences(made, committed):
    for part, allowed in (("weights", 0.0), ("gradients", TOLERANCE["gradients"])):
        new, old = (load_file(folder / part / "model.safetensors") for folder in (made, committed))
        if new.keys() != old.keys():
            yield f"{part}: tensors {sorted(new.keys() ^ old.keys())}"
            continue
        for key, tensor in old.items():
            distance = (new[key] - tensor).abs().max().item()
            if distance > allowed * tensor.abs().max().item() + (1e-9 if allowed else 0):
                yield f"{part} {key}: differs by {distance:.3g}"
    new, old = (json.loads((folder / "case.json").read_text()) for folder in (made, committed))
    for key in old.keys() | new.keys():
        if key == "loss" and abs(new[key] - old[key]) <= TOLERANCE["loss"] * max(1.0, abs(old[key])):
            continue
        if new.get(key) != old.get(key):
            yield f"{key} differs"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    committed = pathlib.Path(__file__).parent.parent / "data" / "t5"
    if arguments.fresh:
        seed, folder = int(arguments.fresh[0]), pathlib.Path(arguments.fresh[1]) / "t5"
        rng = random.Random(seed)
        for number in range(6):
            make(f"case{number}", fresh_case(rng), seed + number, folder)
        return 0
    if not arguments.check:
        for name, case in COMMITTED.items():
            make(name, case, 1, committed)
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, case in COMMITTED.items():
            make(name, case, 1, pathlib.Path(temporary))
            found = list(differences(pathlib.Path(temporary) / name, committed / name))
            failed += bool(found)
            print(f"{name}: " + ("as committed" if not found else "; ".join(found)))
    return 1 if failed else 0


sys.exit(main())
