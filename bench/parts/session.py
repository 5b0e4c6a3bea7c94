"""What every part of the benchmark shares: its arguments, how much time is left, and processes that are never waited for longer
than that."""
import json
import os
import pathlib
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
PEER_STEP_SECONDS = 120  # a peer that takes longer for a step is not waited for
QUICK_PEER_STEP_SECONDS = 20
START_SECONDS = 180  # of a peer, until its model is there, and again until it has compiled it
ROUNDS = 5


class OutOfTime(Exception):
    """The time of --quick or --minutes is over: what is measured so far counts."""


class Process:
    """A process that is read line by line, with the second of each line since its start; its peak memory at the end."""

    def __init__(self, command, deadline=None, folder=ROOT, errors_too=False, **environment):
        self.command, self.deadline = [str(word) for word in command], deadline
        self.errors = tempfile.TemporaryFile("w+")
        self.started, self.pending, self.peak_mib, self.code = time.monotonic(), b"", None, None
        # A group of its own, so that the ranks of a launcher end with it.
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder,
                                        stderr=subprocess.STDOUT if errors_too else self.errors, start_new_session=True,
                                        env=os.environ | environment)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def send(self, text):
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def line(self, limit=None):
        """(seconds, the next line), None at the end. TimeoutError after `limit` seconds without one."""
        while b"\n" not in self.pending:
            wait = [limit] if limit else []
            wait += [self.deadline - time.monotonic()] if self.deadline else []
            if not self.selector.select(max(0, min(wait)) if wait else None):
                self.kill()
                if limit and min(wait) == limit:
                    raise TimeoutError
                raise OutOfTime
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                last, self.pending = self.pending, b""
                return (self.seconds(), last.decode(errors="replace")) if last else None
            self.pending += read
        line, self.pending = self.pending.split(b"\n", 1)
        return self.seconds(), line.decode(errors="replace")

    def seconds(self):
        return time.monotonic() - self.started

    def kill(self):
        if self.code is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.end()

    def end(self):
        """Waits for it; the exit code."""
        if self.code is None:
            _, status, usage = os.wait4(self.process.pid, 0)
            self.process.returncode = self.code = os.waitstatus_to_exitcode(status)
            self.peak_mib = usage.ru_maxrss / 1024
            self.cpu_seconds = usage.ru_utime + usage.ru_stime
            self.selector.close()
            self.process.stdin.close(), self.process.stdout.close()
        return self.code

    def check(self, output=""):
        if self.end():
            self.errors.seek(0)
            text = self.errors.read() or output
            sys.exit(f"scripts/bench: exit code {self.code} from {' '.join(self.command)}\n{text[-3000:]}")


class Finished:
    """What a process was that ran to its end."""

    def __init__(self, process, lines):
        self.lines, self.seconds, self.peak_mib = lines, process.seconds(), process.peak_mib
        self.cpu_seconds, self.output = process.cpu_seconds, "\n".join(text for _, text in lines)


class Session:
    def __init__(self, arguments):
        self.arguments, self.deadline = arguments, None
        self.quick, self.threads, self.shapes = arguments.quick, arguments.threads, arguments.shapes
        self.rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
        self.peer_step_seconds = QUICK_PEER_STEP_SECONDS if arguments.quick else PEER_STEP_SECONDS
        self.work = None  # a folder for what parts write

    def say(self, text):
        print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)

    def start(self, command, **more):
        return Process(command, self.deadline, **more)

    def run(self, command, limit=None, **more):
        """Runs it to its end. `limit`: seconds without a line of output after which it is killed, with TimeoutError."""
        process, lines = self.start(command, **more), []
        try:
            process.process.stdin.close()
            while line := process.line(limit):
                lines.append(line)
            process.check("\n".join(text for _, text in lines))
        finally:
            process.kill()
        return Finished(process, lines)

    def run_json(self, command, **more):
        return json.loads(self.run(command, **more).output)

    def wanted(self, precision, length=None):
        arguments = self.arguments
        return precision in arguments.precisions and (not length or not arguments.lengths or length in arguments.lengths)


def alternate(session, what, ways, results=None, rounds=None):
    """Rounds in which each of `ways`, {name: function}, is called once, every second round in the opposite order: a drift of the
    machine meets all alike. {name: its results}, which `results` holds even if the time ends before the last round. A function that
    gives None is not called again, and None are its results."""
    rounds, results = rounds or session.rounds, {} if results is None else results
    results |= {name: [] for name in ways}
    for number in range(rounds):
        for name in reversed(ways) if number % 2 else ways:
            if results[name] is None:
                continue
            session.say(f"{what}, round {number + 1} of {rounds}, {name}")
            if (result := ways[name]()) is None:
                session.say(f"{name} takes more than {session.peer_step_seconds} s for a step: not waited for")
                results[name] = None
            else:
                results[name].append(result)
    return results


def median(values):
    return float(statistics.median(values))


def spread(values):
    """The largest over the smallest, less one."""
    return max(values) / min(values) - 1 if min(values) > 0 else 0.0
