#!/usr/bin/env python3
"""Ten megabytes of mixed text in twelve scripts, and random bytes, through every kind of tokenizer: our ids, the reference
library's, and how fast each makes them.

    $(tests/oracle/install) tests/oracle/tokenizers_long.py [SEED] [MEGABYTES] [KIND...]

Needs build/bin/espalier and, for our rates, build/bin/tokenizer_bench. Vocabularies of 8,000 pieces are trained on a part
of the text by the reference libraries. Documents are up to 300 kB long, so that sums of scores become large. Exit code
1 if anything differs. Rates are megabytes a second of CPU time on one thread, ours with an empty cache at the start.
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import tokenizers
import unicodedata

import megatron_tokenizers_oracle as oracle

ROOT = pathlib.Path(__file__).parent.parent.parent
# First and last letters; joined by blanks but for the last three, whose words are together.
SCRIPTS = {"Latin": "a-z", "Latin with accents": "\u00c0-\u017f", "Greek": "\u0391-\u03c9", "Cyrillic": "\u0410-\u044f",
           "Armenian": "\u0561-\u0586", "Hebrew": "\u05d0-\u05ea", "Arabic": "\u0621-\u064a", "Devanagari": "\u0905-\u094d",
           "Hangul": "\uac00-\uac80", "Thai": "\u0e01-\u0e3a", "Han": "\u4e00-\u4f80", "Kana": "\u3041-\u30f0"}
MARKS = [". ", ", ", "! ", "? ", "; ", ": ", " (", ") ", "\n", "\n\n", "  ", "\t", " - ", "\u2026 ", "\u3002", "\u3001",
         " \u00ab", "\u00bb ", "\u0964 ", "'s ", "n't ", " <s> ", " [MASK] ", " \u00bd ", " \ufb01n ", "\u00a0", "\u200b"]


def words_of(rng, letters):
    first, last = map(ord, letters.split("-"))
    usable = [chr(code) for code in range(first, last + 1) if unicodedata.category(chr(code)) != "Cn"]
    weights = [1 / (place + 2) for place in range(len(usable))]
    rng.shuffle(usable)
    return ["".join(rng.choices(usable, weights, k=rng.choice([1, 2, 3, 4, 5, 6, 7, 9, 12]))) for _ in range(3000)]


def mixed_text(rng, megabytes):
    """Documents: words whose frequencies fall as 1/rank, numbers, marks, repetitions and repaired random bytes."""
    lexicons = [(name, words_of(rng, letters)) for name, letters in SCRIPTS.items()]
    ranks = [1 / (rank + 3) for rank in range(3000)]
    documents, size = [], 0
    while size < megabytes * 1_000_000:
        wanted, parts = rng.choice([50, 500, 3000, 20_000, 300_000]), []
        while wanted > 0:
            name, words = rng.choice(lexicons)
            blank = "" if name in ("Thai", "Han", "Kana") else " "
            parts += [word + blank + (rng.choice(MARKS) if rng.random() < 0.15 else "")
                      for word in rng.choices(words, ranks, k=rng.randrange(5, 60))]
            kind = rng.random()
            if kind < 0.1:
                parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
            elif kind < 0.15:
                parts.append(rng.randbytes(rng.randrange(1, 40)).decode(errors="replace"))
            elif kind < 0.17:
                parts.append(rng.choice(["ab", "\u4e00", "-", " "]) * rng.randrange(300))
            wanted -= sum(map(len, parts[-60:]))
        documents.append("".join(parts))
        size += len(documents[-1].encode())
    return documents


def kinds(corpus, folder):
    """Name, the library's encoder and the words that make espalier read the same files."""
    lines = [line for text in corpus for line in text.split("\n") if line.strip() and "\0" not in line]
    for name, model, options in [
            ("unigram nmt_nfkc", "unigram", {}), ("BPE nmt_nfkc_cf", "bpe", {"normalization_rule_name": "nmt_nfkc_cf"}),
            ("unigram identity, bytes", "unigram", {"normalization_rule_name": "identity", "byte_fallback": True}),
            ("BPE as Llama 2", "bpe", {"normalization_rule_name": "identity", "byte_fallback": True, "split_digits": True,
                                       "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True})]:
        file = folder / name.replace(" ", "_")
        file.mkdir()
        processor = oracle.train_sentencepiece(file, lines, model_type=model, vocab_size=8000, character_coverage=0.999,
                                               max_sentence_length=100_000, **({"num_threads": 1} | options))
        yield name, oracle.Gpt(processor).encode, file / "spm.model"
    sample = [text[:5000] for text in corpus]
    for name, make in [("BertWordPieceLowerCase", next(oracle.bert_cases(sample))[2]),
                       ("tiktoken cl100k_base", next(oracle.tiktoken_cases(sample))[2])]:
        file = folder / name.replace(" ", "_")
        file.mkdir()
        encode = make(file).encode
        yield name, encode, next(path for path in file.iterdir())
    for name, options, make in oracle.hugging_face_cases([line[:1000] for line in lines], full=True):
        if name in ("hf_bert", "hf_unigram_nmt_nfkc"):
            file = folder / name
            file.mkdir()
            encode = make(file).encode
            yield f"tokenizer.json {name}", encode, file / "tokenizer.json"


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    megabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 10
    rng, failed = random.Random(seed), False
    documents = mixed_text(rng, megabytes)
    size = sum(len(text.encode()) for text in documents) / 1e6
    print(f"{len(documents)} documents, {size:.1f} MB, seed {seed}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = folder / "texts.jsonl"
        texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        for name, encode, file in kinds(documents[:max(1, len(documents) // 8)], folder):
            if sys.argv[3:] and not any(word in name for word in sys.argv[3:]):
                continue
            start = time.process_time()
            expected = [list(encode(text)) for text in documents]
            seconds = time.process_time() - start
            command = [ROOT / "build/bin/espalier", "tokenizer", "encode", "--jsonl", "--tokenizer", file]
            found = subprocess.run(command, stdin=open(texts), capture_output=True, check=True, text=True).stdout
            ours = [json.loads(line)["ids"] for line in found.splitlines()]
            equal = ours == expected
            failed |= not equal
            rate, bench = "", ROOT / "build/bin/tokenizer_bench"
            if bench.exists():
                output = subprocess.run([bench, file, texts, "1"], capture_output=True, check=True, text=True).stdout
                rate = f", {json.loads(output.splitlines()[0])['mb_per_s']:.1f} MB/s against {size / seconds:.1f}"
            print(f"{name}: {sum(map(len, expected))} ids, {'equal' if equal else 'DIFFERENT'}{rate}", flush=True)
            if not equal:
                place = next(i for i, (a, b) in enumerate(zip(ours, expected)) if a != b)
                at = next((i for i, (a, b) in enumerate(zip(ours[place], expected[place])) if a != b), -1)
                print(f"  document {place} of {len(documents[place])} characters, id {at}: {ours[place][at:at + 8]}, "
                      f"expected {expected[place][at:at + 8]}")
    sys.exit(failed)


main()
