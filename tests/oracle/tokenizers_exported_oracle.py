#!/usr/bin/env python3
"""Do transformers' AutoTokenizer and AutoConfig read what `espalier checkpoint export-hf` makes of a run's tokenizer?

    tests/oracle/tokenizers_exported_oracle.py --check           a run of one step with every type of tokenizer of
                                                                 tests/data, exported, loaded, its ids compared
    tests/oracle/tokenizers_exported_oracle.py --fresh SEED DIR  the same with the new cases that
                                                                 megatron_tokenizers_oracle.py wrote into DIR

Needs the environment of tests/oracle/requirements.txt and build/bin. Expected ids are those of the original tokenizers
(expected.json of each folder), for texts that hold no special token: transformers finds those in a text, Megatron does
not.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers

ROOT = pathlib.Path(__file__).parent.parent.parent
# Types of which every text must have equal ids; for the others export-hf says what may differ.
EXACT = ["bpe_llama2", "tiktoken_cl100k", "tiktoken_o200k", "tiktoken_own", "tiktoken_v1", "tiktoken_v2", "hf_bert",
         "hf_unigram", "hf_words"]
NEARLY = {"unigram_bytes": 1, "unigram_across": 1, "bert_lower": 2, "bert_cased": 0}  # texts that may differ
REFUSED = ["word", "unigram_suffix", "unigram_named", "bpe_named"]


def espalier(*arguments):
    done = subprocess.run([ROOT / "build" / "bin" / "espalier", *map(str, arguments)], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise RuntimeError(f"espalier {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stderr


def tokenizer_flags(folder):
    options = json.loads((folder / "options.json").read_text())
    flags = []
    for key, value in options.items():
        is_file = key in ("vocab_file", "merge_file", "tokenizer_model", "tokenizer_name_or_path")
        flags += ["--" + key.replace("_", "-"), folder / value if is_file else value]
    return flags


def export(flags, folder):
    """Trains one step with a tokenizer and exports it; returns what was printed."""
    (folder / "text.jsonl").write_text(json.dumps({"text": "1 2 3 1 2 3 hello world " * 50}) + "\n")
    ids = folder / "ids"
    espalier("preprocess", "--input", folder / "text.jsonl", "--output-prefix", ids, *flags)
    espalier("train", "gpt", "--num-layers", 1, "--hidden-size", 8, "--num-attention-heads", 1, "--seq-length", 8,
             "--max-position-embeddings", 8, "--micro-batch-size", 1, "--global-batch-size", 1, "--train-iters", 1,
             "--lr", 1e-3, "--split", "100,0,0", "--data-path", f"{ids}_text_document", "--save", folder / "run", "--save-interval", 1, *flags)
    return espalier("checkpoint", "export-hf", "--load", folder / "run", "--output", folder / "hf", "--no-check-logits")


def check(name, flags, texts, expected, allowed):
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        said = export(flags, folder)
        config = json.loads((folder / "hf" / "config.json").read_text())
        generation = json.loads((folder / "hf" / "generation_config.json").read_text())
        if name in REFUSED:
            has_none = not (folder / "hf" / "tokenizer.json").exists() and "no tokenizer.json is written" in said
            return "" if has_none else "is not refused"
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "hf")
        if tokenizer.eos_token_id != config.get("eos_token_id") or config.get("eos_token_id") != generation.get("eos_token_id"):
            return f"eos: {tokenizer.eos_token_id} of the tokenizer, {config.get('eos_token_id')} of config.json"
        special = tokenizer.all_special_tokens
        different = [text for text, ids in zip(texts, expected) if not any(token in text for token in special)
                     and tokenizer(text)["input_ids"] != ids]
        return "" if len(different) <= allowed else f"{len(different)} of {len(texts)} texts differ: {different[:2]}"


def cases(root):
    own = root / "texts.json"
    texts = json.loads((own if own.exists() else ROOT / "tests/data/tokenizers/texts.json").read_text())
    for name in [*EXACT, *NEARLY, *REFUSED]:
        folder = root / name
        expected = [entry["ids"] for entry in json.loads((folder / "expected.json").read_text())]
        yield name, tokenizer_flags(folder), texts, expected, NEARLY.get(name, 0)


def gpt2_case():
    """transformers' own GPT-2 on the two files."""
    files = ROOT / "tests" / "data" / "gpt2-tiny"
    texts = json.loads((ROOT / "tests/data/tokenizers/texts.json").read_text())
    own = transformers.GPT2Tokenizer(vocab=str(files / "vocab.json"), merges=str(files / "merges.txt"))
    flags = ["--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", files / "vocab.json", "--merge-file", files / "merges.txt"]
    return "gpt2-tiny", flags, texts, [own(text)["input_ids"] for text in texts], 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    if arguments.fresh:
        # Random models cut other texts in two ways of equal sums: only those that are always exact.
        root = pathlib.Path(arguments.fresh[1]) / "megatron_tokenizers"
        if not root.exists():
            print("no cases of megatron_tokenizers_oracle.py there")
            sys.exit(77)
        listed = [case for case in cases(root) if case[0] in EXACT]
    else:
        listed = [gpt2_case(), *cases(ROOT / "tests" / "data" / "megatron_tokenizers")]
    failed = 0
    for case in listed:
        try:
            problem = check(*case)
        except (RuntimeError, ValueError, OSError) as error:
            problem = str(error)
        failed += bool(problem)
        print(f"{case[0]}: {problem or 'equal'}", flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
