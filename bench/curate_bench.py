"""How fast a recipe of curation is beside datatrove's local executor: curate_bench.py ESPALIER FOLDER MB ROUNDS

    $(bench/install_datatrove) bench/curate_bench.py build/bin/espalier /tmp/bench 100 3

Prints one JSON object. Both read the same JSONL in two files, with two workers: language by one fastText model, Gopher's
rules for repetition and quality, personal data, MinHash of 14 x 8 values over runs of 5 words, n-grams of evaluations, GPT-2's
tokens. Documents are paragraphs of OpenWebText put together at random; one in twenty is a near duplicate, one in thirty
has an address, one in fifty a question of the evaluation. The rounds of the two alternate; medians count. Processor time
is that of all processes of a run, so it tells more than the wall clock where others use the machine.
"""
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys

from measured_run import run

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOKENIZER = ROOT / "tests/data/tokenizers/gpt2/tokenizer.json"
QUIZ = [
    " ".join(random.Random(n).choices("harbour master clock tower ferry island winter brass keeper lamp rope tide".split(), k=20))
    for n in range(50)
]


def paragraphs():
    larger = ROOT / "../shared/data/openwebtext-1000.jsonl"
    source = larger if larger.exists() else ROOT / "tests/data/owt-20.jsonl"
    lines = [line for record in open(source, encoding="utf-8") for line in json.loads(record)["text"].split("\n")]
    return [line for line in lines if len(line.split()) > 8]


def make_input(folder, megabytes):
    rng, texts, written = random.Random(1), paragraphs(), 0
    folder.mkdir(parents=True)
    files = [open(folder / f"{n}.jsonl", "w", encoding="utf-8") for n in range(2)]
    recent = []
    while written < megabytes * 1e6:
        if recent and rng.random() < 0.05:
            words = rng.choice(recent).split(" ")
            words[rng.randrange(len(words))] = "other"
            text = " ".join(words)
        else:
            text = "\n".join(rng.sample(texts, rng.randint(3, 30)))
            recent = recent[-200:] + [text]
        if rng.random() < 1 / 30:
            text += " write to someone@example-mail.net now"
        if rng.random() < 1 / 50:
            text += " " + rng.choice(QUIZ)
        line = json.dumps({"text": text, "id": str(written)}, ensure_ascii=False) + "\n"
        files[written // 4096 % 2].write(line)
        written += len(line.encode())
    for file in files:
        file.close()
    return written


def make_model(file):
    """A fastText model shaped as lid.176 (16 dimensions, 2 to 4 letters), which tells English from 19 made-up languages."""
    import fasttext

    rng, texts = random.Random(2), paragraphs()
    letters = "abcdefghijklmnopqrstuvwxyz"
    with open(f"{file}.txt", "w", encoding="utf-8") as train:
        for n in range(20):
            other = letters if n == 0 else "".join(rng.sample(letters, 26))
            for text in rng.sample(texts, min(400, len(texts))):
                words = text.lower().translate(str.maketrans(letters, other)).replace("\n", " ")
                train.write(f"__label__{'en' if n == 0 else f'x{n}'} {words}\n")
    fasttext.train_supervised(f"{file}.txt", dim=16, minn=2, maxn=4, bucket=100000, epoch=20, lr=0.8, loss="hs", thread=2, verbose=0).save_model(file)


def recipe(folder, model):
    steps = [
        f'name = "language"\nmodel = "{model}"\nkeep = ["en"]\nleast_score = 0.65',
        'name = "gopher"',
        'name = "pii"',
        'name = "minhash"',
        f'name = "ngrams"\nagainst = ["quiz={folder}/quiz.jsonl"]',
    ]
    text = (
        f'[output]\nfolder = "{folder}/ours"\ntokenizer = "{TOKENIZER}"\nappend_eod = false\n[run]\nworkers = 2\n'
        f'[[source]]\nname = "web"\nfiles = ["{folder}/in/*.jsonl"]\n' + "".join(f"[[step]]\n{step}\n" for step in steps)
    )
    (folder / "recipe.toml").write_text(text)
    return str(folder / "recipe.toml")


def peer(folder):
    """The same with datatrove; called in a process of its own."""
    import numpy as np
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.decont import n_grams
    from datatrove.pipeline.dedup import (MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter,
                                          MinhashDedupSignature)
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter, LanguageFilter
    from datatrove.pipeline.formatters import PIIFormatter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from datatrove.pipeline.writers import JsonlWriter

    work = folder / "peer"

    def carry_out(pipeline, tasks=2):
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=2, start_method="spawn",
                              logging_dir=str(work / "logs" / str(len(os.listdir(work))))).run()

    (work / "index").mkdir(parents=True)
    n_grams.NGramsDecontIndexer._requires_dependencies = []
    config = n_grams.NGramsDecontConfig(n_grams=12, find_query_ngrams=False, find_overlap_ngrams=False)
    indexer = n_grams.NGramsDecontIndexer(str(work / "index"), config=config)
    hashes = {value for text in QUIZ for value in indexer.compute_hashes(text)}
    np.array(list(hashes), dtype=config.hash_config.np_descr).tofile(work / "index/quiz.index.hashes")
    carry_out([JsonlReader(str(folder / "in")), LanguageFilter(["en"], language_threshold=0.65), GopherRepetitionFilter(),
               GopherQualityFilter(), PIIFormatter(), JsonlWriter(str(work / "a"), compression=None)])
    carry_out([JsonlReader(str(work / "a")), MinhashDedupSignature(str(work / "signatures"))])
    carry_out([MinhashDedupBuckets(str(work / "signatures"), str(work / "buckets"))], tasks=14)
    carry_out([MinhashDedupCluster(str(work / "buckets"), str(work / "removed"))], tasks=1)
    carry_out([JsonlReader(str(work / "a")), MinhashDedupFilter(str(work / "removed")),
               n_grams.NGramsDecontFilter(str(work / "index"), config=config), JsonlWriter(str(work / "b"), compression=None),
               DocumentTokenizer(str(work / "tokens"), str(TOKENIZER), shuffle_documents=False)])


if "ESPALIER_BENCH_MODEL" in os.environ:  # in datatrove's processes too, which read this file again
    from datatrove.utils import lid

    lid.FT176LID.MODEL_URL = os.environ["ESPALIER_BENCH_MODEL"]


def count_lines(files):
    return sum(sum(1 for _ in open(file, "rb")) for file in files)


def main():
    if sys.argv[1] == "--peer":
        return peer(pathlib.Path(sys.argv[2]))
    espalier, folder, megabytes, rounds = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), *map(int, sys.argv[3:5])
    size = make_input(folder / "in", megabytes)
    (folder / "quiz.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in QUIZ))
    model = str(folder / "language.bin")
    make_model(model)
    ours = [espalier, "curate", recipe(folder, model), "--overwrite"]
    theirs = [sys.executable, __file__, "--peer", str(folder)]
    os.environ.update(ESPALIER_BENCH_MODEL=model, HF_HUB_OFFLINE="1", HF_ASSETS_CACHE=str(folder / "assets"))
    subprocess.run([sys.executable, "-c", "import datatrove.pipeline.filters, datatrove.pipeline.dedup"], check=True)  # byte code
    times = {"ours": [], "peer": []}
    for _ in range(rounds):
        for name, command in (("ours", ours), ("peer", theirs)):
            shutil.rmtree(folder / name, ignore_errors=True)
            times[name].append(run(command))
    median = lambda name, column: statistics.median(row[column] for row in times[name])
    print(json.dumps({
        "mb": size / 1e6,
        "documents": count_lines((folder / "in").glob("*.jsonl")),
        **{f"{name}_{what}": value for name in times for what, value in (
            ("seconds", median(name, 0)), ("core_seconds", median(name, 1)), ("mb_per_core_second", size / 1e6 / median(name, 1)),
            ("peak_mib", max(row[2] for row in times[name])))},
        "ratio_of_core_seconds": median("peer", 1) / median("ours", 1),
        "ours_kept": count_lines((folder / "ours").glob("*.jsonl")),
        "peer_kept": count_lines((folder / "peer/b").glob("*.jsonl")),
        "rounds": rounds}))


if __name__ == "__main__":
    main()
