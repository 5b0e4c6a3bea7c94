#!/usr/bin/env python3
"""From raw text to transformers: a BERT and two T5s are trained on two processes, exported, and fill in a mask and spans
as `espalier generate` does.

    tests/oracle/filling_oracle.py --check            with a fixed seed of the runs
    tests/oracle/filling_oracle.py --fresh SEED DIR   with that one

Needs the environment of tests/oracle/requirements.txt and build/bin/espalier. The runs are in fp32, so that the likeliest
tokens do not depend on rounding; the log-probabilities may differ by 1e-3.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForMaskedLM, AutoModelForPreTraining, AutoModelForSeq2SeqLM, AutoTokenizer

ROOT = pathlib.Path(__file__).parent.parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
TEXT = str(ROOT / "tests/data/owt-20.jsonl")
TOKENIZER = ["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file",
             str(ROOT / "tests/data/megatron_tokenizers/bert_lower/vocab.txt")]
SHAPE = ["--num-layers", "2", "--hidden-size", "48", "--num-attention-heads", "4", "--max-position-embeddings", "96",
         "--micro-batch-size", "4", "--global-batch-size", "16", "--lr", "4e-3", "--lr-decay-style", "constant",
         "--split", "100,0,0", "--eval-iters", "0", "--log-interval", "20", "--num-threads", "1", "--train-iters", "60",
         "--save-interval", "60"]
SENTINELS = ["--vocab-extra-ids", "100"]
TOLERANCE = 1e-3  # of a log-probability

MASKED = ["the president of the united states [MASK] that he would not sign the law",
          "[MASK]", "a [MASK] [MASK] of the [MASK]", "Two parts. [SEP] With [MASK] in the second, and A capital."]
SPANS = ["the president of the <extra_id_0> said that he would not <extra_id_1> the law",
         "she was <extra_id_0> in the city of", "a"]


def run(arguments, folder):
    result = subprocess.run([ESPALIER, *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"espalier {' '.join(arguments)}: {result.returncode}\n{result.stderr}")
    return result.stdout


def train(folder, command, name, seed, flags):
    run(["launch", "--nproc-per-node", "2", command, *SHAPE, *TOKENIZER, "--save", name, "--seed", str(seed), *flags],
        folder)
    with open(pathlib.Path(folder) / name / "metrics.jsonl") as lines:
        losses = [record["lm_loss"] for record in map(json.loads, lines) if "lm_loss" in record]
    print(f"{name}: lm loss {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps")
    if not losses[-1] < 0.9 * losses[0]:
        sys.exit(f"{name}: the loss does not fall")


def export(folder, name, flags):
    run(["checkpoint", "export-hf", "--load", name, "--output", name + "-hf", *flags], folder)
    return str(pathlib.Path(folder) / (name + "-hf"))


def ours(folder, name, prompts, flags):
    lines = run(["generate", "--load", name, "--greedy", "--json", "--prompt", *prompts, *flags], folder).splitlines()
    return [json.loads(line) for line in lines]


def compare(prompt, answer, prompt_ids, ids, logprobs):
    worst = max((abs(a - b) for a, b in zip(answer["logprobs"], logprobs)), default=math.inf)
    print(f"  {prompt!r}: {answer['text']!r}, log-probabilities within {worst:.1e}")
    if answer["prompt_ids"] != prompt_ids:
        sys.exit(f"ids of the prompt: {answer['prompt_ids']}, transformers {prompt_ids}")
    if answer["generated_ids"] != ids or not worst <= TOLERANCE:
        sys.exit(f"ids: {answer['generated_ids']}, transformers {ids}; log-probabilities {answer['logprobs']}, {logprobs}")


def bert(folder, name, seed, flags, then):
    train(folder, "pretrain_bert.py", name, seed, ["--seq-length", "96", "--data-path", "bert_text_sentence", *flags])
    path = export(folder, name, then)
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForMaskedLM.from_pretrained(path, dtype=torch.float32).eval()
    AutoModelForPreTraining.from_pretrained(path)
    for prompt, answer in zip(MASKED, ours(folder, name, MASKED, []), strict=True):
        ids = tokenizer(prompt, return_tensors="pt")
        with torch.no_grad():
            rows = torch.log_softmax(model(**ids).logits[0][ids.input_ids[0] == tokenizer.mask_token_id], -1)
        best = rows.max(-1)
        compare(prompt, answer, ids.input_ids[0].tolist(), best.indices.tolist(), best.values.tolist())


def t5(folder, name, seed, flags):
    train(folder, "pretrain_t5.py", name, seed, [*SENTINELS, "--encoder-seq-length", "64", "--decoder-seq-length", "24",
                                                "--data-path", "t5_text_sentence", *flags])
    path = export(folder, name, [])
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32).eval()
    for prompt, answer in zip(SPANS, ours(folder, name, SPANS, ["--tokens-to-generate", "20"]), strict=True):
        ids = tokenizer(prompt, add_special_tokens=False).input_ids
        out = model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False, num_beams=1, output_scores=True,
                             return_dict_in_generate=True)
        theirs = out.sequences[0, 1:].tolist()
        compare(prompt, answer, ids, theirs,
                [torch.log_softmax(score[0], -1)[token].item() for score, token in zip(out.scores, theirs)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2)
    arguments = parser.parse_args()
    if not (arguments.check or arguments.fresh):
        parser.error("nothing is committed: --check or --fresh SEED DIR")
    seed = int(arguments.fresh[0]) % 2**31 if arguments.fresh else 1234
    with tempfile.TemporaryDirectory() as folder:
        for prefix, flags in ("bert", []), ("t5", SENTINELS):
            run(["preprocess", "--split-sentences", "--input", TEXT, "--output-prefix", prefix, *TOKENIZER, *flags], folder)
        # transformers' classes have one form of gelu for layers and head.
        bert(folder, "megatron-bert", seed, ["--no-bias-gelu-fusion"], [])
        bert(folder, "bert", seed, ["--openai-gelu", "--apply-residual-connection-post-layernorm"], [])
        relative = ["--position-embedding-type", "relative", "--normalization", "rmsnorm", "--disable-bias-linear",
                    "--unscaled-attention-scores", "--layernorm-epsilon", "1e-6"]
        t5(folder, "t5", seed, [*relative, "--scale-tied-logits", "--activation", "relu"])
        t5(folder, "t5-gated", seed, [*relative, "--activation", "geglu_tanh", "--untie-embeddings-and-output-weights"])
    print("transformers fills in the same")


if __name__ == "__main__":
    main()
