"""What optional parts of training cost, and curation beside datatrove."""
import pathlib
import re

from parts.session import BIN, ROOT
from parts.text import text_and_vocabulary
from parts.training import MICRO_BATCH, POSITIONS, training_flags
from shapes import shape_of


def options(session, part):
    """What optional parts of training cost, and what packed documents save in attention."""
    length, shape = 256 if session.quick else POSITIONS, shape_of("gpt2", session.arguments.layers)
    session.say(f"options: {shape.name}, bf16, {MICRO_BATCH} x {length} tokens a step")
    flags = training_flags(session, shape, "bf16", length)
    sizes = ",".join(map(str, (shape.layers, shape.hidden, shape.heads, shape.vocabulary)))
    part |= {"model": shape.name, "tokens": MICRO_BATCH * length}
    part |= session.run_json([BIN / "options_bench", sizes, length, 1 if session.quick else 3, *flags, "--train-iters", 100,
                              "--num-threads", session.threads])
    session.say("options: eight documents in a row, and one")
    part["documents"] = session.run([BIN / "attention_bench", "--sequence", 0, "--document", length, "--threads",
                                     session.threads]).output


def print_options(part, _):
    print(f"\noptional parts of a step of {part['tokens']} tokens in bf16, {part['parameters'] / 1e6:.0f} million parameters,"
          f" {part['step_ms']:.0f} ms without them")
    for row in part["rows"]:
        print(f"  {row['what']:<38}{row['ms']:>10.2f} ms{row['share']:>9.2%}")
    if "documents" in part:
        print(f"  attention, {part['documents'].strip().replace(chr(10), chr(10) + '  attention, ')}")


def curate(session, part):
    """A recipe beside datatrove's local executor, and MinHash signatures of 100 values on one core."""
    text, _ = text_and_vocabulary(session)
    megabytes, rounds = (20, 1) if session.quick else (100, 1)
    session.say("curate: MinHash")
    rates = re.findall(r"^(.*?)\s+([\d.]+) MB/s$", session.run([BIN / "minhash_bench", text]).output, re.MULTILINE)
    part["minhash_mb_per_s"] = {name: float(rate) for name, rate in rates}
    session.say(f"curate: {megabytes} MB, two workers; datatrove takes minutes")
    python = session.run([ROOT / "bench/install_datatrove"]).output.strip()
    part["recipe"] = session.run_json([python, ROOT / "bench/curate_bench.py", BIN / "espalier",
                                       pathlib.Path(session.work) / "curate", megabytes, rounds])


def print_curate(part, _):
    if recipe := part.get("recipe"):
        print(f"\ncurate, {recipe['mb']:.0f} MB, {recipe['documents']} documents, two workers\n"
              f"  {'':<12}{'seconds':>9}{'core seconds':>14}{'MB/core second':>16}{'peak MiB':>10}{'kept':>8}")
        for name, shown in [("ours", "espalier"), ("peer", "datatrove")]:
            print(f"  {shown:<12}{recipe[name + '_seconds']:>9.1f}{recipe[name + '_core_seconds']:>14.1f}"
                  f"{recipe[name + '_mb_per_core_second']:>16.3f}{recipe[name + '_peak_mib']:>10.0f}"
                  f"{recipe[name + '_kept']:>8}")
        print(f"  espalier is {recipe['peer_seconds'] / recipe['ours_seconds']:.1f} times as fast by the clock, "
              f"{recipe['ratio_of_core_seconds']:.1f} times in processor time")
    for name, rate in part["minhash_mb_per_s"].items():
        print(f"  {name:<44}{rate:>8.1f} MB/s on one core")
