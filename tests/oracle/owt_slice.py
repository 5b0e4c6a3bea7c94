#!/usr/bin/env python3
"""The first documents of a data set that Megatron-DeepSpeed wrote, and their text: tests/data/owt-20.jsonl and
tests/data/owt-20_text_document.{bin,idx}.

Usage: tests/oracle/owt_slice.py DATA_FOLDER [--documents 20]

DATA_FOLDER holds openwebtext-1000.jsonl and owt_text_document.{bin,idx} (tokens of gpt2-tiny, each document ended by
id 4999). Only numbers of the index are computed here: counts, and the arrays cut to their first entries.
"""
import argparse
import struct
from pathlib import Path


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder', type=Path)
    parser.add_argument('--documents', type=int, default=20)
    options = parser.parse_args()
    count = options.documents
    output = Path(__file__).parent.parent / 'data'

    index = (options.folder / 'owt_text_document.idx').read_bytes()
    magic, version, code, sequences, marks = struct.unpack_from('<9sQBQQ', index)
    assert (magic, version, code) == (b'MMIDIDX\0\0', 1, 8) and marks == sequences + 1
    sizes = struct.unpack_from(f'<{sequences}i', index, 34)[:count]
    pointers = struct.unpack_from(f'<{sequences}q', index, 34 + 4 * sequences)[:count]
    documents = struct.unpack_from(f'<{marks}q', index, 34 + 12 * sequences)[:count + 1]
    (output / 'owt-20_text_document.idx').write_bytes(
        struct.pack('<9sQBQQ', magic, version, code, count, count + 1) + struct.pack(f'<{count}i', *sizes) +
        struct.pack(f'<{count}q', *pointers) + struct.pack(f'<{count + 1}q', *documents))
    tokens = (options.folder / 'owt_text_document.bin').read_bytes()
    (output / 'owt-20_text_document.bin').write_bytes(tokens[:2 * sum(sizes)])
    lines = (options.folder / 'openwebtext-1000.jsonl').read_bytes().split(b'\n')
    (output / 'owt-20.jsonl').write_bytes(b''.join(line + b'\n' for line in lines[:count]))


if __name__ == '__main__':
    main()
