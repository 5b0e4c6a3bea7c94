#!/usr/bin/env python3
"""Every figure of docs/benchmarks.md, against the peers, in one table; scripts/bench builds all and calls this.

    scripts/bench [--quick | --minutes M] [--only PART,PART...] [--models gpt2,bloom,llama] [--lengths 256,1024]
                  [--precisions bf16,fp32] [--rounds N] [--add] [--output FILE.json] [--markdown FILE.md] [--compare OLD.json]

What the machine can do at most comes first, and figures are shares of it where that makes sense. Runs alternate between the
peers, and medians of five rounds count. One process at a time; nothing else should run on the machine. --add keeps what an
earlier run wrote into FILE.json and replaces what is measured again, so that a long measurement can be made in pieces.
"""
import argparse
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

from compare import compare, markdown, merged
from parts import checkpoints, instruction_sets, machine, optional, parallel, serving, steps, text, training
from parts.session import ROOT, OutOfTime, Session
from shapes import SHAPES

# What --only names, in the order of measuring, and the modules: of each its function, and print_ and that.
PARTS = {"machine": machine, "matmul": machine, "training": training, "profile": steps, "start": steps, "positions": steps,
         "memory": steps, "saving": checkpoints, "isa": instruction_sets, "encode": text, "preprocess": text, "vocabulary": text,
         "data": text, "order": text, "checkpoint": checkpoints, "convert": checkpoints, "serving": serving, "parallel": parallel,
         "pipeline": parallel, "replicas": parallel, "options": optional, "curate": optional}
# Parts of --quick, the most telling first, and the seconds that each may take.
QUICK = {"machine": 15, "training": 70, "start": 15, "encode": 10, "serving": 40, "checkpoint": 10, "preprocess": 10}
QUICK_SECONDS = 170  # the tables take a while as well
QUICK_LENGTHS = [256]


def names_of(known):
    def parse(text):
        found = text.split(",")
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(known)}")
        return found
    return parse


def numbers(text):
    return [int(word) for word in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true",
                        help="three minutes, one round, 256 tokens, few steps: rough, and says what it left out")
    parser.add_argument("--minutes", type=float, help="ends after these, with what is measured by then")
    parser.add_argument("--only", type=names_of(PARTS), help=f"parts, with commas: {', '.join(PARTS)}")
    parser.add_argument("--profile", action="store_true", help="the part profile as well, where --only or --quick leaves it out")
    parser.add_argument("--models", type=names_of(SHAPES), dest="shapes",
                        help="of matmul, training, profile and memory; the first of start and isa (gpt2,bloom,llama; gpt2 with --quick)")
    parser.add_argument("--layers", type=int, help="layers of every model, for a look at what is printed; not for figures")
    parser.add_argument("--lengths", type=numbers, help="only these sequence lengths")
    parser.add_argument("--precisions", type=names_of(["bf16", "fp32"]), default=["bf16", "fp32"], help="only these types")
    parser.add_argument("--levels", type=names_of(instruction_sets.LEVELS), help="only these instruction sets, of the part isa")
    parser.add_argument("--rounds", type=int, help="of every comparison (5; 1 with --quick)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--text", help="JSONL to encode, with --vocabulary FOLDER of vocab.json and merges.txt")
    parser.add_argument("--vocabulary")
    parser.add_argument("--megabytes", type=int, help="of the text in ten scripts of vocabulary and encode (100)")
    parser.add_argument("--markdown", metavar="FILE", help="the tables as Markdown as well")
    parser.add_argument("--compare", metavar="OLD.json", help="an earlier result: then, now and the ratio of each figure")
    parser.add_argument("--output", default=str(ROOT / "build" / "bench.json"), help="where the results go as JSON")
    parser.add_argument("--add", action="store_true", help="keep what --output holds already of parts and rows that are not measured now")
    parser.add_argument("--more-rounds", action="store_true",
                        help="--add, and rows of training that are measured now get the rounds that they had as well")
    arguments = parser.parse_args()
    arguments.shapes = arguments.shapes or (["gpt2"] if arguments.quick else list(SHAPES))
    arguments.lengths = arguments.lengths or (QUICK_LENGTHS if arguments.quick else None)
    wanted = set(arguments.only or (QUICK if arguments.quick else PARTS)) | ({"profile"} if arguments.profile else set())
    arguments.parts = [name for name in PARTS if name in wanted]
    return arguments


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def machine_facts(arguments):
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return {"cpu": cpu_name(), "cores": os.cpu_count(), "threads": arguments.threads, "commit": commit.stdout.strip(),
            "load_before": os.getloadavg()[0], "date": time.strftime("%Y-%m-%d %H:%M:%S")}


def call(name, what, *words):
    getattr(PARTS[name], what + name)(*words)


def measure(session, results, finished):
    """Fills in results, part after part; `finished` is called after each."""
    arguments = session.arguments
    minutes = [60 * arguments.minutes] if arguments.minutes else []
    minutes += [QUICK_SECONDS] if arguments.quick else []
    end = time.monotonic() + min(minutes) if minutes else None
    for name in PARTS:
        if name not in arguments.parts or (end and time.monotonic() > end):
            if name in arguments.parts or arguments.quick and not arguments.only:
                results["left_out"].append(name)
            continue
        share = QUICK.get(name) if arguments.quick and not arguments.only else None
        session.deadline = min(end, time.monotonic() + share) if share else end
        part = {"measured": ", ".join(f"{key} {value}" for key, value in machine_facts(arguments).items())}
        try:
            call(name, "", session, part)
            complete = True
        except OutOfTime:
            results["left_out"].append(f"{name}, what of it was not measured when its time was over")
            complete = False
        if complete or part.get("rows"):
            results["parts"][name] = part
        finished()


def print_table(results):
    print(", ".join(f"{key} {value}" for key, value in results["machine"].items()))
    limits = results["parts"].get("machine", {})
    for name in PARTS:
        if name in results["parts"]:
            call(name, "print_", results["parts"][name], limits)
    if results["left_out"]:
        print(f"\nleft out: {'; '.join(results['left_out'])}")


def read_results(file):
    results = json.loads(pathlib.Path(file).read_text())
    if "parts" not in results:
        sys.exit(f"scripts/bench: {file} is of an earlier scripts/bench, which wrote its parts without \"parts\" around them")
    return results


def main():
    arguments = parse_arguments()
    output = pathlib.Path(arguments.output)
    old = read_results(arguments.compare) if arguments.compare else None
    earlier = read_results(output) if (arguments.add or arguments.more_rounds) and output.exists() else None
    # So that no process is left behind when this one is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("scripts/bench: ended by SIGTERM"))
    session = Session(arguments)
    results = {"machine": machine_facts(arguments), "parts": {}, "left_out": []}
    if results["machine"]["load_before"] > 0.5:
        session.say(f"the machine is busy (load {results['machine']['load_before']:.1f}): the figures will be too low")

    def write():
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(merged(earlier, results, arguments.more_rounds), indent=1) + "\n")

    with tempfile.TemporaryDirectory() as session.work:
        measure(session, results, write)
    if arguments.quick and not arguments.only:
        results["left_out"].append("peers that compile, lengths above 256, other models than the first, more than one round")
    write()
    results = merged(earlier, results, arguments.more_rounds)
    if arguments.markdown:
        pathlib.Path(arguments.markdown).write_text(markdown(results))
    print_table(results)
    if old:
        print("\n" + "\n".join(compare(old, results)))
    session.say(f"as JSON: {output}")


main()
