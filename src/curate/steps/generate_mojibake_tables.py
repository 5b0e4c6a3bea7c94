#!/usr/bin/env python3
"""Writes mojibake_tables.cpp: facts about characters that the step ftfy goes by.

    pip install ftfy==6.3.1
    python3 src/curate/steps/generate_mojibake_tables.py > src/curate/steps/mojibake_tables.cpp

Code pages and HTML entities are those of Python's library. Which characters belong to a class that ftfy counts by is
asked of ftfy, code point by code point, and written as ranges.
"""
import html
import html.entities
import re

from ftfy.badness import MOJIBAKE_CATEGORIES
from ftfy.chardata import UTF8_CLUES

# In the order in which they are tried.
CODE_PAGES = ["latin-1", "windows-1252", "windows-1251", "windows-1250", "windows-1253", "windows-1254",
              "windows-1257", "iso-8859-2", "mac-roman", "cp437"]
CLASSES = ["common", "c1", "bad", "law", "currency", "start_punctuation", "end_punctuation", "numeric", "kaomoji",
           "upper_accented", "lower_accented", "upper_common", "lower_common", "box"]
CLUES = ["utf8_first_of_2", "utf8_first_of_3", "utf8_first_of_4", "utf8_continuation", "utf8_continuation_strict"]


def upper_half(page):
    """What the bytes from 0x80 on stand for; an unassigned byte stands for the control character of its number."""
    chars = [bytes([byte]).decode(page, errors="replace") for byte in range(0x80, 0x100)]
    return [0x80 + index if char == "\ufffd" else ord(char) for index, char in enumerate(chars)]


def ranges_of(char_class):
    pattern = re.compile(f"[{char_class}]")
    ranges = []
    for code in range(0x10000):
        if not pattern.match(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return ranges


def entities():
    found = {}
    for name, text in html.entities.html5.items():
        if not name.endswith(";"):
            continue
        found[name[:-1]] = text
        # Names in capitals, where HTML has none of that name.
        capitals = "&" + name.upper()
        if name == name.lower() and html.unescape(capitals) == capitals:
            found[name.upper()[:-1]] = text.upper()
    # A reference is at most 24 characters long.
    return {name: text for name, text in found.items() if len(name) <= 24}


def wrapped(items, joiner, width):
    line = ""
    for item in items:
        if line and len(line) + len(joiner) + len(item) > width:
            yield line
            line = ""
        line += (joiner if line else "") + item
    yield line


def camel(name):
    return "k" + "".join(part.capitalize() for part in name.split("_"))


print("""// Made by generate_mojibake_tables.py; not edited.
#include "curate/steps/mojibake_tables.h"

// clang-format off
namespace espalier::curate {
""")
print("const char16_t kCodePages[kNumCodePages][128] = {")
for page in CODE_PAGES:
    print(f"    {{  // {page}")
    for line in wrapped([f"0x{code:04x}" for code in upper_half(page)], ", ", 104):
        print(f"        {line},")
    print("    },")
print("};\n")
print("const std::vector<CharRange> kMojibakeClasses[] = {")
for name in CLASSES + CLUES:
    table = MOJIBAKE_CATEGORIES if name in MOJIBAKE_CATEGORIES else UTF8_CLUES
    print(f"    {{  // {name}")
    for line in wrapped([f"{{0x{first:04x}, 0x{last:04x}}}" for first, last in ranges_of(table[name])], ", ", 100):
        print(f"        {line},")
    print("    },")
print("};\n")
print("// NAME:CODE[,CODE], in hexadecimal.")
print("const char kHtmlEntities[] =")
for line in wrapped([name + ":" + ",".join(f"{ord(char):x}" for char in text)
                     for name, text in sorted(entities().items())], " ", 108):
    print(f'    "{line} "')
print("    ;\n\n}  // namespace espalier::curate")
