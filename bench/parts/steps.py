"""Steps of training from other sides: where one goes and what profiling costs, the first one, long sequences, and memory and steps
while checkpoints are written."""
import ctypes
import json
import mmap
import pathlib
import re
import shutil
import statistics
import sys

from parts.session import BIN, ROOT, START_SECONDS, alternate, median, spread
from parts.training import (LENGTHS, MICRO_BATCH, WARM_UP, train_espalier, training_flags)
from shapes import shape_of

PROFILED_STEPS = 3


def profile_once(session, flags):
    """The table of a run of --profile, and its steps' seconds, profiled and not."""
    last = WARM_UP + PROFILED_STEPS
    folder = pathlib.Path(session.work) / "profile"
    folder.mkdir(exist_ok=True)
    run = train_espalier(session, [*flags, "--profile-step-start", WARM_UP, "--profile-step-end", last], last + 1, folder=folder)
    return json.loads((folder / f"logs/profile_step_{last}.json").read_text()), run.seconds[WARM_UP:last]


def profile(session, part):
    """Where a step of training goes: the table of espalier train --profile; and how much slower it makes a step."""
    part |= {"micro_batch": MICRO_BATCH, "rows": []}
    for name in session.shapes:
        shape = shape_of(name, session.arguments.layers)
        for length in LENGTHS:
            for precision in ("bf16", "fp32"):
                if session.wanted(precision, length):
                    flags = training_flags(session, shape, precision, length)
                    part["rows"].append({"model": name, "precision": precision, "length": length}
                                        | profile_row(session, f"profile: {name}, {precision}, {length} tokens", flags))


def profile_row(session, what, flags):
    steps = WARM_UP + PROFILED_STEPS
    found = alternate(session, what, {
        "with --profile": lambda: profile_once(session, flags),
        "without": lambda: train_espalier(session, flags, steps + 1).seconds[WARM_UP:steps]})
    tables = [table for table, _ in found["with --profile"]]
    with_it = [statistics.median(seconds) for _, seconds in found["with --profile"]]
    without = [statistics.median(seconds) for seconds in found["without"]]
    table = sorted(tables, key=lambda one: one["seconds_per_step"])[len(tables) // 2]
    whole, kinds = table["seconds_per_step"], table["kinds"]
    products = kinds.get("product", 0.0) + kinds.get("loss", 0.0)
    return {**table, "loader_share": kinds.get("data", 0.0) / whole, "products_and_loss_share": products / whole,
            "profiling_costs": median(with_it) / median(without) - 1, "seconds_with": with_it, "seconds_without": without}


def print_profile(part, _):
    for row in part["rows"]:
        whole = row["seconds_per_step"]
        print(f"\nwhere a step goes, {row['model']}, {row['precision']}, {part['micro_batch']} x {row['length']} tokens: {whole:.3f} s")
        for work in row["work"]:
            share = work["seconds_per_step"] / whole
            if share < 0.005:
                continue
            shape = f" {work['m']} x {work['n']} x {work['k']}" if "m" in work else ""
            rate = f"{work['flops_per_second'] / 1e9:.0f} GFLOP/s" if "m" in work else ""
            print(f"  {work['kind'] + ', ' + work['what'] + shape:<54}{work['calls_per_step']:>7.4g}"
                  f"{1e3 * work['seconds_per_step']:>10.1f} ms{share:>8.1%}  {rate}")
        print("  " + ", ".join(f"{kind} {seconds / whole:.1%}" for kind, seconds in row["kinds"].items()))
        print(f"  the step waits for data {row['loader_share']:.3%} of its time (aim: 0.5 %); neither products nor loss"
              f" {1 - row['products_and_loss_share']:.1%}; profiling makes a step {row['profiling_costs']:+.1%} longer")


def seconds_to_first_step(session, command, pattern, **more):
    """From the start of the process to the line that says that its first step is over."""
    process = session.start(command, **more)
    try:
        while line := process.line(2 * START_SECONDS):
            if re.search(pattern, line[1]):
                return line[0]
        process.check()
        sys.exit(f"scripts/bench: no step from {' '.join(process.command)}")
    finally:
        process.kill()


def with_memory(way):
    """A virtual machine may hand memory that its programs have freed back to its host, and wait for it when it is used again,
    up to 8 seconds for 3 GB in huge pages: that happens before what is measured."""
    def run():
        size = 4 << 30
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, size)
        return way()
    return run


def start(session, part):
    """Seconds from the start of a process to the end of its first step; everything has been read from the disk before, and
    memory is there."""
    shape, length = shape_of(session.shapes[0], session.arguments.layers), 256
    flags = training_flags(session, shape, "bf16", length)
    ours = [BIN / "espalier", "train", "gpt", *flags, "--train-iters", 2, "--log-interval", 1]
    theirs = [sys.executable, ROOT / "bench/train_peer.py", "--precision", "bf16", "--model", shape.name, "--layers",
              shape.layers, "--length", length, "--micro-batch", MICRO_BATCH, "--threads", session.threads, "--steps", 1, "--mode"]
    threads = {"OMP_NUM_THREADS": str(session.threads)}
    ways = {"espalier": lambda: seconds_to_first_step(session, ours, r"iteration +1/", errors_too=True, **threads),
            "PyTorch eager": lambda: seconds_to_first_step(session, [*theirs, "eager"], '"step"')}
    if not session.quick:
        ways["PyTorch compiled"] = lambda: seconds_to_first_step(session, [*theirs, "compiled"], '"step"')
    for name, way in ways.items():
        if name != "PyTorch compiled":
            session.say(f"start: once that does not count, {name}")
            way()
    found = alternate(session, "start", {name: with_memory(way) for name, way in ways.items()})
    part |= {"model": shape.name, "micro_batch": MICRO_BATCH, "length": length, "rows": [
        {"peer": name, "seconds_to_first_step": median(rounds), "spread": spread(rounds), "seconds": rounds}
        for name, rounds in found.items()]}
    part["of_eager"] = part["rows"][0]["seconds_to_first_step"] / part["rows"][1]["seconds_to_first_step"]


def print_start(part, _):
    print(f"\nstart to end of the first step, {part['model']}, bf16, {part['micro_batch']} x {part['length']} tokens")
    for row in part["rows"]:
        print(f"  {row['peer']:<18}{row['seconds_to_first_step']:>8.2f} s, spread {row['spread']:.0%}")
    print(f"  espalier takes {part['of_eager']:.2f} of PyTorch eager's (aim: 0.3)")


LONG_LENGTHS = (1024, 2048, 4096, 8192)
LONG_TOKENS = 8192  # of a step, whatever the length


def long_steps(session, shape, length):
    """Seconds a step, and of attention in it."""
    flags = training_flags(session, shape, "bf16", length, LONG_TOKENS // length, positions=LONG_LENGTHS[-1])
    at = flags.index("--micro-batch-size")
    flags[at + 1] = LONG_TOKENS // length
    folder = pathlib.Path(session.work) / "profile"
    folder.mkdir(exist_ok=True)
    train_espalier(session, [*flags, "--profile-step-start", 1, "--profile-step-end", 2], 2, folder=folder)
    table = json.loads((folder / "logs/profile_step_2.json").read_text())
    return table["seconds_per_step"], table["kinds"].get("attention", 0.0)


def positions(session, part):
    """What a token costs in longer sequences, attention apart, in steps of as many tokens."""
    shape = shape_of("gpt2", session.arguments.layers)
    lengths = LONG_LENGTHS[:2] if session.quick else LONG_LENGTHS
    found = alternate(session, "positions: gpt2, bf16", {
        f"{length} positions": lambda length=length: long_steps(session, shape, length) for length in lengths})
    part |= {"model": shape.name, "tokens": LONG_TOKENS, "rows": []}
    for length, rounds in zip(lengths, found.values()):
        rest = [(whole - attention) / LONG_TOKENS * 1e6 for whole, attention in rounds]
        part["rows"].append({"length": length, "us_per_token": median([whole / LONG_TOKENS * 1e6 for whole, _ in rounds]),
                             "without_attention_us": median(rest), "spread": spread(rest),
                             "of_shortest": median(rest) / (part["rows"][0]["without_attention_us"] if part["rows"] else median(rest)),
                             "seconds": rounds})


def print_positions(part, _):
    print(f"\nlong sequences, {part['model']}, bf16, {part['tokens']} tokens a step; microseconds a token\n"
          f"  {'positions':>10}{'all':>9}{'without attention':>19}{'spread':>8}{'of the shortest':>17}")
    for row in part["rows"]:
        print(f"  {row['length']:>10}{row['us_per_token']:>9.1f}{row['without_attention_us']:>19.1f}{row['spread']:>8.0%}"
              f"{row['of_shortest']:>17.3f}")


SAVE_STEPS, SAVE_INTERVAL, MEMORY_ROUNDS = 4, 2, 2  # memory hardly varies
# Bytes for each parameter, of weights, gradients and the optimizer's state: fp32 masters and bf16 weights on our side in bf16.
STATE_BYTES = {("espalier", "bf16"): 18, ("espalier", "fp32"): 16, ("PyTorch eager", "bf16"): 16, ("PyTorch eager", "fp32"): 16}


def memory(session, part):
    """The peak of a run that saves, beside PyTorch's with torch.save."""
    part |= {"micro_batch": MICRO_BATCH, "rows": []}
    for name in session.shapes:
        shape = shape_of(name, session.arguments.layers)
        for length in LENGTHS:
            for precision in ("bf16", "fp32"):
                if session.wanted(precision, length):
                    measure_memory(session, part, shape, precision, length)


def saving_flags(session, shape, precision, length, folder, interval, **more):
    shutil.rmtree(folder, ignore_errors=True)
    return [*training_flags(session, shape, precision, length, **more), "--save", folder, "--save-interval", interval]


def measure_memory(session, part, shape, precision, length):
    folder = pathlib.Path(session.work) / "run"
    peer = [sys.executable, ROOT / "bench/train_peer.py", "--mode", "eager", "--precision", precision, "--model", shape.name,
            "--layers", shape.layers, "--length", length, "--micro-batch", MICRO_BATCH, "--threads", session.threads,
            "--steps", SAVE_STEPS, "--save", pathlib.Path(session.work) / "peer.pt", "--save-interval", SAVE_INTERVAL]

    def theirs():
        try:
            return session.run(peer, limit=session.peer_step_seconds).peak_mib
        except TimeoutError:
            return None

    found = alternate(session, f"memory: {shape.name}, {precision}, {length} tokens, saving", {
        "espalier": lambda: train_espalier(session, saving_flags(session, shape, precision, length, folder, SAVE_INTERVAL),
                                           SAVE_STEPS).peak_mib,
        "PyTorch eager": theirs}, rounds=min(session.rounds, MEMORY_ROUNDS))
    shutil.rmtree(folder, ignore_errors=True)
    parameters = shape.parameters(1024)
    for name, peaks in found.items():
        state = parameters * STATE_BYTES[name, precision] / 2**20
        peak = median(peaks) if peaks else 0.0
        part["rows"].append({"model": shape.name, "precision": precision, "length": length, "peer": name, "peak_mib": peak,
                             "state_mib": state, "beyond_mib": peak - state, "peaks_mib": peaks})


def print_memory(part, _):
    print(f"\npeak memory of runs that save, {part['micro_batch']} rows a step, MiB\n  {'':<26}{'':<16}{'peak':>8}{'state':>8}"
          f"{'beyond':>8}{'peak, of it':>13}{'beyond, of it':>15}")
    rows = part["rows"]
    for mine, peer in zip(rows[::2], rows[1::2]):
        for row in (mine, peer):
            shares = (f"{mine['peak_mib'] / row['peak_mib']:>13.2f}{mine['beyond_mib'] / row['beyond_mib']:>15.2f}"
                      if row is peer and peer["peak_mib"] else "")
            print(f"  {row['model'] + ' ' + row['precision'] + ' ' + str(row['length']):<26}{row['peer']:<16}{row['peak_mib']:>8.0f}"
                  f"{row['state_mib']:>8.0f}{row['beyond_mib']:>8.0f}{shares}")
    print("  state: weights, gradients and the optimizer's; aims: 0.8 of the peak, 0.5 of what is beyond the state")
