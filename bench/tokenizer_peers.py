#!/usr/bin/env python3
"""Encoding speed on one core: espalier against the libraries that read the same vocabulary, same file, same run.

    PYTHONPATH=$(bench/install_gigatoken) $(tests/oracle/install) bench/tokenizer_peers.py \\
        build/bin/tokenizer_bench TOKENIZER FILE.jsonl [--rounds 5] [--slow-mb 10]

TOKENIZER is a folder with GPT-2's vocab.json and merges.txt, a tokenizer.json of a byte-level BPE, or a .model of SentencePiece;
every line of FILE is {"text": ...}. Rounds alternate between the peers; each starts with nothing cached. Processor time,
megabytes of UTF-8. Who needs a second for a few megabytes (all but espalier and gigatoken) encodes the first --slow-mb of FILE.
Everybody must give as many ids as espalier; gigatoken, if it does not, is reported so. A JSON line for each peer, after each
round one line of no peer.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import sentencepiece  # noqa: E402
import tiktoken  # noqa: E402
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

try:
    import awkward
    import gigatoken
except ImportError:
    gigatoken = None

GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def byte_of_char():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + index): byte for index, byte in enumerate(others)}


def gpt2_json(folder):
    tokenizer = Tokenizer(models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer.to_str()


def tiktoken_pattern(description):
    """None where tiktoken cannot cut texts so: it drops what a pattern does not match, tokenizers keeps it as pieces."""
    parts = description["pre_tokenizer"].get("pretokenizers", [description["pre_tokenizer"]])
    if parts[0]["type"] == "ByteLevel":
        return GPT2
    pattern = parts[0]["pattern"].get("Regex", "")
    return pattern if r"\s+" in pattern else None


def new_tiktoken(pattern, description):
    table, special = byte_of_char(), {token["content"] for token in description["added_tokens"]} | {"<|endoftext|>"}
    ranks = {bytes(table[letter] for letter in piece): number for piece, number in description["model"]["vocab"].items()
             if piece not in special}
    return one_by_one(tiktoken.Encoding("peer", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary)


def one_by_one(encode):
    return lambda texts: [len(encode(text)) for text in texts]


def in_a_batch(tokenizer):
    return tokenizer.encode_batch


def peers_of(path):
    """{name: (function that makes a new encoder, which takes texts and gives the number of ids of each, or an array of the ids of
    each; whether it is slow)}."""
    if path.suffix == ".model":
        peers = {"sentencepiece": (
            lambda: one_by_one(sentencepiece.SentencePieceProcessor(model_file=str(path)).encode), True)}
        if gigatoken:
            peers["gigatoken"] = (lambda: in_a_batch(gigatoken.Tokenizer.from_sentencepiece(path)), False)
        return peers
    text = gpt2_json(path) if path.is_dir() else path.read_text(encoding="utf-8")
    description, peers = json.loads(text), {}
    if pattern := tiktoken_pattern(description):
        peers["tiktoken"] = (lambda: new_tiktoken(pattern, description), True)

    def new_tokenizers():
        tokenizer = Tokenizer.from_str(text)
        return one_by_one(lambda one: tokenizer.encode(one, add_special_tokens=False).ids)

    peers["tokenizers"] = (new_tokenizers, True)
    if gigatoken:
        peers["gigatoken"] = (lambda: in_a_batch(gigatoken.Tokenizer.from_json(text)), False)
    return peers


def megabytes(texts):
    return sum(len(text.encode()) for text in texts) / 1e6


def run_peer(new, texts):
    encode = new()
    start = time.process_time()
    ids = encode(texts)
    seconds = time.process_time() - start
    return megabytes(texts) / seconds, sum(ids) if isinstance(ids, list) else awkward.count(ids)


def run_espalier(program, tokenizer, file):
    """Rates and ids, cold and warm."""
    tokenizer = tokenizer / "vocab.json" if tokenizer.is_dir() else tokenizer
    output = subprocess.run([program, tokenizer, file, "1"], check=True, capture_output=True, text=True).stdout
    return [(line["mb_per_s"], line["tokens"]) for line in map(json.loads, output.splitlines())]


def head_of(texts, most):
    """At least the first text."""
    head, size = [], 0.0
    for text in texts:
        head.append(text)
        size += len(text.encode()) / 1e6
        if size >= most:
            break
    return head


def ids_of_head(program, tokenizer, head):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in head)
        file.flush()
        return run_espalier(program, tokenizer, file.name)[0][1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--slow-mb", type=float, default=10)
    arguments = parser.parse_args()
    texts = [json.loads(line)["text"] for line in open(arguments.file, encoding="utf-8")]
    head, peers = head_of(texts, arguments.slow_mb), peers_of(arguments.tokenizer)
    rates = {name: [] for name in ["espalier cold", "espalier warm", *peers]}
    wanted, notes = {True: ids_of_head(arguments.program, arguments.tokenizer, head)}, {}
    for number in range(arguments.rounds):
        cold, warm = run_espalier(arguments.program, arguments.tokenizer, arguments.file)
        wanted[False] = cold[1]
        rates["espalier cold"].append(cold[0])
        rates["espalier warm"].append(warm[0])
        for name, (new, slow) in peers.items():
            if name in notes:
                continue
            try:
                rate, count = run_peer(new, head if slow else texts)
            except (ValueError, RuntimeError, NotImplementedError) as error:
                if name != "gigatoken":
                    raise
                notes[name] = f"refuses it: {str(error).splitlines()[0]}"
                continue
            if count != wanted[slow] and name != "gigatoken":
                sys.exit(f"{name} gives {count} ids, espalier {wanted[slow]}")
            if count != wanted[slow]:
                notes[name] = f"gives {count} ids instead of {wanted[slow]}"
            rates[name].append(rate)
        print(json.dumps({"round": number + 1}), flush=True)
    for name, values in rates.items():
        slow = name in peers and peers[name][1]
        print(json.dumps({"peer": name, "rounds": values, "mb": megabytes(head if slow else texts), "note": notes.get(name, "")}))


main()
