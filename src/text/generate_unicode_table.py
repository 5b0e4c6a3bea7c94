#!/usr/bin/env python3
"""Writes unicode_table.cpp: what Hugging Face's tokenizers 0.23 takes each code point for.

    pip install tokenizers==0.23.3 unicodedata2==16.0.0
    python3 src/text/generate_unicode_table.py > src/text/unicode_table.cpp

General categories are those of Unicode 16.0. The script then asks tokenizers about every code point and stops where
its regular expressions disagree with them, so the table is known to be the one that tokenizers uses. \\w, which is no
union of categories, is taken from the answers.
"""
import sys

import unicodedata2
from tokenizers import Regex, normalizers

CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi",
              "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"]
WHITE_SPACE = 0x20
WORD = 0x40
BLOCK = 128
LIMIT = 0x110000


def matched_by_tokenizers(pattern):
    """The code points that a regular expression matches, found by trying each of them."""
    remove = normalizers.Replace(Regex(pattern), "")
    return {code for code in range(LIMIT) if not 0xD800 <= code < 0xE000 and remove.normalize_str(chr(code)) == ""}


def with_category(prefixes):
    return {code for code in range(LIMIT) if unicodedata2.category(chr(code)).startswith(prefixes)}


def check(name, expected, found):
    if expected != found:
        sys.exit(f"{name}: Unicode {unicodedata2.unidata_version} and tokenizers differ at "
                 + ", ".join(f"U+{code:04X}" for code in sorted(expected ^ found)[:10]))


def table():
    white_space = matched_by_tokenizers(r"\s")
    word = matched_by_tokenizers(r"\w")
    check(r"\p{L}", with_category("L"), matched_by_tokenizers(r"\p{L}"))
    check(r"\p{N}", with_category("N"), matched_by_tokenizers(r"\p{N}"))
    check(r"\p{M}", with_category("M"), matched_by_tokenizers(r"\p{M}"))
    check(r"\p{P}", with_category("P"), matched_by_tokenizers(r"\p{P}"))
    check(r"\p{S}", with_category("S"), matched_by_tokenizers(r"\p{S}"))
    check(r"\p{Z}", with_category("Z"), matched_by_tokenizers(r"\p{Z}"))
    check(r"\p{Lu}", with_category("Lu"), matched_by_tokenizers(r"\p{Lu}"))
    index = {name: number for number, name in enumerate(CATEGORIES)}
    return [index[unicodedata2.category(chr(code))] | (WHITE_SPACE if code in white_space else 0)
            | (WORD if code in word else 0) for code in range(LIMIT)]


def print_array(declaration, values):
    print(f"{declaration} = {{")
    line = "   "
    for value in values:
        word = f" {value},"
        if len(line) + len(word) > 120:
            print(line)
            line = "   "
        line += word
    print(line)
    print("};")


def main():
    properties = table()
    blocks, first = {}, []
    for begin in range(0, LIMIT, BLOCK):
        block = tuple(properties[begin:begin + BLOCK])
        first.append(blocks.setdefault(block, len(blocks)))
    print("// Written by generate_unicode_table.py from Unicode 16.0; do not edit.")
    print('#include "text/unicode_table.h"\n')
    print("namespace espalier::text::internal {\n")
    print_array(f"const uint16_t kUnicodeBlock[{len(first)}]", first)
    print()
    print_array(f"const uint8_t kUnicodeProperties[{len(blocks) * BLOCK}]",
                [value for block in blocks for value in block])
    print("\n}  // namespace espalier::text::internal")


main()
