#!/usr/bin/env python3
"""What KenLM and SentencePiece make of texts: expected values for `espalier curate step perplexity` (src/curate/lm).

    pip install kenlm==0.3.0 sentencepiece==0.2.3
    tests/oracle/kenlm_oracle.py                     writes tests/data/kenlm again
    tests/oracle/kenlm_oracle.py --check             makes the values again from the committed models and compares
    tests/oracle/kenlm_oracle.py --fresh SEED DIR    writes new models and values into DIR/kenlm; espalier_curate_test
                                                     reads them when ESPALIER_FRESH_ORACLES=DIR

Models are n-grams of the pieces of a SentencePiece model on tests/data/owt-20.jsonl, with made-up weights: the readers
are tested, not smoothing. Binary files are build_binary's, which is compiled from the package's sources (g++). One has
n-grams whose last words alone are none ("gaps"), as pruning leaves them, and no <unk>.

The texts for the models are made by what bigscience-workshop/data-preparation (9d05884, filtering.py) and cc_net
(text_normalizer.py, perplexity.py) do, told again here in a few lines; they were compared with both.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import unicodedata

import kenlm
import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
PIECES = DATA / "megatron_tokenizers/unigram/spm.model"
PIECE_MODELS = sorted(path.parent.name for path in DATA.glob("megatron_tokenizers/*/spm.model"))
BINARIES = {  # what build_binary is told
    "probing": ["probing"],
    "probing-tight": ["-p", "1.01", "probing"],
    "trie": ["trie"],
    "quantized": ["-q", "6", "-b", "5", "trie"],
    "array": ["-a", "10", "trie"],
    "quantized-array": ["-q", "4", "-b", "7", "-a", "22", "trie"],
}
PUNCTUATION = dict(
    zip("，。、„”“«»」「《》´∶：？！（）；–．～’━〈〉【】％►", ",.,\"\"\"\"\"\"\"\"\"'::?!();-.~'-<>[]%-")
)
PUNCTUATION |= {"—": " - ", "．": ". ", "…": "..."}
BLANKS = "\u00a0\u2002\u2003\u2005\u2008\u2009\u200a\u202f\u3000\ufffc\u0084"


def printable(text):
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "", text)


def plain(text):
    return "".join(PUNCTUATION.get(c, c) for c in re.sub(r"\d", "0", text))


def bigscience(text):
    return plain("".join(" " if c in BLANKS else c for c in printable(text).strip()))


def ccnet(text):
    decomposed = unicodedata.normalize("NFD", text.strip().lower())
    return printable(plain("".join(c for c in decomposed if unicodedata.category(c) != "Mn")))


SETTINGS = {"plain": lambda text: text, "bigscience": bigscience, "ccnet": ccnet}


def perplexity(model, pieces, setting, text):
    normal = SETTINGS[setting](text)
    if setting == "ccnet" and not normal:
        return None
    total, length = 0, 0
    for line in normal.split("\n"):
        if pieces:
            line = " ".join(pieces.encode_as_pieces(line))
        total += model.score(line)
        length += len(line.split()) + 1
    value = 10.0 ** (-total / length)
    return value if setting == "plain" else round(value, 1)


def write_arpa(path, counts, order, rng, unknown, gaps):
    """counts: of n-grams by length. With gaps, some n-grams go though longer ones end with them."""
    grams = {n: sorted(counts[n]) for n in range(1, order + 1)}
    if gaps:
        contexts = {gram[:-1] for n in range(3, order + 1) for gram in grams[n]}
        for n in range(2, order):
            ends = {gram[1:] for gram in grams[n + 1]}
            grams[n] = [g for g in grams[n] if g in contexts or g not in ends or rng.random() < 0.4]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\\data\\\n")
        for n in grams:
            file.write(f"ngram {n}={len(grams[n])}\n")
        for n in grams:
            file.write(f"\n\\{n}-grams:\n")
            for gram in grams[n]:
                probability = -99 if gram == ("<s>",) else -round(rng.random() * (5 if n == 1 else 3), 6)
                backoff = "" if n == order else f"\t{-round(rng.random(), 7) if rng.random() < 0.7 else 0}"
                if n < order and rng.random() < 0.2:
                    backoff = ""
                file.write(f"{probability}\t{' '.join(gram)}{backoff}\n")
        file.write("\n\\end\\\n")


def count(lines, order, least, unknown):
    counts = {n: collections.Counter() for n in range(1, order + 1)}
    for line in lines:
        words = ["<s>"] + line.split() + ["</s>"]
        for n in counts:
            for at in range(len(words) - n + 1):
                counts[n][tuple(words[at : at + n])] += 1
    kept = {1: set(counts[1]) | ({("<unk>",)} if unknown else set())}
    for n in range(2, order + 1):  # contexts must be there
        kept[n] = {
            g
            for g, c in counts[n].items()
            if c >= least
            and g[:-1] in kept[n - 1]
            and g[1:] in kept[n - 1]
            and "<s>" not in g[1:]
            and "</s>" not in g[:-1]
        }
    return kept


def build_binary_tool(folder):
    """KenLM's build_binary, compiled from the package's sources."""
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--no-binary",
            "kenlm",
            "kenlm==0.3.0",
            "-d",
            str(folder),
        ],
        check=True,
        stdout=sys.stderr,
    )
    with tarfile.open(next(folder.glob("kenlm-*.tar.gz"))) as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    source = next(folder.glob("kenlm-*/lm")).parent
    files = [
        str(path.relative_to(source))
        for pattern in ("lm/*.cc", "util/*.cc", "util/double-conversion/*.cc")
        for path in sorted(source.glob(pattern))
        if not path.name.endswith(("main.cc", "test.cc"))
    ]
    tool = folder / "build_binary"
    subprocess.run(
        [
            "g++",
            "-O1",
            "-w",
            "-std=c++11",
            "-DNDEBUG",
            "-DKENLM_MAX_ORDER=6",
            "-DHAVE_CLOCKGETTIME",
            "-I.",
            *files,
            "lm/build_binary_main.cc",
            "-lrt",
            "-lpthread",
            "-o",
            str(tool),
        ],
        cwd=source,
        check=True,
    )
    return tool


def make_models(folder, tool, rng, documents, order, least):
    pieces = sentencepiece.SentencePieceProcessor(str(PIECES))
    lines = [" ".join(pieces.encode_as_pieces(bigscience(text))) for text in documents]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    write_arpa(folder / "model.arpa", count(lines, order, least, True), order, rng, True, False)
    write_arpa(folder / "gaps.arpa", count(lines, 3, least, False), 3, rng, False, True)
    for name, words in BINARIES.items():
        subprocess.run([tool, *words, folder / "model.arpa", folder / f"{name}.bin"], check=True, **quiet)
    subprocess.run(
        [tool, "-s", "-p", "1.5", "probing", folder / "gaps.arpa", folder / "gaps-probing.bin"], check=True, **quiet
    )
    subprocess.run([tool, "trie", folder / "gaps.arpa", folder / "gaps-trie.bin"], check=True, **quiet)
    # Rest costs: lower orders of the same vocabulary.
    lower = []
    for n in range(1, order):
        path = folder / f"lower-{n}.arpa"
        write_arpa(path, count(lines, n, least, True), n, rng, True, False)
        lower.append(str(path))
    subprocess.run(
        [tool, "-r", " ".join(lower), "probing", folder / "model.arpa", folder / "rest.bin"], check=True, **quiet
    )
    for path in lower:
        pathlib.Path(path).unlink()


def awkward_texts(rng, documents):
    texts = [
        "",
        " ",
        "\n",
        "the",
        "The river.\nThe ferry!\n\n",
        "  x\u3000y\u00a0z \u2028 w\u0085v\ufffc ",
        "１２ ٣ ½ — “quoted” «oui» …",
        "Ångström ÉCOLE İstanbul ΟΔΟΣ naïve \u0301",
        "你好，世界。",
        "\u0001\u0007bell\x7f\x9b",
        "<s> </s> <unk> <UNK> ▁the",
        "tab\tand\vvertical\fform",
    ]
    for text in documents:
        begin = rng.randrange(max(1, len(text) - 300))
        texts.append(text[begin : begin + rng.randrange(20, 300)])
    return texts


def values(folder, sentences, texts):
    models = {
        path.name: kenlm.Model(str(path)) for path in sorted(folder.glob("*")) if path.suffix in (".arpa", ".bin")
    }
    pieces = sentencepiece.SentencePieceProcessor(str(PIECES))
    result = {"sentences": [], "documents": [], "pieces": []}
    for sentence in sentences:
        result["sentences"].append({"text": sentence, "scores": {n: m.score(sentence) for n, m in models.items()}})
    for text in texts:
        for setting in SETTINGS:
            result["documents"].append(
                {
                    "text": text,
                    "setting": setting,
                    "normal": SETTINGS[setting](text),
                    "words": perplexity(models["trie.bin"], None, "plain", text) if setting == "plain" else None,
                    "pieces": perplexity(models["trie.bin"], pieces, setting, text),
                }
            )
    for name in PIECE_MODELS:
        cutter = sentencepiece.SentencePieceProcessor(str(DATA / "megatron_tokenizers" / name / "spm.model"))
        for text in texts:
            result["pieces"].append({"model": name, "text": text, "pieces": cutter.encode_as_pieces(text)})
    return result


def inputs(rng, documents, count_of_texts):
    pieces = sentencepiece.SentencePieceProcessor(str(PIECES))
    chosen = rng.sample(documents, count_of_texts)
    texts = awkward_texts(rng, chosen)
    sentences = [" ".join(pieces.encode_as_pieces(text)) for text in texts]
    sentences += ["", "  ▁the  ▁of\t▁and \n", "▁the unknown <unk> ▁the ▁the </s> ▁the"]
    return sentences, texts


def written(value):
    return json.dumps(value, ensure_ascii=False, indent=0) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    documents = [json.loads(line)["text"] for line in open(DATA / "owt-20.jsonl", encoding="utf-8")]
    committed = DATA / "kenlm"
    if arguments.check:
        rng = random.Random(1)
        found = written(values(committed, *inputs(rng, documents, 12)))
        if found != (committed / "expected.json").read_text(encoding="utf-8"):
            sys.exit("tests/data/kenlm/expected.json is not what kenlm and sentencepiece give")
        return
    seed = int(arguments.fresh[0]) if arguments.fresh else 1
    folder = pathlib.Path(arguments.fresh[1]) / "kenlm" if arguments.fresh else committed
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as scratch:
        tool = build_binary_tool(pathlib.Path(scratch))
        if arguments.fresh:
            make_models(folder, tool, rng, documents, rng.randrange(3, 7), rng.randrange(1, 4))
        else:
            make_models(folder, tool, rng, [text[:600] for text in documents[:4]], 4, 2)
    rng = random.Random(seed)
    (folder / "expected.json").write_text(written(values(folder, *inputs(rng, documents, 12))), encoding="utf-8")


if __name__ == "__main__":
    main()
