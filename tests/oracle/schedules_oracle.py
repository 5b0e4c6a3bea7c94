"""Learning rates and weight decays by the schedulers of Megatron-LM and of Argonne's Megatron-DeepSpeed.

  schedules_oracle.py --megatron-lm DIR --argonne DIR --write   writes tests/data/schedules/originals.json
  schedules_oracle.py --megatron-lm DIR --argonne DIR --check   makes them again and compares

DIR is a checkout of the repository (Megatron-LM d98e8a6, Argonne's ffa3456). The classes run unchanged; what they import
of the training program is a stub. Rows: samples so far, learning rate, weight decay; 60 places a case, drawn with seed 7.
"""
import argparse
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import random
import sys
import types

TARGET = pathlib.Path(__file__).resolve().parents[1] / "data/schedules/originals.json"

BASE = dict(max_lr=6e-4, min_lr=6e-6, init_lr=0.0, warmup=375, decay=20011, wsd=3001, wsd_style="linear",
            plus_cooldown=False, plus_cooldown_frac=0.05, constant_lr=1.1e-4, timescale=10.0, cooldown_fraction=0.65,
            constant_fraction=0.001, start_wd=0.01, end_wd=0.1, wd_steps=19000, wd_style="cosine")
CASES = {
    "inverse-square-root": dict(style="inverse-square-root"),
    "inverse-square-root from an initial rate": dict(style="inverse-square-root", init_lr=1e-5, of="megatron-lm"),
    "WSD linear": dict(style="WSD", of="megatron-lm", wd_style="linear"),
    "WSD cosine": dict(style="WSD", of="megatron-lm", wsd_style="cosine", init_lr=2e-5),
    "WSD exponential": dict(style="WSD", of="megatron-lm", wsd_style="exponential", warmup=0),
    "WSD minus_sqrt": dict(style="WSD", of="megatron-lm", wsd_style="minus_sqrt"),
    "constant plus cooldown": dict(style="constant", plus_cooldown=True, plus_cooldown_frac=0.123),
    "infinite-cosine": dict(style="infinite-cosine", warmup=200.11, constant_fraction=0.05),
    "infinite-inv-square-root": dict(style="infinite-inv-square-root", constant_fraction=0.05, timescale=3.5),
}


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Optimizer:
    def __init__(self):
        self.param_groups = [{}]


def argonne(directory, case):
    arguments = types.SimpleNamespace(
        lr_decay_tokens=None, lr_warmup_tokens=None, lr_cooldown_tokens=None, lr_constant_tokens=None, train_tokens=None,
        consumed_train_tokens=0, lr_constant_plus_cooldown=case["plus_cooldown"])
    megatron = types.ModuleType("megatron")
    megatron.get_args, megatron.print_rank_0 = lambda: arguments, lambda *_: None
    sys.modules["megatron"] = megatron
    module = load(pathlib.Path(directory) / "megatron/optimizer_param_scheduler.py", "argonne_scheduler")
    optimizer = Optimizer()
    scheduler = module.OptimizerParamScheduler(
        optimizer, max_lr=case["max_lr"], min_lr=case["min_lr"], lr_warmup_steps=case["warmup"],
        lr_decay_steps=case["decay"], lr_decay_style=case["style"], start_wd=case["start_wd"], end_wd=case["end_wd"],
        wd_incr_steps=case["wd_steps"], wd_incr_style=case["wd_style"], constant_lr=case["constant_lr"],
        lr_constant_plus_cooldown_steps=case["plus_cooldown_frac"] * case["decay"],
        lr_constant_steps=case["constant_fraction"] * case["decay"],
        lr_cooldown_steps=case["cooldown_fraction"] * case["decay"], timescale=case["timescale"])
    return optimizer, scheduler


def megatron_lm(directory, case):
    for name in ("megatron", "megatron.core", "megatron.core.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["megatron.core.utils"].log_single_rank = lambda *_: None
    module = load(pathlib.Path(directory) / "megatron/core/optimizer_param_scheduler.py", "megatron_lm_scheduler")
    optimizer = Optimizer()
    scheduler = module.OptimizerParamScheduler(
        optimizer, init_lr=case["init_lr"], max_lr=case["max_lr"], min_lr=case["min_lr"], lr_warmup_steps=case["warmup"],
        lr_decay_steps=case["decay"], lr_decay_style=case["style"], start_wd=case["start_wd"], end_wd=case["end_wd"],
        wd_incr_steps=case["wd_steps"], wd_incr_style=case["wd_style"], wsd_decay_steps=case["wsd"],
        lr_wsd_decay_style=case["wsd_style"])
    return optimizer, scheduler


def make(options):
    draw = random.Random(7)
    made = {}
    for name, changes in CASES.items():
        case = {**BASE, **changes}
        of_megatron_lm = case.pop("of", "argonne") == "megatron-lm"
        with contextlib.redirect_stdout(io.StringIO()):
            optimizer, scheduler = (megatron_lm(options.megatron_lm, case) if of_megatron_lm
                                    else argonne(options.argonne, case))
            rows = []
            for samples in sorted(draw.sample(range(case["decay"] + 2000), 57) + [0, int(case["warmup"]), case["decay"]]):
                step = samples - scheduler.num_steps
                scheduler.step(step) if of_megatron_lm else scheduler.step(step, 0)
                rows.append([samples, optimizer.param_groups[0]["lr"], optimizer.param_groups[0]["weight_decay"]])
        made[name] = {**case, "rows": rows}
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megatron-lm", default=os.environ.get("ESPALIER_MEGATRON_LM"))
    parser.add_argument("--argonne", default=os.environ.get("ESPALIER_ARGONNE_MEGATRON_DEEPSPEED"))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"), help="nothing: the cases are drawn by a seed of their own")
    options = parser.parse_args()
    if options.fresh:
        return
    if not options.megatron_lm or not options.argonne:
        print("skipped: ESPALIER_MEGATRON_LM and ESPALIER_ARGONNE_MEGATRON_DEEPSPEED name no clones of NVIDIA/Megatron-LM and "
              "argonne-lcf/Megatron-DeepSpeed")
        sys.exit(77)
    made = make(options)
    if options.write:
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text("{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(case)}" for name, case in made.items())
                          + "\n}\n")
        print(f"wrote {len(made)} cases")
    if options.check:
        if json.loads(TARGET.read_text()) != made:
            sys.exit("the committed cases are others")
        print(f"{len(made)} cases are equal")


main()
