"""Training with lower instruction sets than the machine has, PyTorch's three libraries held to the same."""
import pathlib

from parts.training import MICRO_BATCH, PEERS, compare_trainers, print_rows
from shapes import shape_of

LENGTH, STEPS = 256, 4
# What a level needs of /proc/cpuinfo, PyTorch's names of it, the width of torch.compile's vectors, its register peaks.
LEVELS = {
    "avx2": ({"avx2", "fma"}, ("avx2", "AVX2", "AVX2"), 256, ["fp32 avx2"]),
    "avx512": ({"avx512f", "avx512bw", "avx512dq", "avx512vl"}, ("avx512", "AVX512_CORE", "AVX512"), 512, ["fp32 avx512"]),
    "avx512bf16": ({"avx512_bf16"}, ("avx512", "AVX512_CORE_BF16", "AVX512"), 512, ["bf16 avx512bf16"]),
    "amx": ({"amx_bf16", "amx_tile"}, ("avx512", "AVX512_CORE_AMX", "AVX512"), 512, ["bf16 amx"]),
}


def levels_here():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    flags = set(next((line for line in lines if line.startswith("flags")), ":").split(":")[1].split())
    found = []
    for level, (needed, *_) in LEVELS.items():
        if not needed <= flags:
            break
        found.append(level)
    return found


def variables(level):
    aten, onednn, mkl = LEVELS[level][1]
    return {"espalier": {"ESPALIER_CPU_ISA": level},
            "PyTorch": {"ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn, "MKL_ENABLE_INSTRUCTIONS": mkl}}


def isa(session, part):
    part |= {"micro_batch": MICRO_BATCH, "rows": []}
    shape = shape_of(session.shapes[0], session.arguments.layers)
    for level in levels_here()[:-1]:  # the highest is that of `training`
        if session.arguments.levels and level not in session.arguments.levels:
            continue
        for precision in ("fp32", "bf16"):
            if session.wanted(precision):
                key = {"model": shape.name, "level": level, "precision": precision, "length": LENGTH}
                compare_trainers(session, f"isa: {level}, {shape.name}, {precision}", key, part["rows"], shape, STEPS, PEERS,
                                 variables(level), ["--simd-bits", LEVELS[level][2]])


def print_isa(part, limits):
    print(f"\nlower instruction sets, {part['micro_batch']} x {LENGTH} tokens a step, PyTorch held to the same")
    peaks, names = limits.get("register_gflops", {}), []
    for level, (*_, own) in LEVELS.items():
        names += own
        rows = [row for row in part["rows"] if row["level"] == level]
        if rows:
            print_rows(rows, {"register_gflops": {name: rate for name, rate in peaks.items() if name in names}},
                       ["model", "level", "precision"])
    if not part["rows"]:
        print("  this machine has none lower")
