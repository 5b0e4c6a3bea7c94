#!/usr/bin/env python3
"""Writes unicode_table.cpp: what Hugging Face's tokenizers 0.23 takes each code point for.

    pip install tokenizers==0.23.3 unicodedata2==16.0.0
    python3 src/text/generate_unicode_table.py > src/text/unicode_table.cpp

General categories are those of Unicode 16.0. The script then asks tokenizers about every code point and stops where
its regular expressions disagree with them, so the table is known to be the one that tokenizers uses. \\w, which is no
union of categories, is taken from the answers.

Other parts of tokenizers know other versions of Unicode (its libraries are of different ages): what they say of each
code point is written as ranges.
"""
import sys

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

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


CODES = [code for code in range(LIMIT) if not 0xD800 <= code < 0xE000]


def split_off(pre_tokenizer, num_pieces):
    """The code points c for which "AcA" is cut into that many pieces."""
    return {code for code in CODES if len(pre_tokenizer.pre_tokenize_str(f"A{chr(code)}A")) == num_pieces}


def inert_in_normalization():
    """Code points that tokenizers' normal forms leave alone although Unicode 16 decomposes, reorders or composes them.

    A starter that tokenizers does not compose with what follows counts; its marks are asked about by themselves.
    """
    nfc, nfd, nfkd = normalizers.NFC(), normalizers.NFD(), normalizers.NFKD()

    def differs(text):
        return (nfd.normalize_str(text) != unicodedata2.normalize("NFD", text)
                or nfkd.normalize_str(text) != unicodedata2.normalize("NFKD", text))

    inert = {code for code in CODES if differs(chr(code)) or differs("a\u0301" + chr(code))
             or differs("a" + chr(code) + "\u0334")}
    for code in CODES:
        parts = unicodedata2.decomposition(chr(code)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if unicodedata2.normalize("NFC", pair) == chr(code) != nfc.normalize_str(pair):
                inert |= {ord(part) for part in pair if unicodedata2.combining(part) == 0}
    return inert


def print_ranges(name, codes):
    ranges = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    print_array(f"const CodeRange {name}[{len(ranges)}]", [f"{{0x{low:X}, 0x{high:X}}}" for low, high in ranges])
    print(f"const size_t {name}Size = {len(ranges)};\n")


def print_lowercase():
    lowercase = normalizers.Lowercase()
    pairs = [(code, lowercase.normalize_str(chr(code))) for code in CODES]
    changed = [(code, lower) for code, lower in pairs if lower != chr(code)]
    assert [code for code, lower in changed if len(lower) > 1] == [0x130]  # written out in normalizer.cpp
    single = [(code, ord(lower)) for code, lower in changed if len(lower) == 1]
    print_array(f"const CodePair kLowercase[{len(single)}]", [f"{{0x{code:X}, 0x{low:X}}}" for code, low in single])
    print(f"const size_t kLowercaseSize = {len(single)};\n")


def print_other_versions():
    numbers = split_off(pre_tokenizers.Digits(individual_digits=True), 3)
    white_space = matched_by_tokenizers(r"\s")
    check("White_Space", white_space, split_off(pre_tokenizers.WhitespaceSplit(), 2))
    strip = normalizers.Strip()
    check("White_Space", white_space, {code for code in CODES if strip.normalize_str(f"A{chr(code)}") == "A"})
    strip_accents = normalizers.StripAccents()
    print_ranges("kNumericChars", numbers)
    print_ranges("kWordOfRustRegex", split_off(pre_tokenizers.Whitespace(), 1))
    print_ranges("kPunctuationChars", split_off(pre_tokenizers.Punctuation(), 3))
    print_ranges("kStrippedAccents", {code for code in CODES if strip_accents.normalize_str(chr(code)) == ""})
    print_ranges("kInertInNormalization", inert_in_normalization())
    print_lowercase()


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
    print()
    print_other_versions()
    print("}  // namespace espalier::text::internal")


main()
