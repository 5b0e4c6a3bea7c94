#!/usr/bin/env python3
"""Every figure of docs/benchmarks.md, against the peers, in one table; scripts/bench builds all and calls this.

    scripts/bench [--quick] [--only machine,matmul,training,encode,preprocess,data,convert,serving,parallel,pipeline,
                  replicas,options,curate] [--profile] [--output FILE.json] [--markdown FILE.md] [--compare OLD.json]

What the machine can do at most comes first, and figures are shares of it where that makes sense. Runs alternate between the
peers, and medians count. One process at a time; nothing else should run on the machine.
"""
import argparse
import array
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

from compare import compare, markdown

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build" / "bin"
PARTS = ["machine", "matmul", "training", "encode", "preprocess", "data", "convert", "serving", "parallel", "pipeline",
         "replicas", "options", "curate"]
PROFILE = "profile"  # only where it is asked for
PROFILED_STEPS = 3
QUICK_SECONDS = 180   # after these --quick begins no further part
PEER_STEP_SECONDS = 120  # a peer that takes longer for a step is not waited for
MICRO_BATCH, POSITIONS = 4, 1024
# (precision, sequence length, rounds, steps of a run); the first WARM_UP steps of a run do not count.
TRAININGS = [("bf16", 256, 3, 8), ("bf16", 1024, 3, 5), ("fp32", 256, 2, 5), ("fp32", 1024, 2, 4)]
QUICK_TRAININGS = [("bf16", 256, 1, 4), ("fp32", 256, 1, 3)]
WARM_UP = 2
# Tokens of a step, rounds, steps of a run: one process against two.
PARALLELS = [(16384, 3, 4), (4096, 3, 5), (1024, 3, 8)]
QUICK_PARALLELS = [(4096, 1, 4)]
PARALLEL_LENGTH = 256


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Run:
    """One process to its end: what it printed, and its peak memory."""

    def __init__(self, command, limit=None, folder=ROOT, **environment):
        """`limit`: seconds after which it is killed; None stands for its output then."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=errors, cwd=folder,
                                       env=os.environ | environment)
            killer = threading.Timer(limit, process.kill) if limit else None
            if killer:
                killer.start()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            self.peak_mib, self.output = usage.ru_maxrss / 1024, None
            if killer:
                if process.returncode == -signal.SIGKILL and not killer.is_alive():
                    return
                killer.cancel()
            output.seek(0), errors.seek(0)
            self.output, errors = output.read(), errors.read()
        if process.returncode:
            line = " ".join(map(str, command))
            sys.exit(f"scripts/bench: exit code {process.returncode} from {line}\n{errors[-3000:]}")


def text_and_vocabulary(arguments):
    """The text to encode: what the caller names, else 1000 pages of the web, else the 20 that the repository holds."""
    shared = ROOT / ".." / "shared" / "data"
    for text, vocabulary in [(arguments.text, arguments.vocabulary),
                             (shared / "openwebtext-1000.jsonl", shared / "gpt2"),
                             (ROOT / "tests/data/owt-20.jsonl", ROOT / "tests/data/gpt2-tiny")]:
        if text and vocabulary and pathlib.Path(text).exists() and (pathlib.Path(vocabulary) / "vocab.json").exists():
            return pathlib.Path(text), pathlib.Path(vocabulary)
    sys.exit("scripts/bench: no text; give --text FILE.jsonl --vocabulary FOLDER")


def encode(arguments):
    text, vocabulary = text_and_vocabulary(arguments)
    say(f"encode: {text.name}, one core")
    run = Run([sys.executable, ROOT / "bench/tokenizer_peers.py", BIN / "tokenizer_bench", vocabulary, text])
    rates = {line["peer"]: line["mb_per_s"] for line in map(json.loads, run.output.splitlines())}
    return {"text": text.name, "vocabulary": vocabulary.name, "mb_per_s": rates}


def preprocess(arguments):
    text, vocabulary = text_and_vocabulary(arguments)
    say(f"preprocess: {text.name}, plain and compressed")
    run = Run([ROOT / "bench/preprocess_bench.sh", text, vocabulary, 2 if arguments.quick else 10])
    rows = []
    for line in run.output.splitlines():
        if match := re.match(r"(corpus\S*)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)\s+(\d+)$", line):
            name, workers, seconds, megabytes, documents, memory = match.groups()
            rows.append({"input": name, "workers": int(workers), "seconds": float(seconds),
                         "mb_per_s": float(megabytes), "documents_per_s": int(documents), "peak_mib": int(memory)})
    return {"text": text.name, "rows": rows}


def token_files(arguments):
    mib, rounds = (256, 1) if arguments.quick else (2048, 5)
    say(f"data merge and check: {mib} MiB")
    run = Run([sys.executable, ROOT / "bench/data_bench.py", BIN / "espalier", arguments.work, mib, rounds,
               arguments.threads])
    return json.loads(run.output)


def convert(arguments):
    mib, rounds = (128, 1) if arguments.quick else (1024, 5)
    say(f"checkpoint import-hf and export-hf: {mib} MiB")
    run = Run([sys.executable, ROOT / "bench/convert_bench.py", BIN / "espalier", arguments.work, mib, rounds])
    return json.loads(run.output)


def machine(arguments):
    """Registers, memory and disk: bench/machine_bench.cpp."""
    say("machine: registers, memory, disk")
    run = Run([BIN / "machine_bench", arguments.threads, arguments.work, 256 if arguments.quick else 1024])
    return json.loads(run.output)


PRODUCT = re.compile(r"  (\S.*?)\s+ours\s+\d+ \(median\s+(\d+)\)\s+ATen\s+\d+ \(median\s+(\d+)\)")


def products(output):
    """matmul_bench's medians, a row for each product of each shape."""
    rows, shape = [], None
    for line in output.splitlines():
        if match := re.match(r"(\d+) tokens, (\d+) -> (\d+)", line):
            shape = "x".join(match.groups())
        elif match := PRODUCT.match(line):
            rows.append({"tokens x inputs x outputs": shape, "product": match[1], "ours_gflops": float(match[2]),
                         "aten_gflops": float(match[3])})
    return rows


def matmul(arguments):
    """GFLOP/s of one large bf16 product: the better of oneDNN and our own is the rate of the machine. And those of the
    shapes of GPT-2 small."""
    size = 2048 if arguments.quick else 4096
    say(f"matmul: {size} x {size} x {size}, bf16")
    threads = {"OMP_NUM_THREADS": str(arguments.threads)}
    square = products(Run([BIN / "matmul_bench", 5 if arguments.quick else 9, size], **threads).output)[0]
    rows = [] if arguments.quick else products(Run([BIN / "matmul_bench", 5], **threads).output)
    ours, aten = square["ours_gflops"], square["aten_gflops"]
    return {"size": size, "ours_gflops": ours, "aten_gflops": aten, "machine_gflops": max(ours, aten), "rows": rows}


ENGINE_LINE = re.compile(r"(\d+) streams, .* pass, ([\d.]+) tokens/s|prompt of (\d+): .* ms, ([\d.]+) tokens/s")


def serving_espalier(arguments, precision):
    rates = {}
    for line in Run([BIN / "engine_bench", "--threads", arguments.threads, "--type", precision]).output.splitlines():
        if match := ENGINE_LINE.search(line):
            streams, rate, length, prompt_rate = match.groups()
            name = {"1": "one", "16": "sixteen"}[streams] if streams else f"prompt_{length}"
            rates[f"{name}_tokens_per_s"] = float(rate or prompt_rate)
    return rates


def serving_transformers(arguments, precision):
    run = Run([sys.executable, ROOT / "bench/generate_peer.py", "--type", precision, "--threads", arguments.threads],
              limit=4 * PEER_STEP_SECONDS)
    return json.loads(run.output) if run.output else None


def serving(arguments):
    """Generating and reading prompts with a random GPT-2 small, in alternating rounds."""
    rows = []
    for precision in ["bf16"] if arguments.quick else ["bf16", "fp32"]:
        found = {"espalier": [], "transformers": []}
        for number in range(1 if arguments.quick else 3):
            for name, measure in [("espalier", serving_espalier), ("transformers", serving_transformers)]:
                say(f"serving: {precision}, round {number + 1}, {name}")
                if rates := measure(arguments, precision):
                    found[name].append(rates)
        if precision == "bf16":  # the matrices of the layers in 8 bits, all else as in bf16
            found["espalier, 8 bits"] = []
            for number in range(1 if arguments.quick else 3):
                say(f"serving: 8-bit weights, round {number + 1}")
                found["espalier, 8 bits"].append(serving_espalier(arguments, "int8"))
        for name, rounds in found.items():
            if rounds:
                rows.append({"peer": name, "precision": precision} |
                            {key: statistics.median(one[key] for one in rounds) for key in rounds[0]})
            else:
                say(f"{name} {precision}: not waited for")
    return {"rows": rows}


def write_tokens(prefix):
    """A token store of documents one sample longer than the context; ids of the small vocabulary, uniform."""
    count, length, rng = 256, POSITIONS + 1, random.Random(1)
    ids = array.array("H", (rng.randrange(5000) for _ in range(count * length)))
    pathlib.Path(f"{prefix}.bin").write_bytes(ids.tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, count, count + 1)
    sizes, documents = array.array("i", [length] * count), array.array("q", range(count + 1))
    starts = array.array("q", range(0, 2 * length * count, 2 * length))
    pathlib.Path(f"{prefix}.idx").write_bytes(header + b"".join(part.tobytes() for part in (sizes, starts, documents)))


def model_flops_per_token(shape, length):
    """Two per multiply-add, three passes, causal attention once: plan/flops.h."""
    layers, hidden, _, vocabulary = shape
    return 6 * (layers * (12 * hidden * hidden + (length + 1) * hidden) + hidden * vocabulary)


def training_flags(arguments, precision, length, batch, processes=1):
    layers, hidden, heads, vocabulary = arguments.shape
    tokenizer = ROOT / "tests/data/gpt2-tiny"
    return f"""--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads}
        --seq-length {length} --max-position-embeddings {POSITIONS} --pad-vocab-size-to {vocabulary}
        --micro-batch-size {min(MICRO_BATCH, batch // processes)} --global-batch-size {batch}
        --lr 6e-4 --lr-decay-style constant --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --hidden-dropout 0
        --attention-dropout 0 --tokenizer-type GPT2BPETokenizer --vocab-file {tokenizer}/vocab.json
        --merge-file {tokenizer}/merges.txt --data-path {arguments.work}/tokens --split 100,0,0
        --eval-iters 0""".split() + (["--bf16"] if precision == "bf16" else [])


def train_espalier(arguments, precision, length, steps, batch=MICRO_BATCH, launch=(), more=()):
    """`launch`: words between `espalier` and `train` that start several processes; `more`: further options."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    folder = pathlib.Path(arguments.work) / "tensorboard"
    shutil.rmtree(folder, ignore_errors=True)
    flags = training_flags(arguments, precision, length, batch, int(launch[-1]) if launch else 1)
    command = [BIN / "espalier", *launch, "train", "gpt", *flags, *more, "--train-iters", steps, "--log-interval", 1,
               "--tensorboard-dir", folder, "--log-timers-to-tensorboard"]
    # Ranks divide the cores among themselves where nothing is set.
    run = Run(command, **({} if launch else {"OMP_NUM_THREADS": str(arguments.threads)}))
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [event.value for event in events.Scalars("iteration-time/iteration-time")], run.peak_mib


def train_peer(mode):
    def train(arguments, precision, length, steps):
        run = Run([sys.executable, ROOT / "bench/train_peer.py", "--mode", mode, "--precision", precision,
                   "--length", length, "--micro-batch", MICRO_BATCH, "--steps", steps, "--threads", arguments.threads,
                   "--shape", ",".join(map(str, arguments.shape))],
                  limit=(steps + (4 if mode == "compiled" else 1)) * PEER_STEP_SECONDS)
        return (json.loads(run.output)["seconds"] if run.output else None), run.peak_mib
    return train


TRAINERS = {"espalier": train_espalier, "PyTorch eager": train_peer("eager"),
            "PyTorch compiled": train_peer("compiled")}


def training(arguments):
    write_tokens(f"{arguments.work}/tokens")
    rows = []
    for precision, length, rounds, steps in QUICK_TRAININGS if arguments.quick else TRAININGS:
        if arguments.lengths and length not in arguments.lengths:
            continue
        # Compiling takes minutes.
        trainers = {name: train for name, train in TRAINERS.items() if not (arguments.quick and "compiled" in name)}
        seconds, peaks = {name: [] for name in trainers}, {name: [] for name in trainers}
        slow = set()
        for number in range(rounds):
            for name, train in trainers.items():
                if name in slow:
                    continue
                say(f"training: {precision}, {length} tokens, round {number + 1} of {rounds}, {name}")
                times, peak = train(arguments, precision, length, steps)
                if times is None:
                    say(f"{name} takes more than {PEER_STEP_SECONDS} s for a step: not waited for")
                    slow.add(name)
                    continue
                seconds[name].append(statistics.median(times[min(WARM_UP, steps - 1):]))
                peaks[name].append(peak)
        for name in trainers:
            if name in slow:
                rows.append({"peer": name, "precision": precision, "length": length, "tokens_per_s": 0.0,
                             "model_tflops": 0.0, "peak_mib": 0.0, "seconds_per_step": []})
                continue
            rate = MICRO_BATCH * length / statistics.median(seconds[name])
            rows.append({"peer": name, "precision": precision, "length": length, "tokens_per_s": rate,
                         "model_tflops": rate * model_flops_per_token(arguments.shape, length) / 1e12,
                         "peak_mib": statistics.median(peaks[name]), "seconds_per_step": seconds[name]})
    return {"shape": arguments.shape, "micro_batch": MICRO_BATCH, "rows": rows}


def profile(arguments):
    """Where a step of training goes: the table of espalier train --profile."""
    write_tokens(f"{arguments.work}/tokens")
    rows = []
    for precision, length, *_ in QUICK_TRAININGS if arguments.quick else TRAININGS:
        if arguments.lengths and length not in arguments.lengths:
            continue
        say(f"profile: {precision}, {length} tokens")
        last = WARM_UP + PROFILED_STEPS
        Run([BIN / "espalier", "train", "gpt", *training_flags(arguments, precision, length, MICRO_BATCH), "--train-iters",
             last + 1, "--profile-step-start", WARM_UP, "--profile-step-end", last], folder=arguments.work,
            OMP_NUM_THREADS=str(arguments.threads))
        table = json.loads((pathlib.Path(arguments.work) / f"logs/profile_step_{last}.json").read_text())
        rows.append({"precision": precision, "length": length, **table})
    return {"shape": arguments.shape, "micro_batch": MICRO_BATCH, "rows": rows}


def print_profile(part):
    for row in part["rows"]:
        whole = row["seconds_per_step"]
        print(f"\nwhere a step goes, {row['precision']}, {part['micro_batch']} x {row['length']} tokens: {whole:.3f} s")
        for work in row["work"]:
            share = work["seconds_per_step"] / whole
            if share < 0.005:
                continue
            shape = f" {work['m']} x {work['n']} x {work['k']}" if "m" in work else ""
            rate = f"{work['flops_per_second'] / 1e9:.0f} GFLOP/s" if "m" in work else ""
            print(f"  {work['kind'] + ', ' + work['what'] + shape:<54}{work['calls_per_step']:>7.4g}"
                  f"{1e3 * work['seconds_per_step']:>10.1f} ms{share:>8.1%}  {rate}")
        print("  " + ", ".join(f"{kind} {seconds / whole:.1%}" for kind, seconds in row["kinds"].items()))


def parallel(arguments):
    """Two data-parallel processes of one thread against one process of two, bf16; the threads are the machine's."""
    write_tokens(f"{arguments.work}/tokens")
    count = arguments.threads
    several = ["launch", "--standalone", "--nproc-per-node", str(count)]
    ways = {"one process": ([], []), f"{count} processes": (several, []),
            f"{count} processes, ZeRO 1": (several, ["--use-distributed-optimizer"])}
    rows = []
    for tokens, rounds, steps in QUICK_PARALLELS if arguments.quick else PARALLELS:
        seconds = {name: [] for name in ways}
        for number in range(rounds):
            for name, (launch, flags) in ways.items():
                batch = max(tokens // PARALLEL_LENGTH, count)
                say(f"parallel: {batch * PARALLEL_LENGTH} tokens, round {number + 1} of {rounds}, {name}")
                times, _ = train_espalier(arguments, "bf16", PARALLEL_LENGTH, steps, batch, launch, flags)
                seconds[name].append(statistics.median(times[min(WARM_UP, steps - 1):]))
        one, many, divided = (statistics.median(values) for values in seconds.values())
        rows.append({"tokens": tokens, "one_tokens_per_s": tokens / one, "many_tokens_per_s": tokens / many,
                     "share": one / many, "zero_1_tokens_per_s": tokens / divided, "zero_1_share": one / divided,
                     "seconds_per_step": seconds})
    return {"shape": arguments.shape, "processes": count, "rows": rows}


def pipeline(arguments):
    say("pipeline: measured bubbles")
    return Run([BIN / "pipeline_bench", *([8, 10] if arguments.quick else [8, 100])]).output


def replicas(arguments):
    """What --check-replicas costs two data-parallel processes."""
    write_tokens(f"{arguments.work}/tokens")
    rows = []
    for precision, tokens in [("bf16", 2048)] if arguments.quick else [("bf16", 16384), ("bf16", 2048), ("fp32", 2048)]:
        say(f"replica checks: {precision}, {tokens} tokens a step")
        length = min(POSITIONS, tokens // (2 * MICRO_BATCH))
        flags = training_flags(arguments, precision, length, tokens // length, 2)
        run = Run([BIN / "replica_bench", "dp2", 3, *flags, "--train-iters", 100, "--num-threads", 1])
        rows.append({"precision": precision, "tokens": tokens} | json.loads(run.output))
    return {"shape": arguments.shape, "rows": rows}


def options(arguments):
    """What optional parts of training cost, and what packed documents save in attention."""
    write_tokens(f"{arguments.work}/tokens")
    length = 256 if arguments.quick else POSITIONS
    say(f"options: GPT-2 small, bf16, {MICRO_BATCH} x {length} tokens a step")
    flags = training_flags(arguments, "bf16", length, MICRO_BATCH)
    shape = ",".join(map(str, arguments.shape))
    run = Run([BIN / "options_bench", shape, length, 1 if arguments.quick else 3, *flags, "--train-iters", 100,
               "--num-threads", arguments.threads])
    say("options: eight documents in a row, and one")
    documents = Run([BIN / "attention_bench", "--sequence", 0, "--document", length, "--threads", arguments.threads])
    return {"shape": arguments.shape, "tokens": MICRO_BATCH * length, "documents": documents.output} | json.loads(run.output)


def curate(arguments):
    """A recipe beside datatrove's local executor, and MinHash signatures of 100 values on one core."""
    text, _ = text_and_vocabulary(arguments)
    megabytes, rounds = (20, 1) if arguments.quick else (100, 1)
    say(f"curate: {megabytes} MB, two workers; datatrove takes minutes")
    python = Run([ROOT / "bench/install_datatrove"]).output.strip()
    recipe = json.loads(Run([python, ROOT / "bench/curate_bench.py", BIN / "espalier",
                             pathlib.Path(arguments.work) / "curate", megabytes, rounds]).output)
    say("curate: MinHash")
    rates = re.findall(r"^(.*?)\s+([\d.]+) MB/s$", Run([BIN / "minhash_bench", text]).output, re.MULTILINE)
    return {"recipe": recipe, "minhash_mb_per_s": {name: float(rate) for name, rate in rates}}


def print_curate(part):
    recipe = part["recipe"]
    print(f"\ncurate, {recipe['mb']:.0f} MB, {recipe['documents']} documents, two workers\n"
          f"  {'':<12}{'seconds':>9}{'core seconds':>14}{'MB/core second':>16}{'peak MiB':>10}{'kept':>8}")
    for name, shown in [("ours", "espalier"), ("peer", "datatrove")]:
        print(f"  {shown:<12}{recipe[name + '_seconds']:>9.1f}{recipe[name + '_core_seconds']:>14.1f}"
              f"{recipe[name + '_mb_per_core_second']:>16.3f}{recipe[name + '_peak_mib']:>10.0f}"
              f"{recipe[name + '_kept']:>8}")
    print(f"  espalier is {recipe['peer_seconds'] / recipe['ours_seconds']:.1f} times as fast by the clock, "
          f"{recipe['ratio_of_core_seconds']:.1f} times in processor time")
    for name, rate in part["minhash_mb_per_s"].items():
        print(f"  {name:<44}{rate:>8.1f} MB/s on one core")


def print_replicas(part):
    shape = ",".join(map(str, part["shape"]))
    print(f"\nreplica checks, 2 data-parallel processes of one thread, layers,hidden,heads,vocabulary = {shape}\n"
          f"  {'type':<6}{'tokens a step':>14}{'MiB compared':>14}{'step s':>9}{'check s':>9}{'share, every 10':>17}")
    for row in part["rows"]:
        print(f"  {row['precision']:<6}{row['tokens']:>14}{row['mib']:>14.0f}{row['step_seconds']:>9.2f}"
              f"{row['check_seconds']:>9.3f}{row['share_at_10']:>17.2%}")


def print_options(part):
    print(f"\noptional parts of a step of {part['tokens']} tokens in bf16, {part['parameters'] / 1e6:.0f} million parameters,"
          f" {part['step_ms']:.0f} ms without them")
    for row in part["rows"]:
        print(f"  {row['what']:<38}{row['ms']:>10.2f} ms{row['share']:>9.2%}")
    print(f"  attention, {part['documents'].strip().replace(chr(10), chr(10) + '  attention, ')}")


def print_parallel(part):
    print(f"\n{part['processes']} processes of one thread against one process of {part['processes']}, bf16, data parallel"
          f"\n  {'tokens a step':>14}{'one, tokens/s':>15}{'several, tokens/s':>19}{'share':>8}"
          f"{'ZeRO 1, tokens/s':>18}{'share':>8}")
    for row in part["rows"]:
        print(f"  {row['tokens']:>14}{row['one_tokens_per_s']:>15.0f}{row['many_tokens_per_s']:>19.0f}"
              f"{row['share']:>8.3f}{row['zero_1_tokens_per_s']:>18.0f}{row['zero_1_share']:>8.3f}")


def print_pipeline(part):
    print(f"\npipeline bubbles: {part}", end="")


def print_encode(part):
    rates = part["mb_per_s"]
    print(f"\nencode {part['text']}, one core, MB/s")
    for name, rate in rates.items():
        ours = name.startswith("espalier")
        note = "" if ours else f"   espalier cold is {rates['espalier cold'] / rate:.1f} times that"
        print(f"  {name:<18}{rate:>10.1f}{note}")


def print_preprocess(part):
    print(f"\npreprocess {part['text']}")
    print(f"  {'input':<14}{'workers':>8}{'documents/s':>13}{'MB/s':>8}{'peak MiB':>10}")
    for row in part["rows"]:
        print(f"  {row['input']:<14}{row['workers']:>8}{row['documents_per_s']:>13}{row['mb_per_s']:>8.1f}"
              f"{row['peak_mib']:>10}")


def print_token_files(part):
    print(f"\ntoken files, {part['mib']:.0f} MiB\n  {'cp and sync':<22}{part['cp_gb_per_s']:>6.2f} GB/s\n"
          f"  {'data merge':<22}{part['merge_gb_per_s']:>6.2f} GB/s, {part['merge_gb_per_s'] / part['cp_gb_per_s']:.2f}"
          f" of cp, peak {part['merge_peak_mib']:.0f} MiB\n"
          f"  {'data check, one core':<22}{part['check_gb_per_core_second']:>6.2f} GB/s of processor time\n"
          f"  {'data check':<22}{part['check_gb_per_s']:>6.2f} GB/s with {part['check_threads']} threads, peak"
          f" {part['check_peak_mib']:.0f} MiB")


def print_serving(part):
    print(f"\nserving GPT-2 small, tokens/s after 512 of context\n  {'type':<6}{'':<18}{'one text':>10}{'16 texts':>10}"
          f"{'prompt 512':>12}{'prompt 2000':>13}")
    for row in part["rows"]:
        print(f"  {row['precision']:<6}{row['peer']:<18}{row['one_tokens_per_s']:>10.1f}{row['sixteen_tokens_per_s']:>10.1f}"
              f"{row['prompt_512_tokens_per_s']:>12.0f}{row['prompt_2000_tokens_per_s']:>13.0f}")


def print_machine(part):
    peaks = ", ".join(f"{name} {value:.0f}" for name, value in part["register_gflops"].items())
    print(f"\nthe machine at most, {part['threads']} threads\n  in registers, GFLOP/s: {peaks}\n"
          f"  memory: reads {part['read_gb_per_s']:.1f} GB/s, copies {part['copy_gb_per_s']:.1f}\n"
          f"  disk: writes {part['disk_write_gb_per_s']:.2f} GB/s, reads {part['disk_read_gb_per_s']:.2f}")


def print_matmul(part):
    print(f"\nbf16 product of {part['size']} x {part['size']}, GFLOP/s\n  ours {part['ours_gflops']:.0f}, ATen"
          f" {part['aten_gflops']:.0f}: the machine does {part['machine_gflops']:.0f}")
    for row in part["rows"]:
        print(f"  {row['tokens x inputs x outputs']:<18}{row['product']:<16} ours {row['ours_gflops']:>6.0f}"
              f"   ATen {row['aten_gflops']:>6.0f}")


def peak_tflops(peaks, precision):
    """What registers can do for operands of that type: bf16 may be widened to fp32."""
    names = ("bf16", "fp32") if precision == "bf16" else ("fp32",)
    return max((value for name, value in peaks.items() if name.startswith(names)), default=0) / 1e3


def print_training(part, peaks):
    shape = ",".join(map(str, part["shape"]))
    print(f"\ntraining, layers,hidden,heads,vocabulary = {shape}, {part['micro_batch']} rows a step")
    print(f"  {'type':<6}{'length':>7}  {'':<18}{'tokens/s':>10}{'spread':>8}{'model TFLOP/s':>15}"
          f"{'of peak':>9}{'peak MiB':>10}{'espalier is':>13}")
    ours = {(row["precision"], row["length"]): row for row in part["rows"] if row["peer"] == "espalier"}
    for row in part["rows"]:
        mine = ours[row["precision"], row["length"]]
        line = f"  {row['precision']:<6}{row['length']:>7}  {row['peer']:<18}"
        if not row["tokens_per_s"]:
            print(f"{line}more than {PEER_STEP_SECONDS} s for a step: not waited for")
            continue
        peak = peak_tflops(peaks, row["precision"])
        share = f"{row['model_tflops'] / peak:.1%}" if peak else ""
        spread = f"{(max(row['seconds_per_step']) / min(row['seconds_per_step']) - 1):.0%}"
        times = "" if row is mine else f"x{mine['tokens_per_s'] / row['tokens_per_s']:.2f}"
        print(f"{line}{row['tokens_per_s']:>10.0f}{spread:>8}{row['model_tflops']:>15.3f}{share:>9}"
              f"{row['peak_mib']:>10.0f}{times:>13}")
    for length in sorted({row["length"] for row in part["rows"]}):
        rows = [row for row in part["rows"] if row["length"] == length and row["tokens_per_s"]]
        mine = max((row for row in rows if row["peer"] == "espalier"), key=lambda row: row["tokens_per_s"])
        others = [row for row in rows if row["peer"] != "espalier"]
        if others:
            best = max(others, key=lambda row: row["tokens_per_s"])
            print(f"  {length} tokens: espalier {mine['precision']} is {mine['tokens_per_s'] / best['tokens_per_s']:.2f} times"
                  f" as fast as the fastest peer, {best['peer']} {best['precision']}; memory"
                  f" {mine['peak_mib'] / best['peak_mib']:.2f} of its")


def print_convert(part):
    for row in part:
        copy = row["cp_gb_per_s"]
        for what in ("import", "export"):
            rate = row[f"{what}_gb_per_s"]
            print(f"{what} {row['model']}, {row['mib']:.0f} MiB: {rate:.2f} GB/s, cp {copy:.2f} ({rate / copy:.2f} of it), "
                  f"peak {row[f'{what}_peak_mib']:.0f} MiB")


def print_table(results):
    print(", ".join(f"{key} {value}" for key, value in results["machine"].items()))
    for part, show in [("limits", print_machine), ("encode", print_encode), ("preprocess", print_preprocess),
                       ("data", print_token_files), ("convert", print_convert), ("matmul", print_matmul),
                       ("serving", print_serving),
                       ("parallel", print_parallel), ("pipeline", print_pipeline), ("replicas", print_replicas),
                       ("options", print_options), ("curate", print_curate), (PROFILE, print_profile)]:
        if part in results:
            show(results[part])
    if "training" in results:
        print_training(results["training"], results.get("limits", {}).get("register_gflops", {}))
    if results["left_out"]:
        print(f"\nleft out: {', '.join(results['left_out'])}")


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def machine_facts(arguments):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": arguments.threads, "commit": commit.stdout.strip(),
            "load_before": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d %H:%M:%S")}


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="one round, 256 tokens, few steps, three minutes: rough, and says what it left out")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas")
    parser.add_argument("--profile", action="store_true", help="where a step of training goes as well")
    parser.add_argument("--lengths", type=numbers, help="only these sequence lengths")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", help="JSONL to encode, with --vocabulary FOLDER of vocab.json and merges.txt")
    parser.add_argument("--vocabulary")
    parser.add_argument("--shape", type=numbers, default=[12, 768, 12, 50304],
                        help="layers,hidden,heads,vocabulary (GPT-2 small)")
    parser.add_argument("--markdown", metavar="FILE", help="the tables as Markdown as well")
    parser.add_argument("--compare", metavar="OLD.json", help="an earlier result: then, now and the ratio of each figure")
    parser.add_argument("--output", default=str(ROOT / "build" / "bench.json"), help="where the results go as JSON")
    arguments = parser.parse_args()
    arguments.parts = arguments.only.split(",") + [PROFILE] * arguments.profile
    if unknown := set(arguments.parts) - {*PARTS, PROFILE}:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    return arguments


def main():
    arguments = parse_arguments()
    old = json.loads(pathlib.Path(arguments.compare).read_text()) if arguments.compare else None
    results = {"machine": machine_facts(arguments), "left_out": []}
    load = results["machine"]["load_before"]
    if load > 0.5:
        say(f"the machine is busy (load {load:.1f}): the figures will be too low")
    measure = {"machine": machine, "encode": encode, "preprocess": preprocess, "data": token_files, "convert": convert,
               "matmul": matmul, "training": training, "serving": serving, "parallel": parallel,
               "pipeline": pipeline, "replicas": replicas, "options": options, "curate": curate}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as arguments.work:
        for part in PARTS:
            if part not in arguments.parts or (arguments.quick and time.monotonic() - start > QUICK_SECONDS):
                results["left_out"].append(part)
                continue
            results["limits" if part == "machine" else part] = measure[part](arguments)
        if PROFILE in arguments.parts:
            results[PROFILE] = profile(arguments)
    if arguments.quick:
        results["left_out"].append("compiled peers, lengths above 256, more than one round")
    pathlib.Path(arguments.output).write_text(json.dumps(results, indent=1) + "\n")
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text(markdown(results))
    print_table(results)
    if old:
        print("\n" + "\n".join(compare(old, results)))
    say(f"as JSON: {arguments.output}")


main()
