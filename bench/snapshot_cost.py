#!/usr/bin/env python3
"""What copies of the state in the launcher's memory cost a step (train --non-persistent-save-interval).

    bench/snapshot_cost.py [--layers N --hidden N --sequence N --batch N] [--ranks N] [--nodes N] [--interval N]
                           [--steps N] [--rounds N]

Trains the same GPT without and with the copies in alternating rounds, each a run of its own under `espalier launch`. With
--nodes N each run has as many launchers, all on this machine, ZeRO 1 over all ranks, and a third kind of run, whose copies
go to the next "machine" as well (--replication): what sends and what receives them share the cores with what trains, and
the network is the kernel's own, so that this is the most that they can cost.

A round's step is the time between the first and the last step that the run records, divided by the steps between them:
the copy is made between steps, and the figure of the step itself (step_seconds) does not hold all of it. Prints the
medians over the rounds with their spread, and what the copies add, as time and as a share of the step.
"""
import argparse
import json
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
WARM_UP = 5  # steps at the beginning that do not count


NONE, OWN, REPLICATED = "without copies", "with copies", "with copies, also at another machine"


def training(options, folder, kind):
    ranks = options.ranks * options.nodes
    words = f"""train gpt --num-layers {options.layers}
        --hidden-size {options.hidden} --num-attention-heads {options.heads} --seq-length {options.sequence}
        --max-position-embeddings {options.sequence} --micro-batch-size {options.batch}
        --global-batch-size {options.batch * ranks} --lr 1e-4 --lr-decay-style constant --split 100,0,0
        --eval-iters 0 --num-threads {options.threads} --train-iters {options.steps + WARM_UP} --log-interval 1000000
        --save-interval 1000000 --save {folder} --data-path {ROOT}/tests/data/owt-20_text_document
        --vocab-file {ROOT}/tests/data/gpt2-tiny/vocab.json --merge-file {ROOT}/tests/data/gpt2-tiny/merges.txt
        --tokenizer-type GPT2BPETokenizer --pad-vocab-size-to {options.vocabulary} {options.precision}""".split()
    if options.nodes > 1:
        words.append("--use-distributed-optimizer")
    if kind != NONE:
        words += ["--non-persistent-save-interval", str(options.interval)]
    return words + (["--replication"] if kind == REPLICATED else [])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def start(options, folder, kind, log):
    """The launchers, the first one first."""
    port = free_port()
    several = f"--nnodes {options.nodes} --master-addr 127.0.0.1 --master-port {port} --node-rank" if options.nodes > 1 else ""
    return [
        subprocess.Popen([ESPALIER, "launch", *(several.split() + [str(node)] if several else []), "--nproc-per-node",
                          str(options.ranks), *training(options, folder, kind)], stdout=log, stderr=log)
        for node in range(options.nodes)
    ]


def records_of(file):
    """The step records so far, whole lines alone."""
    if not file.exists():
        return []
    text = file.read_text()
    return [it for it in map(json.loads, text[: text.rfind("\n") + 1].splitlines()) if "sample_hash" in it]


def step_of_round(options, work, kind, said):
    """Seconds from the record of one step to that of the next, and the median step itself."""
    folder = pathlib.Path(work) / f"run{time.monotonic_ns()}"
    with open(pathlib.Path(work) / "log", "w+") as log:
        processes = start(options, folder, kind, log)
        process = processes[0]
        first = last = None
        while process.poll() is None:
            count = len(records_of(folder / "metrics.jsonl"))
            if count >= WARM_UP and first is None:
                first = (time.monotonic(), count)
            if count == options.steps + WARM_UP and last is None:
                last = (time.monotonic(), count)
            time.sleep(0.001)
        for other in processes:
            other.wait()
        log.seek(0)
        text = log.read()
        if any(one.returncode != 0 for one in processes):
            sys.exit(f"snapshot_cost: the run ended with {process.returncode}:\n{text[-3000:]}")
        said.update(line.strip() for line in text.splitlines() if "cop" in line and "the state" in line)
    if first is None or last is None or first[1] == last[1]:
        sys.exit("snapshot_cost: the steps were too fast to be told apart: give a larger model or more --steps")
    steps = [it["step_seconds"] for it in records_of(folder / "metrics.jsonl")[WARM_UP:]]
    return (last[0] - first[0]) / (last[1] - first[1]), statistics.median(steps)


def spread(values, scale=1e3, unit="ms"):
    return f"{scale * statistics.median(values):.3f} {unit} ({scale * min(values):.3f} to {scale * max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--batch", type=int, default=2, help="samples of each rank in a step")
    parser.add_argument("--vocabulary", type=int, default=5120)
    parser.add_argument("--precision", default="--bf16", help="--bf16, or '' for fp32")
    parser.add_argument("--ranks", type=int, default=1, help="of each launcher")
    parser.add_argument("--nodes", type=int, default=1, help="launchers")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--interval", type=int, default=1, help="steps between copies")
    parser.add_argument("--steps", type=int, default=40, help="of each run, besides the first few")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind")
    options = parser.parse_args()
    kinds = [NONE, OWN] + ([REPLICATED] if options.nodes > 1 else [])
    walls, steps, said = {kind: [] for kind in kinds}, {kind: [] for kind in kinds}, set()
    with tempfile.TemporaryDirectory() as work:
        for number in range(options.rounds):
            for kind in reversed(kinds) if number % 2 else kinds:  # a drift of the machine meets all alike
                wall, step = step_of_round(options, work, kind, said)
                walls[kind].append(wall)
                steps[kind].append(step)
    print(f"{options.layers} layers, hidden size {options.hidden}, {options.nodes} x {options.ranks} ranks, "
          f"{options.rounds} rounds of {options.steps} steps each, a copy every {options.interval} steps")
    for kind in kinds:
        print(f"{kind}: {spread(walls[kind])} a step, of which the step itself {spread(steps[kind])}")
    for kind in kinds[1:]:
        differences = [a - b for a, b in zip(walls[kind], walls[NONE])]
        shares = [a / b - 1 for a, b in zip(walls[kind], walls[NONE])]
        print(f"{kind}, they add: {spread(differences)} a step, {spread(shares, 100, '%')} of it")
    for line in sorted(said):
        print(f"the runs said: {line}")


if __name__ == "__main__":
    main()
