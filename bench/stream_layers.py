#!/usr/bin/env python3
"""`espalier generate --stream-layers`: how fast a pass reads the layers, compared with the disk; the most memory that it takes;
and whether it gives the same bits as the model in memory.

    bench/stream_layers.py RUN [--memory-mib 500] [--tokens 6] [--rounds 3]

RUN is a run of a model that continues text. Before each measurement the cache's pages of its files are given up
(posix_fadvise). The disk's rate is that of reading the same files from the beginning to the end without the cache (O_DIRECT,
16 MiB at a time), as often as there are passes: a device may be faster for a while. With --memory-mib the program runs in a control group (cgroup v1 `memory`, as root) of so much memory, its
part of the cache included: less than the model has, so that no pass finds what the one before it read.
"""
import argparse
import glob
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
PROGRAM = str(ROOT / "build/bin/espalier")
GROUP = pathlib.Path("/sys/fs/cgroup/memory/espalier-stream-layers")
PIECE = 16 << 20


def weight_files(run):
    steps = sorted(glob.glob(f"{run}/step_*")) or [run]
    return sorted(glob.glob(f"{steps[-1]}/weights-*.safetensors"))


def give_up_cache(files):
    for name in files:
        handle = os.open(name, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def disk_rate(files, times):
    buffer, total, begin = mmap.mmap(-1, PIECE), 0, time.perf_counter()
    for name in files * times:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECT)
        while count := os.readv(handle, [buffer]):
            total += count
        os.close(handle)
    return total / (time.perf_counter() - begin)


def generate(run, tokens, streamed, memory_mib):
    """The answer, the seconds that its tokens took, and the largest resident memory in MiB."""
    command = [PROGRAM, "generate", "--load", run, "--prompt", "The president of", "--greedy", "--no-stop-at-eod", "--json",
               "--tokens-to-generate", str(tokens)]

    def enter():
        if memory_mib:
            (GROUP / "cgroup.procs").write_text(str(os.getpid()))

    begin = time.perf_counter()
    process = subprocess.Popen(command + ["--stream-layers"] * streamed, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, preexec_fn=enter)
    peak = 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        peak = max([peak, *(int(size) for size in re.findall(r"VmHWM:\s+(\d+)", status))])
        time.sleep(0.02)
    seconds = time.perf_counter() - begin
    output, errors = process.communicate()
    return json.loads(output) if process.returncode == 0 else None, seconds, peak / 1024, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--memory-mib", type=int)
    parser.add_argument("--tokens", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    files = weight_files(arguments.run)
    size = sum(os.path.getsize(name) for name in files)
    print(f"weights: {size / 2**20:.0f} MiB in {len(files)} files")
    expected = generate(arguments.run, arguments.tokens, False, None)[0]
    if arguments.memory_mib:
        GROUP.mkdir(exist_ok=True)
        (GROUP / "memory.limit_in_bytes").write_text(str(arguments.memory_mib << 20))
        failed = generate(arguments.run, arguments.tokens, False, arguments.memory_mib)[0] is None
        print(f"in {arguments.memory_mib} MiB without the option: {'it is killed' if failed else 'it fits'}")
    same = True
    for _ in range(arguments.rounds):
        give_up_cache(files)
        disk = disk_rate(files, arguments.tokens)
        give_up_cache(files)
        made, seconds, peak, errors = generate(arguments.run, arguments.tokens, True, arguments.memory_mib)
        if made is None:
            sys.exit(errors)
        # The first pass is of the prompt; starting the program counts too.
        rate = arguments.tokens * size / seconds
        same = same and made == expected
        print(f"disk {disk / 1e9:.2f} GB/s; {arguments.tokens} passes in {seconds:.1f} s: {rate / 1e9:.2f} GB/s, "
              f"{rate / disk:.2f} of the disk; at most {peak:.0f} MiB resident; {errors.strip().splitlines()[-1]}")
    if arguments.memory_mib:
        GROUP.rmdir()
    print("the same bits as in memory" if same else "OTHER BITS than in memory")
    sys.exit(not same)


if __name__ == "__main__":
    main()
