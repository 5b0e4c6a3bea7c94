#!/usr/bin/env python3
"""Writes grapheme_table.cpp: what decides where tokenizers 0.23 breaks a text into graphemes.

    $(tests/oracle/install) src/text/internal/generate_grapheme_table.py > src/text/internal/grapheme_table.cpp

The normalizer Precompiled is the only part that breaks a text so: a grapheme below 6 bytes is replaced as a whole, a
longer one character by character. With a map in which every byte becomes Q, the number of Qs tells whether characters
are joined; each property is found by trying every code point.
"""
import base64
import json
import struct

from tokenizers import Tokenizer

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
ACUTE, ZWJ, PICTURE, KA, VIRAMA = "\u0301", "\u200d", "\u00a9", "\u0915", "\u094d"
FLAGS = ["Extend", "SpacingMark", "Prepend", "Control", "HangulL", "HangulV", "HangulT", "Picture", "Consonant", "Linker",
         "ConjunctExtend"]


def counter():
    """A function that tells the number of Qs."""
    units = [0] * 768
    units[0] = 256 << 10
    for byte in range(1, 256):
        units[256 + byte] = byte | 1 << 8 | 768 << 10
        units[512 + byte] = 1 << 31
    blob = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"Q\0"
    model = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}
    tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "model": model, "normalizer": {
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()}}))
    return lambda text: len(tokenizer.normalizer.normalize_str(text))


def properties(code, count):
    letter, size = chr(code), len(chr(code).encode())
    found = set()
    if count("a" + letter) == 1:
        joins = count(PICTURE + letter + ZWJ + PICTURE + ACUTE) == 5
        found.add("Extend" if joins else "SpacingMark")
        if count(KA + VIRAMA + letter + KA + ACUTE) == 5:
            found.add("ConjunctExtend")
        if count(KA + letter + KA + ACUTE) == 4:
            found.add("Linker")
        return found
    if count(letter + "a") == 1:
        found.add("Prepend")
    joined = count(letter + ACUTE) == 1 if size < 4 else count(letter + ACUTE + ACUTE) == 3
    if not joined:
        found.add("Control")
    if count(PICTURE + ZWJ + letter) == 3:
        found.add("Picture")
    if count(letter + VIRAMA + KA + ACUTE) == 4:
        found.add("Consonant")
    before_v, before_t = count(letter + "\u1160" + ACUTE) == 3, count(letter + "\u11a8" + ACUTE) == 3
    if "Prepend" not in found and (before_v or before_t):
        if before_v:
            found.add("HangulV" if before_t else "HangulL")
        else:
            found.add("HangulT")
    return found


def main():
    count = counter()
    ranges = []
    for code in CODES:
        if 0xAC00 <= code <= 0xD7A3 or chr(code) in "\r\n" + ZWJ:
            continue
        flags = sum(1 << FLAGS.index(name) for name in properties(code, count))
        if not flags:
            continue
        if ranges and ranges[-1][1] == code - 1 and ranges[-1][2] == flags:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, flags])
    print("// Written by generate_grapheme_table.py from tokenizers 0.23; do not edit.")
    print('#include "text/internal/grapheme.h"\n')
    print("namespace espalier::text::internal {\n")
    print("const GraphemeRange kGraphemeRanges[] = {")
    line = "   "
    for low, high, flags in ranges:
        word = f" {{0x{low:X}, 0x{high:X}, 0x{flags:X}}},"
        if len(line) + len(word) > 120:
            print(line)
            line = "   "
        line += word
    print(line)
    print(f"}};\nconst size_t kGraphemeRangesSize = {len(ranges)};\n")
    print("}  // namespace espalier::text::internal")


main()
