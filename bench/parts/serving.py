"""Generating and reading prompts beside transformers."""
import json
import re
import sys

from parts.machine import peak_gflops, share
from parts.session import BIN, ROOT, alternate, median, spread
from shapes import SHAPES

ENGINE_LINE = re.compile(r"(\d+) streams, .* pass, ([\d.]+) tokens/s|prompt of (\d+): .* ms, ([\d.]+) tokens/s")
FIGURES = ("one", "sixteen", "prompt_512", "prompt_2000")
CONTEXT = 512


def espalier(session, precision):
    rates = {}
    for line in session.run([BIN / "engine_bench", "--threads", session.threads, "--type", precision]).output.splitlines():
        if match := ENGINE_LINE.search(line):
            streams, rate, length, prompt_rate = match.groups()
            name = {"1": "one", "16": "sixteen"}[streams] if streams else f"prompt_{length}"
            rates[f"{name}_tokens_per_s"] = float(rate or prompt_rate)
    return rates


def transformers(session, precision):
    command = [sys.executable, ROOT / "bench/generate_peer.py", "--type", precision, "--threads", session.threads]
    try:
        return json.loads(session.run(command, limit=session.peer_step_seconds).output.splitlines()[-1])
    except TimeoutError:
        return None


def serving(session, part):
    """A random GPT-2 small, in alternating rounds; the matrices of the layers in 8 bits as well, all else as in bf16."""
    part["rows"] = []
    for precision in ["bf16"] if session.quick else ["bf16", "fp32"]:
        if not session.wanted(precision):
            continue
        ways = {"espalier": lambda: espalier(session, precision), "transformers": lambda: transformers(session, precision)}
        if precision == "bf16" and not session.quick:
            ways["espalier, 8 bits"] = lambda: espalier(session, "int8")
        for name, rounds in alternate(session, f"serving: {precision}", ways).items():
            if rounds:
                row = {"peer": name, "precision": precision}
                row |= {key: median([one[key] for one in rounds]) for key in rounds[0]}
                part["rows"].append(row | {"spread": max(spread([one[key] for one in rounds]) for key in rounds[0]), "rounds": rounds})


def limit_shares(row, limits):
    """One text: bytes of weights, keys and values over the rate of reading memory. A prompt: its products over the register peak."""
    shape, bits = SHAPES["gpt2"], row["peer"].endswith("8 bits")
    size = 2 if row["precision"] == "bf16" else 4
    layers = shape.layers * sum(inputs * outputs for inputs, outputs in shape.products)
    read = layers * (1 if bits else size) + shape.hidden * size * (shape.vocabulary + 2 * CONTEXT * shape.layers)
    one = share(row["one_tokens_per_s"] * read / 1e9, limits.get("read_gb_per_s"))
    prompt = share(row["prompt_512_tokens_per_s"] * 2 * layers / 1e9, peak_gflops(limits, row["precision"]))
    return one, prompt


def print_serving(part, limits):
    print(f"\nserving GPT-2 small, tokens/s after {CONTEXT} of context\n  {'type':<6}{'':<18}{'one text':>10}{'of reads':>10}"
          f"{'16 texts':>10}{'prompt 512':>12}{'of peak':>9}{'prompt 2000':>13}{'spread':>8}")
    for row in part["rows"]:
        one, prompt = limit_shares(row, limits)
        print(f"  {row['precision']:<6}{row['peer']:<18}{row['one_tokens_per_s']:>10.1f}{one:>10}{row['sixteen_tokens_per_s']:>10.1f}"
              f"{row['prompt_512_tokens_per_s']:>12.0f}{prompt:>9}{row['prompt_2000_tokens_per_s']:>13.0f}{row['spread']:>8.0%}")
