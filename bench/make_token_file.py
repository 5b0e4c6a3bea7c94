"""Writes a token file of random ids for benchmarks, without numpy: make_token_file.py PREFIX MIB [SEED]

uint16 ids below 50,257, documents of 1,000 tokens, in Megatron's mmap format (docs/data-path.md).
"""
import array
import random
import struct
import sys

TOKENS_PER_DOCUMENT = 1000
TOKENS_PER_BLOCK = 1000 * TOKENS_PER_DOCUMENT


def main():
    prefix, mib = sys.argv[1], int(sys.argv[2])
    generator = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    # One block of random ids again and again: what is measured is moving and comparing them.
    block = array.array("H", (generator.randrange(50257) for _ in range(TOKENS_PER_BLOCK))).tobytes()
    blocks = max(1, mib * 2**20 // len(block))
    with open(prefix + ".bin", "wb") as file:
        for _ in range(blocks):
            file.write(block)
    documents = blocks * TOKENS_PER_BLOCK // TOKENS_PER_DOCUMENT
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        array.array("i", [TOKENS_PER_DOCUMENT] * documents).tofile(file)
        array.array("q", range(0, 2 * TOKENS_PER_DOCUMENT * documents, 2 * TOKENS_PER_DOCUMENT)).tofile(file)
        array.array("q", range(documents + 1)).tofile(file)


main()
