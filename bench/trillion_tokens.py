#!/usr/bin/env python3
"""How long `espalier data who` and `data where` take on a set of 10^12 tokens, of which only the index exists.

    bench/trillion_tokens.py [--documents N] [--tokens-per-document N] [--folder FOLDER] [--repeats N]

Writes the index of N documents of equal length (20 bytes each), a token file that takes no room on the disk (all its
tokens are 0), and a run of one step of a tiny model over it, which leaves the arrays of the order in a cache as
--data-cache-path does. Then the commands run, their output is checked against the arithmetic of equal documents, and the
best and the median time are printed. 10^8 documents need 17 GB below FOLDER and 12 GB of memory.
"""
import argparse
import array
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
SEQUENCE = 2048


def write_set(prefix, documents, tokens):
    """An .idx of Megatron's form, 2 bytes a token, and its .bin."""
    piece = 1 << 20
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        for begin in range(0, documents, piece):
            file.write(array.array("i", [tokens]) * min(piece, documents - begin))
        for begin in range(0, documents, piece):
            end = min(documents, begin + piece)
            file.write(array.array("q", range(2 * tokens * begin, 2 * tokens * end, 2 * tokens)))
        for begin in range(0, documents + 1, piece):
            file.write(array.array("q", range(begin, min(documents + 1, begin + piece))))
    with open(f"{prefix}.bin", "wb") as file:
        file.truncate(2 * tokens * documents)


def train(folder, prefix, samples):
    words = f"""{ESPALIER} train gpt --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length {SEQUENCE}
        --max-position-embeddings {SEQUENCE} --micro-batch-size 1 --global-batch-size 8 --train-samples {samples} --lr 1e-3
        --lr-decay-style constant --split 100,0,0 --eval-iters 0 --exit-interval 1 --save {folder}/run --save-interval 1
        --data-path {prefix} --data-cache-path {folder}/cache --tokenizer-type GPT2BPETokenizer
        --vocab-file {ROOT}/tests/data/gpt2-tiny/vocab.json --merge-file {ROOT}/tests/data/gpt2-tiny/merges.txt""".split()
    begin = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"train failed: {done.stderr}")
    return time.perf_counter() - begin


def timed(words, repeats, check):
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        done = subprocess.run([ESPALIER, "data", *words, "--json"], capture_output=True, text=True)
        seconds.append(time.perf_counter() - begin)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)} failed: {done.stderr}")
        check([json.loads(line) for line in done.stdout.splitlines()])
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=10**8)
    parser.add_argument("--tokens-per-document", type=int, default=10**4)
    parser.add_argument("--folder", default=None)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    tokens = arguments.tokens_per_document
    samples = (arguments.documents * tokens - 1) // SEQUENCE // 8 * 8
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        prefix = f"{folder}/large_text_document"
        begin = time.perf_counter()
        write_set(prefix, arguments.documents, tokens)
        print(f"{arguments.documents:,} documents, {arguments.documents * tokens:.3g} tokens, {samples:,} samples of "
              f"{SEQUENCE}; the index was written in {time.perf_counter() - begin:.0f} s", flush=True)
        print(f"train, which builds the order: {train(folder, prefix, samples):.1f} s", flush=True)
        run = f"{folder}/run"

        documents_of_step = set()

        def check_who(found):
            # Eight samples, whose pieces add up and lie where documents of equal length do.
            assert len(found) == 8, found
            for sample in found:
                assert sum(piece["length"] for piece in sample["pieces"]) == SEQUENCE + 1, sample
                for piece in sample["pieces"]:
                    assert piece["byte"] == 2 * (tokens * piece["document"] + piece["offset"]), piece
                    documents_of_step.add(piece["document"])

        who = timed(["who", "--run", run, "--step", "1"], arguments.repeats, check_who)

        def check_where(found):
            # One pass over the data: a document is read once, in one step at least, of which `who` has told one.
            assert any(sample["step"] == 1 for sample in found), found

        where = timed(["where", "--run", run, "--document", str(min(documents_of_step))], arguments.repeats, check_where)
        for name, seconds in (("data who", who), ("data where", where)):
            print(f"{name}: best {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s of {len(seconds)}")


if __name__ == "__main__":
    main()
