#!/usr/bin/env python3
"""Megatron-DeepSpeed goes on from checkpoints that `espalier checkpoint export-megatron` wrote.

  megatron_loads_exports.py ESPALIER WORK [NAME...]

With the interpreter of tests/oracle/install_megatron. Imports each fixture of tests/data/megatron-checkpoints (or those
that are named), exports it for a layout, and lets upstream make steps 4 to 6 from it; its losses must be those of the
straight run: to the last bit in the same layout, within 1e-5 in another.
"""
import json
import os
import shutil
import subprocess
import sys

import make_megatron_checkpoints as upstream

DATA = os.path.join(upstream.HERE, "../data/megatron-checkpoints")
# fixture, format, layout of the export, whether it is the fixture's
CASES = [
    ("plain-fp32", "megatron", (1, 1, 1), True),
    ("plain-fp32", "megatron", (2, 2, 1), False),
    ("plain-bf16-tp2pp2", "megatron", (2, 2, 1), True),
    ("plain-fp16-tp2dp2", "megatron", (2, 1, 2), True),
    ("deepspeed-fp32-pp2", "deepspeed", (1, 2, 1), True),
    ("deepspeed-bf16-tp2pp2dp2", "deepspeed", (2, 2, 2), True),
    ("bert-fp32-pp2", "megatron", (1, 2, 1), True),
    ("bert-fp32-pp2", "megatron", (2, 1, 1), False),
    ("bert-bf16-tp2pp2", "megatron", (2, 2, 1), True),
    ("bert-fp16-words", "megatron", (1, 1, 1), True),
]


def main(program, work, names):
    failed = False
    work = os.path.abspath(work)
    shutil.rmtree(work, ignore_errors=True)
    out = os.path.join(work, "out")
    os.makedirs(out)
    upstream.write_data(out)
    for name, kind, layout, same_layout in CASES:
        if names and name not in names:
            continue
        folders = [os.path.join(work, part) for part in ("ours", "theirs", "run", "straight")]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folders[2])
        os.makedirs(folders[3])
        subprocess.run([program, "checkpoint", "import-megatron", "--input", os.path.join(DATA, name), "--save", folders[0]], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([program, "checkpoint", "export-megatron", "--load", folders[0], "--output", folders[1], "--format", kind,
                        "--tensor-model-parallel-size", str(layout[0]), "--pipeline-model-parallel-size", str(layout[1]),
                        "--data-parallel-size", str(layout[2])], check=True, stdout=subprocess.DEVNULL)
        found = upstream.run(out, name, folders[2], layout, folders[1])
        if same_layout:
            expected = upstream.run(out, name, folders[3], layout, os.path.join(DATA, name))
        else:
            with open(os.path.join(DATA, name + ".losses.json")) as file:
                expected = json.load(file)[3:]
        distance = max(abs(a - b) / b for a, b in zip(found, expected))
        same = len(found) == len(expected) == 3 and distance <= (0 if same_layout else 1e-5)
        failed = failed or not same
        print(name, kind, layout, "equal" if same else "DIFFERENT", "largest relative distance %.3g" % distance, found, flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]), sys.argv[2], sys.argv[3:])
