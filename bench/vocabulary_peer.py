"""Trains a byte-level BPE with tokenizers: vocabulary_peer.py FILE.jsonl VOCAB_SIZE gpt2|bloom OUTPUT.json

With the settings of `espalier tokenizer train`, so that both learn the same (tests/oracle/bpe_training_oracle.py). On all cores.
"""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/oracle"))

from bpe_training_oracle import EOD, trained  # noqa: E402


def texts(file):
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)["text"]


def main():
    file, size, rule, output = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    trained({"rule": rule, "vocab_size": size, "min_frequency": 2, "special_tokens": [EOD], "documents": texts(file)}).save(output)


main()
