#!/usr/bin/env python3
"""Encoding speed on one thread: espalier against tiktoken and tokenizers, same file, same vocabulary, same run.

    pip install tiktoken==0.14.0 tokenizers==0.23.3          (an environment of its own)
    bench/tokenizer_peers.py build/bin/tokenizer_bench FOLDER FILE.jsonl

FOLDER holds GPT-2's vocab.json and merges.txt; every line of FILE is {"text": ...}. Rounds alternate between the peers;
each starts with nothing cached, and the median counts. CPU time of the thread, megabytes of UTF-8.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

PATTERN = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
ROUNDS = 3


def byte_of_char():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


def new_tiktoken(folder):
    table = byte_of_char()
    vocabulary = json.loads((folder / "vocab.json").read_text())
    ranks = {bytes(table[letter] for letter in piece): number for piece, number in vocabulary.items()
             if piece != "<|endoftext|>"}
    encoding = tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return encoding.encode_ordinary


def new_tokenizers(folder):
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return lambda text: tokenizer.encode(text).ids


def run_peer(new, folder, texts):
    encode = new(folder)
    start = time.thread_time()
    count = sum(len(encode(text)) for text in texts)
    return sum(len(text.encode()) for text in texts) / 1e6 / (time.thread_time() - start), count


def run_espalier(program, folder, file):
    output = subprocess.run([program, folder / "vocab.json", file, "1"], check=True, capture_output=True, text=True).stdout
    return [(line["mb_per_s"], line["tokens"]) for line in map(json.loads, output.splitlines())]


def main():
    program, folder, file = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
    texts = [json.loads(line)["text"] for line in open(file, encoding="utf-8")]
    rates = {"espalier cold": [], "espalier warm": [], "tiktoken": [], "tokenizers": []}
    for _ in range(ROUNDS):
        cold, warm = run_espalier(program, folder, file)
        results = [cold, warm, run_peer(new_tiktoken, folder, texts), run_peer(new_tokenizers, folder, texts)]
        assert len({count for _, count in results}) == 1, results
        for name, (rate, _) in zip(rates, results):
            rates[name].append(rate)
    cold = statistics.median(rates["espalier cold"])
    for name, values in rates.items():
        middle = statistics.median(values)
        print(json.dumps({"peer": name, "mb_per_s": round(middle, 1), "lowest": round(min(values), 1),
                          "highest": round(max(values), 1), "espalier_cold_is": round(cold / middle, 2)}))


main()
