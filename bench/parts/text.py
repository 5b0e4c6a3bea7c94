"""Text to ids: encoding, preprocessing, learning a vocabulary, token files and the order of samples."""
import json
import pathlib
import re
import shutil
import subprocess
import sys

from parts.session import BIN, ROOT, alternate, median, spread

KEPT = ROOT / "build" / "bench"  # texts and vocabularies, made once
MIXED_MB = 100
SENTENCEPIECE_PIECES = 32_000


def text_and_vocabulary(session):
    """The text to encode: what the caller names, else 1000 pages of the web, else the 20 that the repository holds."""
    shared, arguments = ROOT / ".." / "shared" / "data", session.arguments
    for text, vocabulary in [(arguments.text, arguments.vocabulary),
                             (shared / "openwebtext-1000.jsonl", shared / "gpt2"),
                             (ROOT / "tests/data/owt-20.jsonl", ROOT / "tests/data/gpt2-tiny")]:
        if text and vocabulary and pathlib.Path(text).exists() and (pathlib.Path(vocabulary) / "vocab.json").exists():
            return pathlib.Path(text), pathlib.Path(vocabulary)
    sys.exit("scripts/bench: no text; give --text FILE.jsonl --vocabulary FOLDER")


def kept(session, name, make):
    """The path of a file that `make(path)` writes where it is not there yet."""
    path = KEPT / name
    if not path.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        session.say(f"making {path.relative_to(ROOT)}, once")
        partial = path.with_name("partial-" + path.name)
        make(partial)
        partial.rename(path)
    return path


def mixed_text(session, megabytes):
    return kept(session, f"mixed-{megabytes}.jsonl", lambda path: session.run(
        [sys.executable, ROOT / "bench/mixed_text.py", path, megabytes]))


def learned_vocabulary(session, name, rule, size):
    megabytes = session.arguments.megabytes or MIXED_MB
    text = mixed_text(session, megabytes)

    def make(path):
        folder = pathlib.Path(session.work) / name
        session.run([BIN / "espalier", "tokenizer", "train", "--input", text, "--vocab-size", size, "--pre-tokenizer", rule,
                     "--output", folder])
        shutil.copy(folder / "tokenizer.json", path)

    return kept(session, f"{name}-of-{megabytes}.json", make)


TRAIN_SENTENCEPIECE = """
import json, sys, sentencepiece
texts = (line for record in open(sys.argv[1], encoding="utf-8") for line in json.loads(record)["text"].split("\\n"))
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=texts, model_prefix=sys.argv[2], vocab_size=int(sys.argv[3]), model_type="bpe", byte_fallback=True,
    character_coverage=0.9995, max_sentence_length=1 << 20, input_sentence_size=2000, minloglevel=2)
"""


def sentencepiece_model(session):
    megabytes = session.arguments.megabytes or MIXED_MB
    text = mixed_text(session, megabytes)

    def make(path):
        session.run([sys.executable, "-c", TRAIN_SENTENCEPIECE, text, path, SENTENCEPIECE_PIECES])
        path.with_name(path.name + ".model").rename(path)
        path.with_name(path.name + ".vocab").unlink()

    return kept(session, f"sentencepiece-{SENTENCEPIECE_PIECES}-of-{megabytes}.model", make)


def gigatoken(session, part):
    """PYTHONPATH with gigatoken where it can be installed; says so where not."""
    found = subprocess.run([ROOT / "bench/install_gigatoken"], capture_output=True, text=True)
    if found.returncode == 0:
        return {"PYTHONPATH": found.stdout.strip()}
    session.say("encode: gigatoken cannot be installed")
    part["left_out"] = "gigatoken, which cannot be installed here"
    return {}


def encode(session, part):
    """One core: GPT-2's vocabulary on the web's text; then it, a BLOOM-like, a Llama-3-like and SentencePiece on ten scripts."""
    text, gpt2 = text_and_vocabulary(session)
    tasks = [("GPT-2", gpt2, text)]
    part["rows"] = []
    more = {} if session.quick else gigatoken(session, part)
    if not session.quick:
        mixed = mixed_text(session, session.arguments.megabytes or MIXED_MB)
        tasks += [("GPT-2", gpt2, mixed), ("BLOOM-like, 250,000", learned_vocabulary(session, "bloom-250k", "bloom", 250_000), mixed),
                  ("Llama-3-like, 128,000", learned_vocabulary(session, "llama3-128k", "llama3", 128_000), mixed),
                  (f"SentencePiece BPE, {SENTENCEPIECE_PIECES:,}", sentencepiece_model(session), mixed)]
    for name, vocabulary, file in tasks:
        session.say(f"encode: {file.name}, {name}, one core, {session.rounds} rounds")
        run = session.run([sys.executable, ROOT / "bench/tokenizer_peers.py", BIN / "tokenizer_bench", vocabulary, file, "--rounds",
                           session.rounds, "--slow-mb", 10 if not session.quick else 2], **more)
        for line in map(json.loads, run.output.splitlines()):
            if "peer" in line:
                rate = median(line["rounds"]) if line["rounds"] else 0.0
                part["rows"].append({"text": file.name, "vocabulary": name, "peer": line["peer"], "note": line["note"], "mb_per_s": rate,
                                     "spread": spread(line["rounds"]) if rate else 0.0, "text_mb": line["mb"], "rounds": line["rounds"]})


def print_encode(part, _):
    print("\nencode, one core, MB/s")
    cold = {(row["text"], row["vocabulary"]): row["mb_per_s"] for row in part["rows"] if row["peer"] == "espalier cold"}
    for row in part["rows"]:
        ours, rate = row["peer"].startswith("espalier"), row["mb_per_s"]
        times = "" if ours or not rate else f"   espalier cold is {cold[row['text'], row['vocabulary']] / rate:.2f} times that"
        print(f"  {row['text']:<24}{row['vocabulary']:<26}{row['peer']:<16}{rate:>8.1f}, spread {row['spread']:>4.0%}{times}"
              f"{'; ' + row['note'] if row['note'] else ''}")
    if "left_out" in part:
        print(f"  without {part['left_out']}")


def preprocess(session, part):
    text, vocabulary = text_and_vocabulary(session)
    session.say(f"preprocess: {text.name}, plain and compressed")
    run = session.run([ROOT / "bench/preprocess_bench.sh", text, vocabulary, 2 if session.quick else 10])
    part |= {"text": text.name, "rows": []}
    for line in run.output.splitlines():
        if match := re.match(r"(corpus\S*)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)\s+(\d+)$", line):
            name, workers, seconds, megabytes, documents, memory = match.groups()
            part["rows"].append({"input": name, "workers": int(workers), "seconds": float(seconds),
                                 "mb_per_s": float(megabytes), "documents_per_s": int(documents), "peak_mib": int(memory)})
    part["encoder_mb_per_s"] = encoder_rate(session, text, vocabulary)


def encoder_rate(session, text, vocabulary):
    run = session.run([BIN / "tokenizer_bench", vocabulary / "vocab.json", text, 5])
    return next(line["mb_per_s"] for line in map(json.loads, run.output.splitlines()) if line["cache"] == "cold")


def print_preprocess(part, _):
    print(f"\npreprocess {part['text']}; the encoder alone, cold, {part['encoder_mb_per_s']:.1f} MB/s a core")
    print(f"  {'input':<14}{'workers':>8}{'documents/s':>13}{'MB/s':>8}{'of encoder':>12}{'peak MiB':>10}")
    for row in part["rows"]:
        limit = part["encoder_mb_per_s"] * row["workers"]
        print(f"  {row['input']:<14}{row['workers']:>8}{row['documents_per_s']:>13}{row['mb_per_s']:>8.1f}"
              f"{row['mb_per_s'] / limit:>12.2f}{row['peak_mib']:>10}")


def vocabulary(session, part):
    """Learning a BPE of 250,000 pieces, beside tokenizers, on all cores."""
    megabytes, size = (3, 20_000) if session.quick else (session.arguments.megabytes or MIXED_MB, 250_000)
    text, folder = mixed_text(session, megabytes), pathlib.Path(session.work) / "learned"
    peer = pathlib.Path(session.work) / "learned.json"

    def ours():
        shutil.rmtree(folder, ignore_errors=True)
        run = session.run([BIN / "espalier", "tokenizer", "train", "--input", text, "--vocab-size", size, "--pre-tokenizer", "bloom",
                           "--workers", session.threads, "--memory", "8GiB", "--output", folder])
        return run.seconds, run.cpu_seconds, run.peak_mib

    def theirs():
        run = session.run([sys.executable, ROOT / "bench/vocabulary_peer.py", text, size, "bloom", peer],
                          RAYON_NUM_THREADS=str(session.threads))
        return run.seconds, run.cpu_seconds, run.peak_mib

    found = alternate(session, f"vocabulary: {megabytes} MB, {size} pieces", {"espalier": ours, "tokenizers": theirs},
                      rounds=session.arguments.rounds or 1)  # minutes each
    pieces = [json.loads(file.read_text())["model"]["vocab"] for file in (folder / "tokenizer.json", peer)]
    if pieces[0] != pieces[1]:
        sys.exit("scripts/bench: espalier and tokenizers learned different vocabularies")
    part |= {"megabytes": megabytes, "pieces": len(pieces[0]), "rows": [
        {"peer": name, "wall_s": median([run[0] for run in runs]), "cpu_s": median([run[1] for run in runs]),
         "peak_mib": median([run[2] for run in runs]), "spread": spread([run[0] for run in runs]), "rounds": runs}
        for name, runs in found.items()]}


def print_vocabulary(part, _):
    ours, theirs = part["rows"]
    print(f"\nlearning a BPE of {part['pieces']} pieces from {part['megabytes']} MB, both the same vocabulary")
    for row in part["rows"]:
        print(f"  {row['peer']:<12}{row['wall_s']:>8.1f} s, {row['cpu_s']:>7.1f} s of the processor, peak {row['peak_mib']:.0f} MiB")
    print(f"  espalier is {theirs['wall_s'] / ours['wall_s']:.2f} times as fast, in {ours['peak_mib'] / theirs['peak_mib']:.2f}"
          f" of the memory")


def data(session, part):
    mib, rounds = (256, 1) if session.quick else (2048, session.rounds)
    session.say(f"data merge and check: {mib} MiB")
    part |= session.run_json([sys.executable, ROOT / "bench/data_bench.py", BIN / "espalier", session.work, mib, rounds,
                              session.threads])


def print_data(part, _):
    print(f"\ntoken files, {part['mib']:.0f} MiB\n  {'cp and sync':<22}{part['cp_gb_per_s']:>6.2f} GB/s\n"
          f"  {'data merge':<22}{part['merge_gb_per_s']:>6.2f} GB/s, {part['merge_gb_per_s'] / part['cp_gb_per_s']:.2f}"
          f" of cp, peak {part['merge_peak_mib']:.0f} MiB\n"
          f"  {'data check, one core':<22}{part['check_gb_per_core_second']:>6.2f} GB/s of processor time\n"
          f"  {'data check':<22}{part['check_gb_per_s']:>6.2f} GB/s with {part['check_threads']} threads, peak"
          f" {part['check_peak_mib']:.0f} MiB")


DOCUMENTS, QUICK_DOCUMENTS = 5_000_000, 200_000
ORDER_LENGTH, ORDER_EPOCHS = 2048, 2.5


def order(session, part):
    """Megatron's order of the samples, from the sizes of documents to three files, beside upstream's index build."""
    import numpy as np
    count = QUICK_DOCUMENTS if session.quick else DOCUMENTS
    sizes = pathlib.Path(session.work) / "sizes"
    np.random.default_rng(1).lognormal(6.2, 1.0, count).clip(1, 1e6).astype(np.int32).tofile(sizes)

    def measure(command):
        folder = pathlib.Path(session.work) / "order"
        folder.mkdir()
        try:
            run = session.run([*command, sizes, ORDER_LENGTH, ORDER_EPOCHS, folder])
        finally:
            shutil.rmtree(folder)
        return json.loads(run.lines[-1][1])

    ways = {"espalier": lambda: measure([BIN / "order_bench"])}
    checkout = subprocess.run([sys.executable, ROOT / "bench/order_peer.py", "--look"], capture_output=True)
    if checkout.returncode == 0:
        ways["Megatron-DeepSpeed"] = lambda: measure([sys.executable, ROOT / "bench/order_peer.py"])
    else:
        session.say("order: no Megatron-DeepSpeed here: tests/oracle/megatron_data_oracle.py says where it is looked for")
        part["left_out"] = "Megatron-DeepSpeed: there is no checkout, and it cannot be cloned"
    found = alternate(session, f"order: {count} documents", ways)
    if len({runs[0]["samples"] for runs in found.values()}) != 1:
        sys.exit(f"scripts/bench: orders of different lengths: {found}")
    part |= {"documents": count, "samples": found["espalier"][0]["samples"], "rows": [
        {"peer": name, "build_s": median([run["seconds"] for run in runs]), "spread": spread([run["seconds"] for run in runs]),
         "rounds": [run["seconds"] for run in runs]} for name, runs in found.items()]}


def print_order(part, _):
    print(f"\nMegatron's order of {part['samples']} samples from {part['documents']} documents, built and stored")
    for row in part["rows"]:
        times = row["build_s"] / part["rows"][0]["build_s"]
        print(f"  {row['peer']:<20}{row['build_s']:>8.3f} s, spread {row['spread']:.0%}"
              + (f"   espalier is {times:.1f} times as fast (aim: 20)" if row is not part["rows"][0] else ""))
    if "left_out" in part:
        print(f"  without {part['left_out']}")
