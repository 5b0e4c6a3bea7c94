"""Checkpoints: what saving costs the steps beside it, and how fast they are written, loaded and converted."""
import json
import pathlib
import re
import shutil
import statistics
import sys

from parts.machine import share
from parts.session import BIN, ROOT, alternate, median, spread
from parts.steps import saving_flags

from shapes import shape_of

SAVING_STEPS, SAVING_INTERVAL, SAVING_WARM_UP, SAVING_LENGTH, SAVING_BATCH = 45, 14, 4, 256, 1
SAVED = re.compile(r"saved checkpoint at iteration +(\d+) to .* \(.* in ([\d.]+) s, training paused for ([\d.]+) s\)")


def slow_down(steps, saves):
    """By how much steps are longer while a checkpoint is written. `steps`: {number: seconds}; `saves`: (step, seconds of the write).

    Steps are those during a write until their sum reaches its time; the rest is undisturbed, and its median counts. In a write of
    W seconds that takes E seconds from the steps, they are 1 + E / (W - E) times as long."""
    during = []
    for first, write_seconds in saves:
        passed = 0.0
        for number in range(first + 1, max(steps) + 1):
            if passed >= write_seconds or number - first > SAVING_INTERVAL:
                break
            passed += steps[number]
            during.append(number)
    quiet = statistics.median(seconds for number, seconds in steps.items() if number > SAVING_WARM_UP and number not in during)
    lost = sum(steps[number] - quiet for number in during)
    return lost / (sum(write for _, write in saves) - lost), quiet


def save_beside_steps(session, shape):
    folder = pathlib.Path(session.work) / "run"
    flags = saving_flags(session, shape, "bf16", SAVING_LENGTH, folder, SAVING_INTERVAL, batch=SAVING_BATCH)
    threads = {"OMP_NUM_THREADS": str(session.threads)}
    run = session.run([BIN / "espalier", "train", "gpt", *flags, "--train-iters", SAVING_STEPS, "--log-interval", 1, "--save-keep-last",
                       2], errors_too=True, **threads)
    saves = [(int(step), float(write), float(stall)) for step, write, stall in SAVED.findall(run.output)]
    saves = [save for save in saves if save[0] < SAVING_STEPS]  # the one at the end has no steps beside it
    records = [json.loads(line) for line in open(folder / "metrics.jsonl")]
    steps = {record["step"]: record["step_seconds"] for record in records if "step_seconds" in record}
    newest = max(folder.glob("step_*"))
    size = sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())
    shutil.rmtree(folder)
    slower, quiet = slow_down(steps, [save[:2] for save in saves])
    return {"slow_down": slower, "step_s": quiet, "write_gb_per_s": size / 1e9 / median([save[1] for save in saves]),
            "stall_s": median([save[2] for save in saves]), "gb": size / 1e9}


def torch_save(session, shape):
    """Seconds for which torch.save keeps training waiting."""
    file = pathlib.Path(session.work) / "peer.pt"
    run = session.run([sys.executable, ROOT / "bench/train_peer.py", "--mode", "eager", "--precision", "bf16", "--model", shape.name,
                       "--layers", shape.layers, "--length", SAVING_LENGTH, "--micro-batch", SAVING_BATCH, "--threads", session.threads,
                       "--steps", 3, "--save", file], limit=session.peer_step_seconds)
    saves = [line for line in map(json.loads, run.output.splitlines()) if "saved" in line]
    file.unlink()
    return {"stall_s": median([save["saved"] for save in saves]), "gb": saves[0]["bytes"] / 1e9}


def saving(session, part):
    shape = shape_of("gpt2", session.arguments.layers)
    found = alternate(session, "saving: gpt2, bf16", {"espalier": lambda: save_beside_steps(session, shape),
                                                      "torch.save": lambda: torch_save(session, shape)})
    ours, theirs = found["espalier"], found["torch.save"]
    part |= {key: median([one[key] for one in ours]) for key in ours[0]}
    part |= {"slow_down_lowest": min(one["slow_down"] for one in ours), "slow_down_highest": max(one["slow_down"] for one in ours),
             "torch_save_stall_s": median([one["stall_s"] for one in theirs]), "torch_save_gb": theirs[0]["gb"],
             "model": shape.name, "rounds": {"espalier": ours, "torch.save": theirs}}


def print_saving(part, limits):
    copy = 2 * part["gb"] / limits["copy_gb_per_s"] if limits.get("copy_gb_per_s") else 0
    print(f"\nsaving while training, {part['model']}, bf16, steps of {part['step_s']:.2f} s, {part['gb']:.2f} GB\n"
          f"  while a checkpoint is written a step is {part['slow_down']:+.1%} longer ({part['slow_down_lowest']:+.1%} to"
          f" {part['slow_down_highest']:+.1%}; aim: 10 %)\n  it is written at {part['write_gb_per_s']:.2f} GB/s"
          f" {share(part['write_gb_per_s'], limits.get('disk_write_gb_per_s'))}\n"
          f"  training stands still for {part['stall_s']:.2f} s" + (f", one copy in memory takes {copy:.2f} s" if copy else "")
          + f"; torch.save of {part['torch_save_gb']:.2f} GB {part['torch_save_stall_s']:.2f} s")


def checkpoint(session, part):
    """Writing, loading, and loading into another layout, beside the disk: bench/checkpoint_bench.cpp."""
    mib, rounds = (256, 1) if session.quick else (1024, session.rounds)
    session.say(f"checkpoint: {mib} MiB, {rounds} rounds")
    folder = pathlib.Path(session.work) / "checkpoints"
    found = session.run_json([BIN / "checkpoint_bench", folder, mib, rounds, session.threads])
    # What is written and then read back takes the disk the time of both.
    found["rounds"]["raw_both"] = [1 / (1 / write + 1 / read) for write, read in
                                   zip(found["rounds"]["raw_write"], found["rounds"]["raw_read"])]
    rows = {"stall": "memcpy", "save": "raw_both", "save_unread": "raw_write", "load": "raw_read", "load_divided": "load_whole"}
    part |= {"mib": found["mib"], "rounds": found["rounds"], "rows": []}
    for what, limit in rows.items():
        ours, theirs = found["rounds"][what], found["rounds"][limit]
        part["rows"].append({"what": what, "limit": limit, "gb_per_s": median(ours), "limit_gb_per_s": median(theirs),
                             "share": median([mine / other for mine, other in zip(ours, theirs)]), "spread": spread(ours)})
    for name in ("save_cpu_s_per_gb", "load_cpu_s_per_gb"):
        part[name] = median(found["rounds"][name])


CHECKPOINT_WORDS = {"stall": "training stands still", "save": "write, checksums, read back", "save_unread": "write, not read back",
                    "load": "load, cold", "load_divided": "load, columns divided", "memcpy": "memcpy", "raw_write": "O_DIRECT write",
                    "raw_both": "write, then read",
                    "raw_read": "O_DIRECT read", "load_whole": "load by one"}


def print_checkpoint(part, _):
    print(f"\ncheckpoints, {part['mib']} MiB, GB/s; a share is the median of those of the rounds")
    for row in part["rows"]:
        print(f"  {CHECKPOINT_WORDS[row['what']]:<30}{row['gb_per_s']:>7.2f}, spread {row['spread']:>4.0%}"
              f"   {CHECKPOINT_WORDS[row['limit']]:<16}{row['limit_gb_per_s']:>7.2f}   share {row['share']:.2f}")
    print(f"  processor seconds a GB: save {part['save_cpu_s_per_gb']:.2f}, load {part['load_cpu_s_per_gb']:.2f}")


def convert(session, part):
    mib, rounds = (128, 1) if session.quick else (1024, session.rounds)
    session.say(f"checkpoint import-hf and export-hf: {mib} MiB")
    part["rows"] = session.run_json([sys.executable, ROOT / "bench/convert_bench.py", BIN / "espalier", session.work, mib, rounds])


def print_convert(part, _):
    print()
    for row in part["rows"]:
        copy = row["cp_gb_per_s"]
        for what in ("import", "export"):
            rate = row[f"{what}_gb_per_s"]
            print(f"{what} {row['model']}, {row['mib']:.0f} MiB: {rate:.2f} GB/s, cp {copy:.2f} ({rate / copy:.2f} of it), "
                  f"peak {row[f'{what}_peak_mib']:.0f} MiB")
