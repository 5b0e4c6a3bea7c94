"""Writes text in ten scripts, for tokenizers: mixed_text.py FILE.jsonl MEGABYTES

Every document is in one script: words of made-up lexicons (100,000 words of letters that are drawn unevenly, their frequencies
by Zipf's law), numbers and punctuation among them; Chinese and Thai without blanks. The same bytes on every machine.
"""
import json
import sys

import numpy as np

WORDS = 100_000
# First and last letter of ranges, a blank between words, the ends of sentences.
SCRIPTS = {
    "Latin": ("az", "azàö", " ", ". "), "Cyrillic": ("ая", "ая", " ", ". "), "Greek": ("αω", "αω", " ", ". "),
    "Arabic": ("بغ", "في", " ", "۔ "), "Hebrew": ("את", "את", " ", ". "), "Devanagari": ("कह", "ाौ", " ", "। "),
    "Bengali": ("কহ", "াৌ", " ", "। "), "Thai": ("กฮ", "ะู", "", " "), "Chinese": ("一龥", "一龥", "", "。"),
    "Korean": ("가힣", "가힣", " ", ". "),
}


def letters(ranges):
    return [chr(code) for first, last in zip(ranges[::2], ranges[1::2]) for code in range(ord(first), ord(last) + 1)]


def lexicon(rng, consonants, others):
    """Words of 1 to 10 letters, in turns from both sets: a Chinese word has at most 3."""
    sets = [letters(consonants), letters(others)]
    longest = 3 if len(sets[0]) > 1000 else 10
    words = []
    for length in rng.integers(1, longest + 1, WORDS):
        # The square makes early letters more frequent than late ones.
        draws = rng.random(length) ** 2
        words.append("".join(sets[at % 2][int(draw * len(sets[at % 2]))] for at, draw in enumerate(draws)))
    return np.array(words, dtype=object)


def main():
    file, megabytes = sys.argv[1], float(sys.argv[2])
    rng = np.random.default_rng(1)
    scripts = [(lexicon(rng, *script[:2]), *script[2:]) for script in SCRIPTS.values()]
    frequencies = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    written = 0
    with open(file, "w", encoding="utf-8") as output:
        while written < megabytes * 1e6:
            words, blank, end = scripts[rng.integers(len(scripts))]
            found = words[np.searchsorted(frequencies, rng.random(rng.integers(50, 2000)) * frequencies[-1])].tolist()
            for place in rng.integers(0, len(found), len(found) // 25):
                found[place] = str(rng.integers(10 ** rng.integers(1, 6)))
            sentences, at = [], 0
            while at < len(found):
                length = int(rng.integers(4, 30))
                sentences.append(blank.join(found[at:at + length]))
                at += length
            text = end.join(sentences) + end.strip()
            output.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
            written += len(text.encode())


main()
