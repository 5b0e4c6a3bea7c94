"""Whether the memory of a curation depends on the number of documents: curate_memory.py ESPALIER FOLDER DOCUMENTS...

    python3 bench/curate_memory.py build/bin/espalier /tmp/memory 1000000 100000000

For each number, makes so many documents of five to eight words (one in ten is a copy of one before), lets a recipe drop
equal and near-equal ones with `memory = "512MiB"` and two workers, and prints a JSON object: the peak memory of the
process, anonymous memory apart from pages of mapped files, and how many documents went. 10^8 documents are 6 GB, need
25 GB of disk in FOLDER, and take an hour or two on two cores.
"""
import json
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time

WORDS = 4096
RECIPE = """
[output]
folder = "{folder}/mix"
compression = "zst"
[run]
workers = 2
memory = "512MiB"
[[source]]
name = "made"
files = ["{folder}/in.jsonl"]
[[step]]
name = "exact"
[[step]]
name = "minhash"
bands = 4
rows = 8
"""


def make_input(file, count):
    """Text n is that of n, or of an earlier number where n ends in 9."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(WORDS)]
    with open(file, "w", encoding="ascii", buffering=1 << 20) as output:
        for start in range(0, count, 10000):
            lines = []
            for number in range(start, min(start + 10000, count)):
                source = number if number % 10 != 9 else (number * 0x9E3779B97F4A7C15 >> 11) % number // 10 * 10
                bits = source * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF
                text = " ".join([words[bits >> shift & 4095] for shift in range(0, 60, 12)] + [str(source)])
                lines.append(f'{{"text": "{text}"}}\n')
            output.write("".join(lines))


def watch(process, peaks):
    """Peaks of the process's resident memory, in MiB, looked at ten times a second."""
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for line in status.splitlines():
            name, _, value = line.partition(":")
            if name in ("VmRSS", "RssAnon"):
                peaks[name] = max(peaks.get(name, 0), int(value.split()[0]) / 1024)
        time.sleep(0.1)


def measure(espalier, folder, count):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make_input(folder / "in.jsonl", count)
    (folder / "recipe.toml").write_text(RECIPE.format(folder=folder))
    peaks, start = {}, time.time()
    process = subprocess.Popen([espalier, "curate", str(folder / "recipe.toml")])
    watcher = threading.Thread(target=watch, args=(process, peaks))
    watcher.start()
    if process.wait() != 0:
        sys.exit(f"exit code {process.returncode}")
    watcher.join()
    report = json.loads((folder / "mix/report.json").read_text())
    fates = sum(file.stat().st_size for file in (folder / "mix/fates").iterdir())
    print(json.dumps({"documents": count, "seconds": round(time.time() - start), "peak_mib": round(peaks["VmRSS"]),
                      "peak_anonymous_mib": round(peaks["RssAnon"]), "bytes_of_fates_per_document": fates / count,
                      "dropped": [step["dropped"] for step in report["steps"]]}), flush=True)
    shutil.rmtree(folder)


def main():
    for count in map(int, sys.argv[3:]):
        measure(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), count)


if __name__ == "__main__":
    main()
