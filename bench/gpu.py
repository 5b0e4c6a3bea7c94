"""Training on one GPU beside PyTorch in the same run, for scripts/bench-gpu.

PyTorch is train_peer.py: bf16 autocast over fp32 weights, scaled_dot_product_attention (its flash kernel), fused AdamW; compiled
and eager. "espalier, cuDNN" is --attention-backend cudnn; --without-cudnn leaves it out. Rounds alternate, the first steps of a process do not count, medians do. Model FLOPs have causal attention once; their
share is of the fastest bf16 product that cuBLAS did in the same run. Memory is the most that each side's allocator gave out.
"""
import argparse
import json
import pathlib
import signal
import sys
import tempfile
import time
from dataclasses import dataclass

from parts import training
from parts.session import ROOT, OutOfTime, Session, alternate, median, spread
from parts.training import Peer, check_same_work, train_espalier, training_flags
from shapes import GPU_SHAPES


@dataclass(frozen=True)
class Case:
    rows: int  # a micro-batch, and a step
    length: int
    steps: int


CASES = {"gpt2": Case(16, 1024, 30), "gpt2-xl": Case(8, 1024, 12), "llama-8b": Case(2, 4096, 12)}
WARM_UP = 5
STARTED = time.monotonic()
BY_CUDNN = "espalier, cuDNN"
PEERS = {"PyTorch compiled": "compiled", "PyTorch eager": "eager"}


def out_of_time(*_):
    raise OutOfTime


def gpu_limits():
    """{"name", "gemm_tflops", "copy_tb_per_s"} of the first GPU."""
    import torch

    def fastest(work, repeats=20):
        work()
        times = []
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(), work(), end.record()
            torch.cuda.synchronize()
            times.append(1e-3 * start.elapsed_time(end))
        return min(times)

    size = 8192
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    gemm = 2 * size**3 / fastest(lambda: a @ b)
    source = torch.randn(1 << 29, device="cuda")
    to = torch.empty_like(source)
    copy = 2 * source.numel() * 4 / fastest(lambda: to.copy_(source))
    return {"name": torch.cuda.get_device_name(), "gemm_tflops": gemm / 1e12, "copy_tb_per_s": copy / 1e12}


def new_peer(session, mode, shape, case):
    return Peer(session, mode, shape, "bf16", case.length, case.steps, ["--device", "cuda", "--max-positions", case.length],
                micro_batch=case.rows)


def ours(session, shape, case, *more):
    flags = training_flags(session, shape, "bf16", case.length, batch=case.rows, positions=case.length, micro_batch=case.rows)
    return train_espalier(session, [*flags, "--device", "cuda", *more], case.steps)


def ours_by_cudnn(session, shape, case):
    """None, which ends its rounds, where it cannot run: the others are measured all the same."""
    try:
        return ours(session, shape, case, "--attention-backend", "cudnn")
    except SystemExit as error:
        session.say(f"{BY_CUDNN} did not run: {error}")
        return None


def compare(session, name, peers):
    """A row for each side that was measured before the time was over."""
    case, shape = CASES[name], GPU_SHAPES[name]
    running = {peer: new_peer(session, mode, shape, case) for peer, mode in peers.items()}
    ways = {"espalier": lambda: ours(session, shape, case)}
    if not session.arguments.without_cudnn:
        ways[BY_CUDNN] = lambda: ours_by_cudnn(session, shape, case)
    results = {}
    try:
        alternate(session, f"{name}: {case.rows} x {case.length}", ways | running, results)
    except OutOfTime:
        pass
    finally:
        for peer in running.values():
            if peer.process:
                peer.process.kill()
    return [row_of(name, case, shape, side, results, running) for side, rounds in results.items() if rounds]


def row_of(name, case, shape, side, results, running):
    rounds = results[side]
    if side != "espalier" and results["espalier"]:
        check_same_work(side, results["espalier"][0], rounds[0])
    seconds = [run.step_seconds() for run in rounds]
    rate = case.rows * case.length / median(seconds)
    memory = running[side].gpu_peak_mib if side in running else median([run.gpu_peak_mib for run in rounds])
    return {"model": name, "rows": case.rows, "length": case.length, "side": side, "seconds": median(seconds),
            "spread": spread(seconds), "tokens_per_s": rate, "peak_mib": memory,
            "model_tflops": rate * shape.flops_per_token(case.length) / 1e12, "rounds": seconds,
            "losses": rounds[0].losses[:5]}


def print_rows(results):
    limits = results["gpu"]
    print(f"\n{limits['name']}: bf16 products {limits['gemm_tflops']:.0f} TFLOP/s, copies {limits['copy_tb_per_s']:.2f} TB/s")
    print(f"  {'':<24}{'':<18}{'ms a step':>10}{'spread':>8}{'tokens/s':>10}{'model TFLOP/s':>15}{'of products':>13}{'peak MiB':>10}"
          f"{'espalier is':>13}")
    for row in results["rows"]:
        mine = next((one for one in results["rows"] if one["model"] == row["model"] and one["side"] == "espalier"), None)
        times = f"x{mine['tokens_per_s'] / row['tokens_per_s']:.2f}" if mine and mine is not row else ""
        name = f"{row['model']} {row['rows']} x {row['length']}"
        print(f"  {name:<24}{row['side']:<18}{1e3 * row['seconds']:>10.1f}{row['spread']:>8.0%}{row['tokens_per_s']:>10.0f}"
              f"{row['model_tflops']:>15.1f}{row['model_tflops'] / limits['gemm_tflops']:>13.1%}{row['peak_mib']:>10.0f}{times:>13}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench-gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, help="ends after these, with what is measured by then")
    parser.add_argument("--without-eager", action="store_true")
    parser.add_argument("--without-cudnn", action="store_true", help="leaves out runs with --attention-backend cudnn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", default=str(ROOT / "build" / "bench-gpu.json"))
    arguments = parser.parse_args()
    arguments.quick, arguments.shapes = False, None
    training.WARM_UP = WARM_UP
    session = Session(arguments)
    if arguments.minutes:
        session.deadline = STARTED + 60 * arguments.minutes
    signal.signal(signal.SIGTERM, out_of_time)  # what is measured by then is still told
    results = {"gpu": gpu_limits(), "rows": []}
    peers = {name: mode for name, mode in PEERS.items() if not (arguments.without_eager and mode == "eager")}
    with tempfile.TemporaryDirectory() as session.work:
        for name in arguments.models.split(","):
            results["rows"] += compare(session, name, peers)
            pathlib.Path(arguments.output).write_text(json.dumps(results, indent=1) + "\n")
            # Each model as soon as it is measured: the next ones take minutes.
            print_rows(results | {"rows": [row for row in results["rows"] if row["model"] == name]})
            sys.stdout.flush()


main()
