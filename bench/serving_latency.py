#!/usr/bin/env python3
"""How long clients wait for tokens while long prompts arrive: `espalier serve` and `transformers serve`, in alternating rounds.

    PYTHON bench/serving_latency.py [--rounds 3] [--streams 4] [--tokens 200] [--threads 2] [--pause 0.2] [--only espalier]

PYTHON has torch and `transformers[serving]`; its environment is no part of the project. A random GPT-2 124M in bf16 is
written as a Hugging Face folder and imported. Clients read streams of /v1/completions, greedy; meanwhile, one after another,
prompts of 2,000 tokens come of which one token is wanted. Printed are the seconds until a server is ready, and in ms the
time to the first token, of streams and of long prompts, and between tokens: median and 99th percentile over all rounds.
"""
import argparse
import http.client
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ESPALIER = ROOT / "build" / "bin" / "espalier"
PROMPT_TOKENS = 2000
READY_SECONDS = 120


def write_model(folder, vocabulary):
    import torch
    import transformers
    words = json.loads((vocabulary / "vocab.json").read_text())
    transformers.GPT2TokenizerFast.from_pretrained(str(vocabulary)).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=len(words), n_positions=4096, n_embd=768, n_layer=12, n_head=12)
    transformers.GPT2LMHeadModel(config).to(torch.bfloat16).save_pretrained(folder)


class Server:
    def __init__(self, command, port, log, threads):
        self.port, self.log = port, log
        start = time.monotonic()
        with open(log, "w") as output:
            self.process = subprocess.Popen([str(word) for word in command], stdout=output, stderr=output,
                                            env=os.environ | {"OMP_NUM_THREADS": str(threads)}, start_new_session=True)
        while not self.is_healthy():
            if self.process.poll() is not None or time.monotonic() - start > READY_SECONDS:
                sys.exit(f"serving_latency: not ready:\n{pathlib.Path(log).read_text()[-3000:]}")
            time.sleep(0.005)
        self.ready_seconds = time.monotonic() - start

    def is_healthy(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stream(self, model, prompt, tokens):
        """When each piece of text came, in seconds after the question was sent."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True})
        start = time.monotonic()
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            sys.exit(f"serving_latency: status {reply.status}: {reply.read()[:500]}")
        times = []
        for line in reply:
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:]).get("choices")
                if choices and choices[0].get("text"):
                    times.append(time.monotonic() - start)
        return times


def measure(server, model, arguments):
    streams, prompts, is_over = [], [], threading.Event()

    def read(number):
        streams.append(server.stream(model, f"Stream {number} says" + " the" * 32, arguments.tokens))

    def ask_long():
        for number in range(10**6):
            if is_over.wait(arguments.pause):
                return
            times = server.stream(model, f"{server.port} {number}" + " the" * (PROMPT_TOKENS - 8), 1)
            prompts.append(times[0])

    server.stream(model, "Warm" + " the" * 40, 4)
    readers = [threading.Thread(target=read, args=(number,)) for number in range(arguments.streams)]
    asker = threading.Thread(target=ask_long)
    for thread in [*readers, asker]:
        thread.start()
    for thread in readers:
        thread.join()
    is_over.set()
    asker.join()
    gaps = [later - earlier for times in streams for earlier, later in zip(times, times[1:])]
    return {"ready": [server.ready_seconds], "first": [times[0] for times in streams], "long_first": prompts, "gaps": gaps,
            "pieces": [len(times) for times in streams]}


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between an answer and the next long prompt")
    parser.add_argument("--only", choices=["espalier", "transformers"])
    parser.add_argument("--vocabulary", type=pathlib.Path, default=ROOT / "../shared/data/gpt2",
                        help="a folder of vocab.json and merges.txt")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder, run = f"{work}/gpt2", f"{work}/run"
        write_model(folder, arguments.vocabulary)
        subprocess.run([ESPALIER, "checkpoint", "import-hf", "--input", folder, "--save", run], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        commands = {"espalier": ([ESPALIER, "serve", "--load", run, "--port"], "run"),
                    "transformers": ([sys.executable, "-m", "transformers.cli.transformers", "serve", folder, "--device", "cpu",
                                      "--dtype", "bfloat16", "--log-level", "error", "--port"],
                                     folder)}
        found = {name: {} for name in commands if arguments.only in (None, name)}
        for number in range(arguments.rounds):
            for place, name in enumerate(found):
                command, model = commands[name]
                server = Server([*command, 18300 + 2 * number + place], 18300 + 2 * number + place, f"{work}/log",
                                arguments.threads)
                try:
                    for key, values in measure(server, model, arguments).items():
                        found[name].setdefault(key, []).extend(values)
                finally:
                    server.stop()
    for name, values in found.items():
        gaps = values["gaps"]
        middle, high = 1e3 * statistics.median(gaps), 1e3 * percentile(gaps, 0.99)
        print(f"{name}: ready in {statistics.median(values['ready']):.2f} s; first token of a stream "
              f"{1e3 * statistics.median(values['first']):.0f} ms, of {len(values['long_first'])} prompts of {PROMPT_TOKENS} "
              f"{1e3 * statistics.median(values['long_first']):.0f} ms (99 %: {1e3 * percentile(values['long_first'], 0.99):.0f}); "
              f"between tokens {middle:.1f} ms, 99 % {high:.1f} ({high / middle:.1f} times), of {len(gaps)}; "
              f"{min(values['pieces'])} to {max(values['pieces'])} pieces of {arguments.tokens} tokens")


main()
