"""How fast token files are merged and checked, against cp: data_bench.py ESPALIER FOLDER MIB ROUNDS THREADS

Prints one JSON object. Bytes are those of the .bin files. cp is the system's, of one file of the size, and ends, as merge
does, when the bytes are on the disk (sync -d); the rounds of the two alternate and the median counts. check runs on
files that are in memory: with one thread, over its processor time, and with THREADS, over the wall clock.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys

from measured_run import run


def main():
    espalier, folder, mib, rounds, threads = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:6])
    parts = [str(folder / f"part{number}") for number in range(2)]
    maker = pathlib.Path(__file__).with_name("make_token_file.py")
    for number, part in enumerate(parts):
        subprocess.run([sys.executable, maker, part, str(mib // 2), str(number)], check=True)
    whole = str(folder / "whole")
    merge = [espalier, "data", "merge", "--datasets", *parts, "--output-prefix", whole]
    run(merge)
    bytes_ = os.path.getsize(whole + ".bin")
    copies, merges, memory = [], [], 0
    for _ in range(rounds):
        copy = str(folder / "copy")
        copies.append(run(["sh", "-c", 'cp "$0" "$1" && sync -d "$1"', whole + ".bin", copy])[0])
        os.remove(copy)
        os.remove(whole + ".idx")
        os.rename(whole + ".bin", str(folder / "old"))  # so that nothing is overwritten, for cp as for merge
        seconds, _, peak = run(merge)
        os.remove(folder / "old")
        merges.append(seconds)
        memory = max(memory, peak)
    check = [espalier, "data", "check", whole, "--vocab-size", "50257", "--workers"]
    one = [run([*check, "1"]) for _ in range(rounds)]
    many = [run([*check, str(threads)]) for _ in range(rounds)]
    print(json.dumps({
        "mib": bytes_ / 2**20,
        "cp_gb_per_s": bytes_ / 1e9 / statistics.median(copies),
        "merge_gb_per_s": bytes_ / 1e9 / statistics.median(merges),
        "merge_peak_mib": memory,
        "check_gb_per_core_second": bytes_ / 1e9 / statistics.median(row[1] for row in one),
        "check_gb_per_s": bytes_ / 1e9 / statistics.median(row[0] for row in many),
        "check_threads": threads,
        "check_peak_mib": max(row[2] for row in one + many)}))


main()
