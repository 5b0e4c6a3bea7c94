#!/usr/bin/env python3
"""Log-likelihoods of `espalier eval --requests` against transformers on the export of the same run: GPTs with learned,
rotary and ALiBi positions, fp32 and bf16.

    tests/oracle/scoring_oracle.py --check            with fixed seeds
    tests/oracle/scoring_oracle.py --fresh SEED DIR   with others

Needs the environment of tests/oracle/requirements.txt and build/bin/espalier. fp32: within 1e-4 for each request, the
same greedy flags. bf16: the run's weights in fp32 there, so only within 0.05 a token.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).parent.parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
TEXT = ROOT / "tests/data/owt-20.jsonl"
TINY = ROOT / "tests/data/gpt2-tiny"
TOKENIZER = ["--vocab-file", str(TINY / "vocab.json"), "--merge-file", str(TINY / "merges.txt")]
SHAPE = ["--num-layers", "2", "--hidden-size", "48", "--num-attention-heads", "4", "--seq-length", "64",
         "--max-position-embeddings", "64", "--micro-batch-size", "4", "--global-batch-size", "8", "--lr", "5e-3",
         "--lr-decay-style", "constant", "--split", "100,0,0", "--eval-iters", "0", "--num-threads", "1",
         "--train-iters", "20", "--save-interval", "20", "--data-path", "owt_text_document"]
KINDS = {"gpt2": [], "bloom": ["--position-embedding-type", "alibi", "--embed-layernorm"],
         "llama": ["--position-embedding-type", "rotary", "--normalization", "rmsnorm", "--swiglu",
                   "--disable-bias-linear", "--untie-embeddings-and-output-weights", "--num-key-value-heads", "2"]}


def run(arguments, folder):
    result = subprocess.run([ESPALIER, *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"espalier {' '.join(arguments)}: {result.returncode}\n{result.stderr}")
    return result.stdout


def requests(rng):
    texts = [json.loads(line)["text"] for line in open(TEXT, encoding="utf-8")]
    result = [{"context": "", "continuation": "Hello"}]
    while len(result) < 40:
        words = rng.choice(texts).split(" ")
        first = rng.randrange(max(1, len(words) - 60))
        part, after = rng.randrange(1, 50), rng.randrange(1, 5)
        # Questions with the same context and several continuations, as tasks of choices have them.
        context = " ".join(words[first:first + part])
        for shift in range(rng.randrange(1, 4)):
            start = first + part + shift
            if words[start:start + after]:
                result.append({"context": context, "continuation": " " + " ".join(words[start:start + after])})
    return [one for one in result if one["continuation"].strip()]


def theirs(model, tokenizer, request, length):
    context = tokenizer(request["context"].rstrip()).input_ids
    whole = tokenizer(request["context"] + request["continuation"]).input_ids
    continuation = whole[len(context):]
    ids = ((context or [tokenizer.eos_token_id]) + continuation)[-(length + 1):]
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids[:-1]])).logits[0][-len(continuation):].double(), -1)
    labels = torch.tensor(continuation)
    return {"loglikelihood": rows.gather(1, labels[:, None]).sum().item(),
            "is_greedy": bool((rows.argmax(-1) == labels).all()), "tokens": len(continuation)}


def compare(folder, name, flags, bound, seed):
    run(["train", "gpt", *SHAPE, *TOKENIZER, "--save", name, "--seed", str(seed), *flags], folder)
    run(["checkpoint", "export-hf", "--load", name, "--output", name + "-hf"], folder)
    asked = requests(random.Random(seed))
    (pathlib.Path(folder) / "requests.jsonl").write_text("".join(json.dumps(one) + "\n" for one in asked))
    answers = [json.loads(line) for line in
               run(["eval", "--load", name, "--requests", "requests.jsonl"], folder).splitlines()]
    path = str(pathlib.Path(folder) / (name + "-hf"))
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    worst = 0
    for request, answer in zip(asked, answers, strict=True):
        expected = theirs(model, tokenizer, request, 64)
        difference = abs(answer["loglikelihood"] - expected["loglikelihood"])
        worst = max(worst, difference)
        if answer["tokens"] != expected["tokens"] or difference > bound * (1 if bound < 0.01 else expected["tokens"]) \
                or (bound < 0.01 and answer["is_greedy"] != expected["is_greedy"]):
            sys.exit(f"{name}: {request}: {answer}, transformers {expected}")
    print(f"{name}: {len(asked)} requests, log-likelihoods within {worst:.1e}, "
          f"{sum(one['is_greedy'] for one in answers)} greedy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2)
    arguments = parser.parse_args()
    if not (arguments.check or arguments.fresh):
        parser.error("nothing is committed: --check or --fresh SEED DIR")
    seed = int(arguments.fresh[0]) % 2**31 if arguments.fresh else 1234
    with tempfile.TemporaryDirectory() as folder:
        run(["preprocess", "--input", str(TEXT), "--output-prefix", "owt", *TOKENIZER, "--tokenizer-type",
             "GPT2BPETokenizer", "--append-eod"], folder)
        for name, flags in KINDS.items():
            compare(folder, name, flags, 1e-4, seed)
        compare(folder, "gpt2-bf16", ["--bf16"], 0.05, seed)


if __name__ == "__main__":
    main()
