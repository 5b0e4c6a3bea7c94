#!/usr/bin/env python3
"""What copies of the state in the launcher's memory cost a step (train --non-persistent-save-interval).

    bench/snapshot_cost.py [--layers N --hidden N --sequence N --batch N] [--ranks N] [--interval N] [--steps N] [--rounds N]

Trains the same GPT with and without the copies in alternating rounds, each a run of its own under `espalier launch`. A
round's step is the time between the first and the last step that the run records, divided by the steps between them: the
copy is made between steps, and the figure of the step itself (step_seconds) does not hold all of it. Prints the medians
over the rounds with their spread, and what the copies add, as time and as a share of the step.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
WARM_UP = 5  # steps at the beginning that do not count


def command(options, folder, copies):
    words = f"""{ESPALIER} launch --nproc-per-node {options.ranks} train gpt --num-layers {options.layers}
        --hidden-size {options.hidden} --num-attention-heads {options.heads} --seq-length {options.sequence}
        --max-position-embeddings {options.sequence} --micro-batch-size {options.batch}
        --global-batch-size {options.batch * options.ranks} --lr 1e-4 --lr-decay-style constant --split 100,0,0
        --eval-iters 0 --num-threads {options.threads} --train-iters {options.steps + WARM_UP} --log-interval 1000000
        --save-interval 1000000 --save {folder} --data-path {ROOT}/tests/data/owt-20_text_document
        --vocab-file {ROOT}/tests/data/gpt2-tiny/vocab.json --merge-file {ROOT}/tests/data/gpt2-tiny/merges.txt
        --tokenizer-type GPT2BPETokenizer --pad-vocab-size-to {options.vocabulary} {options.precision}""".split()
    return words + (["--non-persistent-save-interval", str(options.interval)] if copies else [])


def records_of(file):
    """The step records so far, whole lines alone."""
    if not file.exists():
        return []
    text = file.read_text()
    return [it for it in map(json.loads, text[: text.rfind("\n") + 1].splitlines()) if "sample_hash" in it]


def step_of_round(options, work, copies):
    """Seconds from the record of one step to that of the next, and the median step itself."""
    folder = pathlib.Path(work) / f"run{time.monotonic_ns()}"
    with open(pathlib.Path(work) / "log", "w+") as log:
        process = subprocess.Popen(command(options, folder, copies), stdout=log, stderr=log)
        first = last = None
        while process.poll() is None:
            count = len(records_of(folder / "metrics.jsonl"))
            if count >= WARM_UP and first is None:
                first = (time.monotonic(), count)
            if count == options.steps + WARM_UP and last is None:
                last = (time.monotonic(), count)
            time.sleep(0.001)
        if process.returncode != 0:
            log.seek(0)
            sys.exit(f"snapshot_cost: the run ended with {process.returncode}:\n{log.read()[-3000:]}")
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
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--interval", type=int, default=1, help="steps between copies")
    parser.add_argument("--steps", type=int, default=40, help="of each run, besides the first few")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind")
    options = parser.parse_args()
    walls, steps = {True: [], False: []}, {True: [], False: []}
    with tempfile.TemporaryDirectory() as work:
        for number in range(options.rounds):
            for copies in (True, False) if number % 2 else (False, True):  # a drift of the machine meets both alike
                wall, step = step_of_round(options, work, copies)
                walls[copies].append(wall)
                steps[copies].append(step)
    differences = [a - b for a, b in zip(walls[True], walls[False])]
    shares = [a / b - 1 for a, b in zip(walls[True], walls[False])]
    print(f"{options.layers} layers, hidden size {options.hidden}, {options.ranks} ranks, {options.rounds} rounds of "
          f"{options.steps} steps each, a copy every {options.interval} steps")
    for copies, name in ((False, "without copies"), (True, "with copies")):
        print(f"{name}: {spread(walls[copies])} a step, of which the step itself {spread(steps[copies])}")
    print(f"copies add: {spread(differences)} a step, {spread(shares, 100, '%')} of it")


if __name__ == "__main__":
    main()
