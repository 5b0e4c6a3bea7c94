"""Training beside PyTorch: speed and memory of whole steps, on every instruction set that the machine can force, and where a
step goes."""
import array
import json
import pathlib
import random
import re
import shutil
import statistics
import struct
import sys

from parts.machine import peak_gflops, share
from parts.session import BIN, ROOT, START_SECONDS, alternate, median, spread
from shapes import shape_of

MICRO_BATCH, POSITIONS = 4, 1024
# {length: steps of a round}; the first WARM_UP steps of a process do not count, nor does the first of each later round of one that
# goes on.
LENGTHS = {256: 4, 1024: 3}
WARM_UP = 2
LOSS_TOLERANCE = 0.03  # of the first steps' losses: both sides begin with other random numbers
PEERS = {"PyTorch eager": "eager", "PyTorch compiled": "compiled"}


def write_tokens(session, length=POSITIONS, count=256):
    """A token store of documents one sample longer than the context; ids of a small vocabulary, uniform. Its prefix."""
    prefix = pathlib.Path(session.work) / f"tokens-{length}"
    if prefix.with_suffix(".idx").exists():
        return prefix
    length, rng = length + 1, random.Random(1)
    ids = array.array("H", (rng.randrange(5000) for _ in range(count * length)))
    prefix.with_suffix(".bin").write_bytes(ids.tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, count, count + 1)
    sizes, documents = array.array("i", [length] * count), array.array("q", range(count + 1))
    starts = array.array("q", range(0, 2 * length * count, 2 * length))
    prefix.with_suffix(".idx").write_bytes(header + b"".join(part.tobytes() for part in (sizes, starts, documents)))
    return prefix


def training_flags(session, shape, precision, length, batch=MICRO_BATCH, processes=1, positions=POSITIONS,
                   micro_batch=MICRO_BATCH):
    tokenizer = ROOT / "tests/data/gpt2-tiny"
    return shape.flags(positions) + f"""--seq-length {length}
        --micro-batch-size {min(micro_batch, batch // processes)} --global-batch-size {batch}
        --lr 6e-4 --lr-decay-style constant --weight-decay 0.1 --adam-beta2 0.95 --clip-grad 1.0 --hidden-dropout 0
        --attention-dropout 0 --tokenizer-type GPT2BPETokenizer --vocab-file {tokenizer}/vocab.json
        --merge-file {tokenizer}/merges.txt --data-path {write_tokens(session, positions)} --split 100,0,0
        --eval-iters 0""".split() + (["--bf16"] if precision == "bf16" else [])


class Trained:
    """One run of training: seconds and loss of each step, peak memory, parameters, steps that do not count."""

    def __init__(self, seconds, losses, peak_mib, parameters, warm_up=WARM_UP):
        self.seconds, self.losses, self.peak_mib, self.parameters = seconds, losses, peak_mib, parameters
        self.warm_up = warm_up
        self.gpu_peak_mib = None  # where a GPU's allocator says it

    def step_seconds(self):
        return statistics.median(self.seconds[self.warm_up:] or self.seconds[-1:])


def train_espalier(session, flags, steps, launch=(), folder=None, **environment):
    """`launch`: words between `espalier` and `train` that start several processes."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    events = pathlib.Path(session.work) / "tensorboard"
    shutil.rmtree(events, ignore_errors=True)
    # Ranks divide the cores among themselves where nothing is set.
    threads = {} if launch else {"OMP_NUM_THREADS": str(session.threads)}
    run = session.run([BIN / "espalier", *launch, "train", "gpt", *flags, "--train-iters", steps, "--log-interval", 1,
                       "--tensorboard-dir", events, "--log-timers-to-tensorboard"], errors_too=True,
                      folder=folder or session.work, **threads, **environment)
    found = EventAccumulator(str(events), size_guidance={"scalars": 0})
    found.Reload()
    parameters = next(1e9 * float(text.rsplit(" ", 1)[1]) for _, text in run.lines if "estimated model parameters" in text)
    trained = Trained([event.value for event in found.Scalars("iteration-time/iteration-time")],
                      [event.value for event in found.Scalars("lm-loss-training/lm loss")], run.peak_mib, round(parameters))
    if of_gpu := re.search(r"max allocated: ([\d.]+)", run.output):
        trained.gpu_peak_mib = float(of_gpu[1])
    return trained


class Peer:
    """PyTorch. What it compiled is kept from round to round: its process waits meanwhile."""

    def __init__(self, session, mode, shape, precision, length, steps, more=(), environment=None, micro_batch=MICRO_BATCH):
        self.session, self.mode, self.steps, self.process = session, mode, steps, None
        self.kept = mode == "compiled"
        self.command = [sys.executable, ROOT / "bench/train_peer.py", "--wait", "--mode", mode, "--precision", precision,
                        "--model", shape.name, "--layers", shape.layers, "--length", length, "--micro-batch", micro_batch,
                        "--steps", 0, "--threads", session.threads, *more]
        self.environment = environment or {}

    def __call__(self):
        """A round; None if a step takes too long."""
        first = self.process is None
        warm_up = WARM_UP if first else 1
        try:
            if first:
                self.process = self.session.start(self.command, **self.environment)
                self.parameters = self.next(START_SECONDS)["parameters"]
            self.process.send(f"{self.steps - WARM_UP + warm_up}\n")
            lines = [self.next(START_SECONDS if first and self.kept else self.session.peer_step_seconds)]
            while "round" not in lines[-1]:
                lines.append(self.next(self.session.peer_step_seconds))
        except TimeoutError:
            self.process = None
            return None
        self.gpu_peak_mib = lines[-1].get("peak_mib")
        peak = 0.0 if self.kept else self.close()
        steps = [line for line in lines if "step" in line]
        return Trained([line["seconds"] for line in steps], [line["loss"] for line in steps], peak, self.parameters, warm_up)

    def next(self, limit):
        if (line := self.process.line(limit)) is None:
            self.process.check()
        return json.loads(line[1])

    def close(self):
        """Ends it; its peak memory. Where the time is over meanwhile, it is still there to be killed."""
        if self.process is None:
            return 0.0
        process = self.process
        process.process.stdin.close()
        while process.line(self.session.peer_step_seconds):
            pass
        process.check()
        self.process = None
        return process.peak_mib


def check_same_work(name, ours, theirs):
    if ours.parameters != theirs.parameters:
        sys.exit(f"scripts/bench: the models differ: {ours.parameters} parameters, and {theirs.parameters} of {name}")
    for step, (mine, other) in enumerate(zip(ours.losses, theirs.losses)):
        if abs(mine - other) > LOSS_TOLERANCE * other:
            sys.exit(f"scripts/bench: the losses of step {step + 1} differ: {mine:.4f}, and {other:.4f} of {name}")


def compare_trainers(session, what, key, rows, shape, steps, peers, environment=None, more=()):
    """Adds rows of espalier and the peers, in alternating rounds, to `rows`; when the time is over those that have a round.

    `key`: what the rows are of, precision and length among it. `environment`: {"espalier" or "PyTorch": variables}."""
    environment, precision, length = environment or {}, key["precision"], key["length"]
    flags = training_flags(session, shape, precision, length)
    ways = {"espalier": lambda: train_espalier(session, flags, steps, **environment.get("espalier", {}))}
    running = {name: Peer(session, mode, shape, precision, length, steps, more, environment.get("PyTorch"))
               for name, mode in peers.items()}
    results, late = {}, {}
    try:
        alternate(session, what, ways | running, results)
        late = {name: peer.close() for name, peer in running.items()}
    finally:
        for peer in running.values():
            if peer.process:
                peer.process.kill()
                late[next(name for name, one in running.items() if one is peer)] = peer.process.peak_mib
        rows += [key | row_of(name, results, shape, length, late) for name in ways | running if results.get(name, []) != []]


def row_of(name, results, shape, length, late):
    rounds = results[name]
    if rounds is None:
        return {"peer": name, "tokens_per_s": 0.0, "model_tflops": 0.0, "peak_mib": 0.0, "spread": 0.0}
    if name != "espalier" and results.get("espalier"):
        check_same_work(name, results["espalier"][0], rounds[0])
    seconds = [run.step_seconds() for run in rounds]
    rate = MICRO_BATCH * length / median(seconds)
    return {"peer": name, "tokens_per_s": rate, "model_tflops": rate * shape.flops_per_token(length) / 1e12,
            "peak_mib": late.get(name) or median([run.peak_mib for run in rounds]), "spread": spread(seconds),
            "parameters": rounds[0].parameters, "seconds_per_step": seconds, "seconds_of_steps": [run.seconds for run in rounds],
            "losses": rounds[0].losses}


def training(session, part):
    part |= {"micro_batch": MICRO_BATCH, "rows": []}
    peers = {"PyTorch eager": "eager"} if session.quick else PEERS  # compiling takes minutes
    for name in session.shapes:
        shape = shape_of(name, session.arguments.layers)
        for length, steps in LENGTHS.items():
            for precision in ("bf16", "fp32"):
                if not session.wanted(precision, length):
                    continue
                key = {"model": name, "precision": precision, "length": length}
                what = f"training: {name}, {precision}, {length} tokens"
                part.setdefault("models", {})[name] = shape.note
                compare_trainers(session, what, key, part["rows"], shape, 2 if session.quick else steps, peers)


def print_rows(rows, limits, of):
    """A table of rows of compare_trainers, and what is the fastest of each side. `of`: the keys that rows share."""
    print(f"  {'':<26}{'':<18}{'tokens/s':>10}{'spread':>8}{'model TFLOP/s':>15}{'of peak':>9}{'peak MiB':>10}"
          f"{'espalier is':>13}")
    ours = {tuple(row[key] for key in of): row for row in rows if row["peer"] == "espalier"}
    for row in rows:
        names = tuple(row[key] for key in of)
        line = f"  {' '.join(map(str, names)):<26}{row['peer']:<18}"
        if not row["tokens_per_s"]:
            print(f"{line}a step takes too long: not waited for")
            continue
        times = "" if row["peer"] == "espalier" else f"x{ours[names]['tokens_per_s'] / row['tokens_per_s']:.2f}"
        print(f"{line}{row['tokens_per_s']:>10.0f}{row['spread']:>8.0%}{row['model_tflops']:>15.3f}"
              f"{share(1e3 * row['model_tflops'], peak_gflops(limits, row['precision'])):>9}{row['peak_mib']:>10.0f}{times:>13}")
    of = [key for key in of if key != "precision"]
    for names in dict.fromkeys(tuple(row[key] for key in of) for row in rows):
        rows_of = [row for row in rows if tuple(row[key] for key in of) == names and row["tokens_per_s"]]
        print_fastest(" ".join(map(str, names)), rows_of)


def print_fastest(name, rows):
    def rate(row):
        return row["tokens_per_s"]
    others = [row for row in rows if row["peer"] != "espalier"]
    if others and len(others) < len(rows):
        mine, best = max((row for row in rows if row["peer"] == "espalier"), key=rate), max(others, key=rate)
        memory = f"; memory {mine['peak_mib'] / best['peak_mib']:.2f} of its" if best["peak_mib"] else ""
        print(f"  {name}: espalier {mine['precision']} is {rate(mine) / rate(best):.2f} times as fast as the fastest peer,"
              f" {best['peer']} {best['precision']}{memory}")


def print_training(part, limits):
    print(f"\ntraining, {part['micro_batch']} rows a step")
    for name, note in part.get("models", {}).items():
        print(f"  {name}: {note}")
    print_rows(part["rows"], limits, ["model", "precision", "length"])
