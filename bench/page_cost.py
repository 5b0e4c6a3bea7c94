#!/usr/bin/env python3
"""What a page with viewers costs the run that it shows: one run under `launch --page`, in which viewers come and go.

    bench/page_cost.py [--steps N] [--viewers N] [--block-seconds S]

For a block of seconds the viewers ask what an open page asks (new records every second, the list and the run every ten, a
chart at first), then for a block nobody does, in turns; a ninth of each block, at its beginning, does not count. Prints the
median step of both kinds and their ratio with its spread over pairs of neighbouring blocks, and the processor time of the
launcher, which serves the page, in each kind of block. Last comes a run without a page: what the page costs is the launcher's
processor time above that one's, and a step of a run that needs all cores is longer by no more than its share of them.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")


def words_of_run(folder, tokens, steps, page):
    return f"""{ESPALIER} launch --nproc-per-node 1 {page} train gpt --num-layers 2 --hidden-size 128 --num-attention-heads 4
        --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 2 --lr 1e-3
        --lr-decay-style constant --split 100,0,0 --eval-iters 0 --num-threads 1 --train-iters {steps}
        --log-interval 100 --save-interval 100000000 --save {folder} --data-path {tokens} --vocab-file {ROOT}/tests/data/gpt2-tiny/vocab.json
        --merge-file {ROOT}/tests/data/gpt2-tiny/merges.txt --tokenizer-type GPT2BPETokenizer""".split()


class Viewer(threading.Thread):
    """Asks what page.js asks, in its rhythm."""

    def __init__(self, url, watched):
        super().__init__(daemon=True)
        self.url, self.watched, self.bytes = url, watched, 0

    def get(self, path, **values):
        query = "?" + urllib.parse.urlencode(values) if values else ""
        with urllib.request.urlopen(self.url + path + query, timeout=30) as reply:
            body = reply.read()
        self.bytes += len(body)
        return json.loads(body)

    def run(self):
        time.sleep(random.random())
        while True:
            self.watched.wait()
            run = self.get("api/run", id=self.get("api/runs")[0]["id"])
            bins = self.get("api/bins", id=run["id"], **{"from": run["first_step"], "to": run["last_step"], "bins": 1000})
            place = {"since": bins["records"], "generation": bins["generation"]}
            second = 0
            while self.watched.is_set():
                time.sleep(1)
                second += 1
                reply = self.get("api/new", id=run["id"], **place)
                if reply.get("anew"):
                    break
                place["since"] = reply["records"]
                if second % 10 == 0:
                    self.get("api/runs")
                    self.get("api/run", id=run["id"])


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Launched:
    def __init__(self, folder, steps, page="--page"):
        self.log = open(folder.parent / "launch.log", "w+")
        tokens = ROOT / "tests/data/owt-20_text_document"
        self.process = subprocess.Popen(words_of_run(folder, tokens, steps, page), stdout=self.log, stderr=self.log)

    def wait_for(self, pattern, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(pattern, pathlib.Path(self.log.name).read_text())
            if found:
                return found.group(1)
            time.sleep(0.1)
        sys.exit(f"page_cost: no '{pattern}' in the log:\n{pathlib.Path(self.log.name).read_text()[-2000:]}")

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def records_since(file, offset):
    with open(file) as opened:
        opened.seek(offset)
        text = opened.read()
    whole = text[: text.rfind("\n") + 1]
    return [json.loads(line) for line in whole.splitlines()], offset + len(whole.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000_000, help="the run is stopped when the blocks are over")
    parser.add_argument("--blocks", type=int, default=10, help="of each kind")
    parser.add_argument("--viewers", type=int, default=4)
    parser.add_argument("--block-seconds", type=float, default=9)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work) / "run"
        launched = Launched(folder, arguments.steps)
        try:
            url = launched.wait_for(r"(http://\S+/[0-9a-f]{32}/)", 60)
            launched.wait_for(r"(iteration +100/)", 120)
            watched, blocks, cpu, offset = threading.Event(), {True: [], False: []}, {True: 0.0, False: 0.0}, 0
            viewers = [Viewer(url, watched) for _ in range(arguments.viewers)]
            for viewer in viewers:
                viewer.start()
            for block in range(2 * arguments.blocks):
                seen = bool((block + block // 2) % 2)  # off on, on off: a drift of the machine meets both alike
                (watched.set if seen else watched.clear)()
                time.sleep(arguments.block_seconds / 9)
                _, offset = records_since(folder / "metrics.jsonl", offset)
                before = cpu_seconds(launched.process.pid)
                time.sleep(arguments.block_seconds * 8 / 9)
                cpu[seen] += cpu_seconds(launched.process.pid) - before
                records, offset = records_since(folder / "metrics.jsonl", offset)
                blocks[seen].append(statistics.median(it["step_seconds"] for it in records if "step_seconds" in it))
        finally:
            launched.stop()
        launched = Launched(pathlib.Path(work) / "without", arguments.steps, page="")
        try:
            launched.wait_for(r"(iteration +100/)", 120)
            before, start = cpu_seconds(launched.process.pid), time.monotonic()
            time.sleep(arguments.blocks * arguments.block_seconds / 2)
            without_page = (cpu_seconds(launched.process.pid) - before) / (time.monotonic() - start)
        finally:
            launched.stop()
    ratios = sorted(on / off for on, off in zip(blocks[True], blocks[False]))
    counted = arguments.blocks * arguments.block_seconds * 8 / 9
    without, watching = (1000 * statistics.median(blocks[it]) for it in (False, True))
    print(f"median step: {without:.3f} ms without viewers, {watching:.3f} ms with {arguments.viewers}")
    print(f"ratio: {watching / without:.4f}; of pairs of blocks {ratios[0]:.4f} to {ratios[-1]:.4f}, "
          f"median {statistics.median(ratios):.4f}")
    print(f"processor of the launcher: {100 * cpu[False] / counted:.2f} % of a core without viewers, "
          f"{100 * cpu[True] / counted:.2f} % with, {100 * without_page:.2f} % without a page; "
          f"{sum(it.bytes for it in viewers):,} bytes sent")
    cost = cpu[True] / counted - without_page
    print(f"the page with {arguments.viewers} viewers: {1e6 * cost * watching / 1000:.1f} us of processor time a step of "
          f"{watching:.1f} ms; with all {os.cpu_count()} cores busy a step takes at most {1 + cost / os.cpu_count():.5f} times as "
          f"long as without")


if __name__ == "__main__":
    main()
