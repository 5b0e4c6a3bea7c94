#!/usr/bin/env python3
"""A thousand clients at once against `espalier serve`: how long /health takes meanwhile, and whether memory stays flat.

    bench/serving_load.py URL [--pid PID] [--connections 1000] [--rounds 3] [--tokens 16]

Every connection stays open and asks for a text in each round, half of them as a stream; a tenth leaves in the middle and
comes again. Standard library only. Prints one JSON object; exit code 1 if an answer is wrong, if the 99th percentile of
/health is over 50 ms, or if memory grows by more than 10% after the first round.
"""
import argparse
import asyncio
import json
import sys
import time


def request(host, method, path, body=""):
    return (f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


async def read_reply(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    status = int(head.split()[1])
    if "transfer-encoding: chunked" in head:
        body = b""
        while True:
            size = int(await reader.readline(), 16)
            body += (await reader.readexactly(size + 2))[:-2]
            if size == 0:
                return status, body.decode()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return status, (await reader.readexactly(length)).decode()


class Load:
    def __init__(self, arguments):
        self.arguments = arguments
        host, self.port = arguments.url.removeprefix("http://").rstrip("/").rsplit(":", 1)
        self.host, self.health, self.wrong, self.memory = host, [], [], []
        self.refused = 0
        self.seconds, self.is_over = [], False

    async def client(self, number, gate):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        await gate.wait()
        for turn in range(self.arguments.rounds):
            stream = number % 2 == 0
            body = json.dumps({"prompt": f"Client {number} says", "max_tokens": self.arguments.tokens, "seed": number,
                               "ignore_eos": True, "stream": stream})
            start = time.monotonic()
            writer.write(request(self.host, "POST", "/v1/completions", body))
            if number % 10 == 3:
                await asyncio.sleep(0.05)
                writer.close()
                reader, writer = await asyncio.open_connection(self.host, self.port)
                continue
            status, text = await read_reply(reader)
            self.seconds.append(time.monotonic() - start)
            if status == 429:  # that many which left were not noticed yet
                self.refused += 1
            elif status != 200 or ("[DONE]" if stream else '"finish_reason":"length"') not in text:
                self.wrong.append(f"{status} {text[:200]}")
        writer.close()

    async def watch(self):
        reader, writer = await asyncio.open_connection(self.host, self.port)
        while not self.is_over:
            start = time.monotonic()
            writer.write(request(self.host, "GET", "/health"))
            await read_reply(reader)
            self.health.append(time.monotonic() - start)
            await asyncio.sleep(0.005)
        writer.close()

    def resident(self):
        if not self.arguments.pid:
            return 0
        with open(f"/proc/{self.arguments.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    async def run(self):
        watch = asyncio.create_task(self.watch())
        for _ in range(3):
            gate = asyncio.Event()
            clients = [asyncio.create_task(self.client(n, gate)) for n in range(self.arguments.connections)]
            await asyncio.sleep(2)
            gate.set()
            await asyncio.gather(*clients)
            self.memory.append(self.resident())
        self.is_over = True
        await watch


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16)
    load = Load(parser.parse_args())
    asyncio.run(load.run())
    report = {"answers": len(load.seconds), "refused": load.refused, "wrong": len(load.wrong), "first_wrong": load.wrong[:1],
              "answer_seconds_p50": round(percentile(load.seconds, 0.5), 3),
              "answer_seconds_max": round(max(load.seconds), 3), "health_requests": len(load.health),
              "health_ms_p50": round(1e3 * percentile(load.health, 0.5), 2),
              "health_ms_p99": round(1e3 * percentile(load.health, 0.99), 2),
              "resident_mib": [size >> 20 for size in load.memory]}
    print(json.dumps(report))
    grows = load.memory[-1] > 1.1 * load.memory[0]
    sys.exit(1 if load.wrong or report["health_ms_p99"] > 50 or grows else 0)


if __name__ == "__main__":
    main()
