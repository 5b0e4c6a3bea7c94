#!/usr/bin/env python3
"""The buckets of relative positions that transformers' T5 computes: expected values for src/spec/relative_positions.h.

    tests/oracle/relative_buckets_oracle.py                   writes tests/data/transformers/relative_buckets.txt again
    tests/oracle/relative_buckets_oracle.py --check           makes it again and compares with the committed one
    tests/oracle/relative_buckets_oracle.py --fresh SEED DIR  writes others into DIR/relative_buckets.txt; the test of
                                                              spec reads them when ESPALIER_FRESH_ORACLES=DIR

A line for each setting: direction, number of buckets, largest distance, length; then, of the distances from
1 - length to length - 1, those that have another bucket than the one before, as distance:bucket.
"""
import argparse
import pathlib
import random
import sys

import torch
from transformers.models.t5.modeling_t5 import T5Attention

FILE = pathlib.Path("tests/data/transformers/relative_buckets.txt")
LENGTH = 2001
SETTINGS = [(32, 128), (64, 128), (32, 256), (8, 20), (33, 100), (16, 2000), (4, 8)]


def line(bidirectional, buckets, largest, length):
    distances = torch.arange(1 - length, length)
    found = T5Attention._relative_position_bucket(
        distances, bidirectional=bidirectional, num_buckets=buckets, max_distance=largest).tolist()
    runs = [f"{distance}:{bucket}" for distance, bucket, before in zip(distances.tolist(), found, [None, *found])
            if bucket != before]
    direction = "bidirectional" if bidirectional else "causal"
    return f"{direction} {buckets} {largest} {length} {' '.join(runs)}\n"


def committed():
    return "".join(line(direction, *setting, LENGTH) for setting in SETTINGS for direction in (True, False))


def fresh(rng):
    lines = []
    for _ in range(200):
        buckets = rng.randint(4, 200)
        lines.append(line(rng.random() < 0.5, buckets, rng.randint(buckets // 2 + 1, 5000), rng.randint(1, 6000)))
    return "".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    if arguments.fresh:
        seed, folder = arguments.fresh
        (pathlib.Path(folder) / FILE.name).write_text(fresh(random.Random(int(seed))))
    elif arguments.check:
        sys.exit(FILE.read_text() != committed())
    else:
        FILE.write_text(committed())


main()
