#!/usr/bin/env python3
"""Whether stock TensorBoard reads our event files, and finds in them what metrics.jsonl of the same run says.

    tests/oracle/tensorboard_oracle.py --check            a fixed tiny run, stopped and resumed, of build/bin/espalier
    tests/oracle/tensorboard_oracle.py --fresh SEED DIR   the same with random settings, in DIR/tensorboard

Needs the environment of tests/oracle/requirements.txt and a built program. TensorBoard's reader checks the checksums of
every record; every scalar is compared, tag by tag, with the float32 of the number in metrics.jsonl.
"""
import argparse
import json
import math
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIXED = {"steps": 6, "stop": 4, "batch": 4, "precision": [], "weights": [0.3, 0.7], "seed": 7}
OF_CLOCKS = "iteration-time/"  # times are not in metrics.jsonl to the digit that both need


def fresh_settings(rng):
    steps = rng.randint(3, 12)
    return {"steps": steps, "stop": rng.randint(1, steps - 1), "batch": rng.choice([1, 3, 8]),
            "precision": rng.choice([[], ["--bf16"], ["--fp16", "--initial-loss-scale", "1024"]]),
            "weights": rng.choice([[1.0], [0.5, 0.5], [0.2, 0.3, 0.5]]), "seed": rng.randint(1, 10**6)}


def train(settings, folder):
    data = []
    for number, weight in enumerate(settings["weights"]):
        for suffix in ["bin", "idx"]:
            shutil.copy(ROOT / f"tests/data/owt-20_text_document.{suffix}", folder / f"part{number}.{suffix}")
        data += [str(weight), str(folder / f"part{number}")]
    vocabulary = ROOT / "tests/data/gpt2-tiny"
    steps, batch = settings["steps"], settings["batch"]
    command = f"""{ROOT}/build/bin/espalier train gpt --num-layers 2 --hidden-size 24 --num-attention-heads 3
        --seq-length 33 --max-position-embeddings 33 --micro-batch-size 1 --global-batch-size {batch} --train-iters {steps}
        --lr 1e-3 --lr-warmup-iters 2 --lr-decay-iters {steps} --lr-decay-style linear --clip-grad 1.0 --log-interval 1
        --tokenizer-type GPT2BPETokenizer --vocab-file {vocabulary}/vocab.json --merge-file {vocabulary}/merges.txt
        --split 80,20,0 --eval-interval 2 --eval-iters 1 --seed {settings['seed']}
        --log-num-zeros-in-grad --log-params-norm --log-batch-size-to-tensorboard
        --log-validation-ppl-to-tensorboard --save {folder}/run --save-interval 1000""".split()
    command += settings["precision"] + ["--data-path", *(data if len(data) > 2 else data[1:])]
    for rest in [["--exit-interval", str(settings["stop"])], ["--load", f"{folder}/run"]]:
        done = subprocess.run(command + rest, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command + rest)}\n{done.stderr}")
    return folder / "run"


def wanted_scalars(run):
    """From metrics.jsonl: tag -> [(x, value)], in the order in which they were written."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = {line["step"]: line for line in lines if "lm_loss" in line}
    wanted = {}

    def add(tag, x, value):
        wanted.setdefault(tag, []).append((x, value))

    def three(tag, at, value):
        for suffix, x in [("", "step"), (" vs samples", "consumed_samples"), (" vs tokens", "consumed_tokens")]:
            add(tag + suffix, at[x], value)

    for line in lines:
        at = steps[line["step"]]
        if "lm_loss" not in line:
            for name, values in line.get("valid", {}).items():
                three(f"lm-loss-validation/{name}/lm loss validation", at, values["lm_loss"])
                three(f"lm-loss-validation/{name}/lm loss validation ppl", at, math.exp(min(20, values["lm_loss"])))
                if "bits_per_byte" in values:
                    three(f"lm-loss-validation/{name}/bits per byte validation", at, values["bits_per_byte"])
            continue
        for unit in ["samples", "tokens"]:
            add(f"steps-vs-{unit}/y=steps,x={unit}", at[f"consumed_{unit}"], at["step"])
            add(f"steps-vs-{unit}/y={unit},x=steps", at["step"], at[f"consumed_{unit}"])
        if line["step"] + 1 in steps:  # the rate after the scheduler's step is that of the next one
            three("learning-rate/learning-rate", at, steps[line["step"] + 1]["learning_rate"])
        add("batch-size/batch-size", at["step"], line["global_batch_size"])
        add("batch-size/batch-size vs samples", at["consumed_samples"], line["global_batch_size"])
        three("lm-loss-training/lm loss", at, line["lm_loss"])
        for name, value in line.get("lm_loss_by_data_set", {}).items():
            three(f"lm-loss-training/lm loss/{name}", at, value)
        for tag, key in [("loss-scale", "loss_scale"), ("grad-norm", "grad_norm"), ("num-zeros", "num_zeros"),
                         ("params-norm", "params_norm")]:
            if line.get(key) is not None:
                three(f"{tag}/{tag}", at, line[key])
    return wanted


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def differences(run):
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    wanted = wanted_scalars(run)
    tags = {tag for tag in events.Tags()["scalars"] if not tag.startswith(OF_CLOCKS)}
    for tag in sorted(tags ^ wanted.keys()):
        yield f"tag '{tag}' is only in {'the event files' if tag in tags else 'metrics.jsonl'}"
    for tag in sorted(tags & wanted.keys()):
        found = [(event.step, event.value) for event in events.Scalars(tag)]
        if tag.startswith("learning-rate/"):
            found = found[:len(wanted[tag])]  # no next step after the last
        expected = [(x, float32(value)) for x, value in wanted[tag]]
        if found != expected and not (tag.endswith("ppl") or " ppl vs " in tag):
            yield f"'{tag}': TensorBoard reads {found}, metrics.jsonl says {expected}"
        elif len(found) != len(expected) or any(
                a[0] != b[0] or not math.isclose(a[1], b[1], rel_tol=1e-6) for a, b in zip(found, expected)):
            yield f"'{tag}': TensorBoard reads {found}, metrics.jsonl says {expected}"
    starts = [(event.step, event.value) for event in events.Scalars("iteration-time/world_size")]
    if len(starts) != 4 or [value for _, value in starts] != [1, 0, 1, 0]:
        yield f"two starts should leave 1, 0, 1, 0 in 'iteration-time/world_size', which holds {starts}"
    text = [event.tensor_proto.string_val[0] for event in events.Tensors("seq_length/text_summary")]
    if text != [b"33", b"33"]:
        yield f"'seq_length/text_summary' holds {text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    settings = FIXED
    if arguments.fresh:
        settings = fresh_settings(random.Random(int(arguments.fresh[0])))
        print(f"settings: {settings}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        if arguments.fresh:
            folder = pathlib.Path(arguments.fresh[1]).resolve() / "tensorboard"
            folder.mkdir(parents=True, exist_ok=True)
        run = train(settings, folder)
        found = list(differences(run))
        count = sum(len(points) for points in wanted_scalars(run).values())
    print("\n".join(found) if found else f"TensorBoard reads the {count} numbers that metrics.jsonl holds")
    sys.exit(1 if found else 0)


main()
