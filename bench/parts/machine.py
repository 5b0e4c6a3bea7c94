"""What the machine can do at most, and how near products come to it."""
import re

from parts.session import BIN
from shapes import SHAPES

TOKENS = (1024, 4096)


def machine(session, part):
    """Registers, memory and disk: bench/machine_bench.cpp."""
    session.say("machine: registers, memory, disk")
    part |= session.run_json([BIN / "machine_bench", session.threads, session.work, 256 if session.quick else 1024])


def print_machine(part, _):
    peaks = ", ".join(f"{name} {value:.0f}" for name, value in part["register_gflops"].items())
    print(f"\nthe machine at most, {part['threads']} threads\n  in registers, GFLOP/s: {peaks}\n"
          f"  memory: reads {part['read_gb_per_s']:.1f} GB/s, copies {part['copy_gb_per_s']:.1f}\n"
          f"  disk: writes {part['disk_write_gb_per_s']:.2f} GB/s, reads {part['disk_read_gb_per_s']:.2f}")


def peak_gflops(limits, precision):
    """What registers can do for operands of that type: bf16 may be widened to fp32."""
    names = ("bf16", "fp32") if precision == "bf16" else ("fp32",)
    return max((rate for name, rate in limits.get("register_gflops", {}).items() if name.startswith(names)), default=0.0)


def share(value, limit):
    """As text, empty where the limit was not measured."""
    return f"{value / limit:.1%}" if limit else ""


PRODUCT = re.compile(r"  (\S.*?)\s+ours\s+\d+ \(median\s+(\d+)\)\s+ATen\s+\d+ \(median\s+(\d+)\)")


def products(output):
    """matmul_bench's medians, a row for each product of each shape."""
    rows, shape = [], None
    for line in output.splitlines():
        if match := re.match(r"(\d+) tokens, (\d+) -> (\d+)", line):
            shape = "x".join(match.groups())
        elif match := PRODUCT.match(line):
            rows.append({"tokens x inputs x outputs": shape, "product": match[1], "ours_gflops": float(match[2]),
                         "aten_gflops": float(match[3])})
    return rows


def matmul(session, part):
    """One large bf16 product: the better of oneDNN and our own is the rate of the machine. Then those of the models."""
    size, repeats = (2048, 5) if session.quick else (4096, 9)
    threads = {"OMP_NUM_THREADS": str(session.threads)}

    def measure(precision, *shapes):
        return products(session.run([BIN / "matmul_bench", repeats, precision, *shapes], **threads).output)

    session.say(f"matmul: {size} x {size} x {size}, bf16")
    square = measure("bf16", f"{size}x{size}x{size}")[0]
    ours, aten = square["ours_gflops"], square["aten_gflops"]
    part |= {"size": size, "ours_gflops": ours, "aten_gflops": aten, "machine_gflops": max(ours, aten), "rows": []}
    for name in [] if session.quick else session.shapes:
        for precision in session.arguments.precisions:
            session.say(f"matmul: the products of {name} in {precision}")
            shapes = [f"{tokens}x{inputs}x{outputs}" for tokens in TOKENS for inputs, outputs in SHAPES[name].products]
            part["rows"] += [{"model": name, "precision": precision} | row for row in measure(precision, *shapes)]


def print_matmul(part, limits):
    print(f"\nbf16 product of {part['size']} x {part['size']}, GFLOP/s\n  ours {part['ours_gflops']:.0f}, ATen"
          f" {part['aten_gflops']:.0f}: the machine does {part['machine_gflops']:.0f}"
          f" {share(part['machine_gflops'], peak_gflops(limits, 'bf16'))}")
    for row in part["rows"]:
        peak = peak_gflops(limits, row["precision"])
        print(f"  {row['model']:<6}{row['precision']:<5}{row['tokens x inputs x outputs']:<18}{row['product']:<16}"
              f" ours {row['ours_gflops']:>6.0f} {share(row['ours_gflops'], peak):>6}"
              f"   ATen {row['aten_gflops']:>6.0f} {share(row['aten_gflops'], peak):>6}")
