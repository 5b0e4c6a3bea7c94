"""The vector of a few tokens as src/retrieval/ngram_embedder.h describes it, with the Python package xxhash: the known
answer of its test.

    python tests/oracle/ngram_vectors.py
"""
import math
import struct

import xxhash


def vector(ids, dimension):
    numbers = [0] * dimension
    for first in range(len(ids)):
        for run in (ids[first:first + length] for length in (1, 2, 3) if first + length <= len(ids)):
            value = xxhash.xxh3_64_intdigest(struct.pack(f"<{len(run)}I", *run))
            numbers[value % dimension] += -1 if value >> 63 else 1
    total = sum(abs(number) for number in numbers)
    return [math.copysign(math.sqrt(abs(number) / total), number) for number in numbers]


print(", ".join(f"{number:.9g}" for number in vector([5, 7, 5, 7, 1000], 16)))
