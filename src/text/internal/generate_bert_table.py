#!/usr/bin/env python3
"""Writes bert_table.cpp: which code points BERT's two tokenizers drop, take as blanks, as marks and as punctuation.

    $(tests/oracle/install) src/text/internal/generate_bert_table.py > src/text/internal/bert_table.cpp

kPython* is what Megatron's tokenization under Python 3.11 sees (Unicode 14), found by asking Python about every code
point; kRust* is what tokenizers 0.23's BertNormalizer and BertPreTokenizer do with it.
"""
import sys
import unicodedata

import unicodedata2
from tokenizers import normalizers, pre_tokenizers

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
SIGMA, FINAL_SIGMA = "\u03a3", "\u03c2"


def print_ranges(name, codes):
    ranges = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    print(f"const CodeRange {name}[] = {{")
    line = "   "
    for low, high in ranges:
        word = f" {{0x{low:X}, 0x{high:X}}},"
        if len(line) + len(word) > 120:
            print(line)
            line = "   "
        line += word
    print(line)
    print(f"}};\nconst size_t {name}Size = {len(ranges)};\n")


def of_python():
    category = {code: unicodedata.category(chr(code)) for code in CODES}
    breaks = {code for code in CODES if chr(code).isspace()}
    dropped = {code for code in CODES if category[code] in ("Cc", "Cf") and chr(code) not in "\t\n\r"} | {0, 0xFFFD}
    print_ranges("kPythonDropped", dropped)
    print_ranges("kPythonBlank", ({code for code in CODES if category[code] == "Zs"} | breaks | {9, 10, 13}) - dropped)
    print_ranges("kPythonMark", {code for code in CODES if category[code] == "Mn"})
    print_ranges("kPythonPunctuation", {code for code in CODES if category[code][0] == "P"}
                 | {*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127)})
    # A sigma is final after a cased letter; what is ignorable between them does not count.
    cased = {code for code in CODES if (chr(code) + SIGMA).lower()[-1] == FINAL_SIGMA}
    print_ranges("kPythonCased", cased)
    print_ranges("kPythonCaseIgnorable", {code for code in CODES if code not in cased
                                          and ("A" + chr(code) + SIGMA).lower()[-1] == FINAL_SIGMA})
    lowercase = normalizers.Lowercase()
    newer = {code for code in CODES if category[code] == "Cn" and (
        unicodedata2.category(chr(code)) != "Cn" or lowercase.normalize_str(chr(code)) != chr(code))}
    print_ranges("kNewerThanPython", newer)
    assert all(chr(code).lower() == lowercase.normalize_str(chr(code)) for code in CODES if code not in newer)
    assert {code for code in CODES if len(chr(code).lower()) > 1} == {0x130}


def of_tokenizers():
    clean = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    strip = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    chinese = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False)
    nfd, cut = normalizers.NFD(), pre_tokenizers.BertPreTokenizer()
    cleaned = {code: clean.normalize_str(chr(code)) for code in CODES}
    assert {code for code in CODES if cleaned[code] not in ("", " ", chr(code))} == set()
    dropped = {code for code in CODES if cleaned[code] == ""}
    blanks = {code for code in CODES if cleaned[code] == " "}
    marks = {code for code in CODES if strip.normalize_str(chr(code)) == ""}
    for code in CODES:
        kept = "".join(letter for letter in nfd.normalize_str(chr(code)) if ord(letter) not in marks)
        assert strip.normalize_str(chr(code)) == kept, hex(code)
    print_ranges("kRustDropped", dropped)
    print_ranges("kRustBlank", blanks)
    print_ranges("kRustMark", marks)
    pieces = {code: [piece for piece, _ in cut.pre_tokenize_str(f"a{chr(code)}a")] for code in CODES}
    print_ranges("kRustPunctuation", {code for code in CODES if len(pieces[code]) == 3})
    assert blanks <= {code for code in CODES if len(pieces[code]) == 2}
    found = {code for code in CODES if chinese.normalize_str(chr(code)) != chr(code)}
    print(f"chinese in tokenizers: {len(found)}", file=sys.stderr)
    print_ranges("kRustChinese", found)


def main():
    assert unicodedata.unidata_version == "14.0.0", "Python 3.11 is needed"
    print("// Written by generate_bert_table.py from Python 3.11 and tokenizers 0.23; do not edit.")
    print('#include "text/internal/bert_table.h"\n')
    print("namespace espalier::text::internal {\n")
    of_python()
    of_tokenizers()
    print("}  // namespace espalier::text::internal")


main()
