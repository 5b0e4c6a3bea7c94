#!/usr/bin/env python3
"""Parquet files that pyarrow wrote, with their rows as JSON: what src/data/parquet.h is held against.

    pip install pyarrow==26.0.1
    tests/oracle/parquet_oracle.py                     writes tests/data/parquet again
    tests/oracle/parquet_oracle.py --check             reads the committed files with pyarrow and compares the rows
    tests/oracle/parquet_oracle.py --fresh SEED DIR    makes files of random rows, reads them with `espalier curate step
                                                       length`, writes them as Parquet with it, and compares both with
                                                       pyarrow's rows; needs build/bin/libespalier_parquet.so

A row's values are Python's, as `to_pylist` gives them; dates, times and decimal numbers as text.
"""

import datetime
import decimal
import json
import math
import pathlib
import random
import subprocess
import sys

import pyarrow
import pyarrow.parquet

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data/parquet"
COMPRESSIONS = ["none", "snappy", "gzip", "zstd"]


def plain(value):
    """As JSON has it."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):  # a map
            return {key: plain(inner) for key, inner in value}
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, (datetime.date, decimal.Decimal)):
        return str(value)
    return value


def rows_of(file):
    return [{key: plain(value) for key, value in row.items()} for row in pyarrow.parquet.read_table(file).to_pylist()]


def table(rng, count):
    text = [rng.choice(["Grüße", "a\"b\\c", "line\nbreak\ttab", "東京", "", "\x01", "x" * 40]) + str(n) for n in range(count)]
    maybe = lambda values: [value if rng.random() < 0.8 else None for value in values]
    numbers = [rng.randrange(-(2**62), 2**62) for _ in range(count)]
    return pyarrow.table(
        {
            "id": pyarrow.array(numbers, pyarrow.int64()),
            "text": pyarrow.array(maybe(text), pyarrow.string()),
            "large": pyarrow.array(maybe(text), pyarrow.large_string()),
            "bytes": pyarrow.array([t.encode() for t in text], pyarrow.binary()),
            "word": pyarrow.array(maybe([rng.choice("abc") for _ in text])).dictionary_encode(),
            "score": pyarrow.array([rng.choice([0.1, -3.0, 1e300, math.nan, math.inf]) for _ in text], pyarrow.float64()),
            "half": pyarrow.array([rng.choice([0.5, 0.1, 3.0]) for _ in text], pyarrow.float32()),
            "small": pyarrow.array(maybe([rng.randrange(256) for _ in text]), pyarrow.uint8()),
            "yes": pyarrow.array(maybe([rng.random() < 0.5 for _ in text])),
            "nothing": pyarrow.nulls(count),
            "tags": pyarrow.array(maybe([[rng.choice(["p", None, "q"]) for _ in range(rng.randrange(3))] for _ in text]),
                                  pyarrow.list_(pyarrow.string())),
            "meta": pyarrow.array(
                maybe([{"url": "http://" + t[:3].strip(), "deep": {"n": [1, None, len(t)]}} for t in text]),
                pyarrow.struct([("url", pyarrow.string()), ("deep", pyarrow.struct([("n", pyarrow.list_(pyarrow.int32()))]))])),
            "map": pyarrow.array([[("k", 1), ("l", None)]] * count, pyarrow.map_(pyarrow.string(), pyarrow.int64())),
            "day": pyarrow.array([datetime.date(2026, 2, 1 + n % 28) for n in range(count)], pyarrow.date32()),
            "at": pyarrow.array([datetime.datetime(2026, 2, 1, 3, n % 60, 7, 250000) for n in range(count)], pyarrow.timestamp("ms")),
            "price": pyarrow.array([decimal.Decimal(n) / 100 + decimal.Decimal("1.25") for n in range(count)],
                                   pyarrow.decimal128(9, 2)),
        }
    )


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for compression in COMPRESSIONS:
        file = folder / f"{compression}.parquet"
        pyarrow.parquet.write_table(table(random.Random(compression), 7), file, row_group_size=3, compression=compression)
        (folder / f"{compression}.jsonl").write_text(
            "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows_of(file)))


def same(a, b):
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and abs(a - b) <= 1e-7 * abs(b)  # float32's shortest digits
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def check():
    for compression in COMPRESSIONS:
        committed = [json.loads(line) for line in open(DATA / f"{compression}.jsonl", encoding="utf-8")]
        if not same(rows_of(DATA / f"{compression}.parquet"), committed):
            sys.exit(f"{compression}: other rows than those committed")


def fresh(seed, folder):
    program = ROOT / "build/bin/espalier"
    if not (ROOT / "build/bin/libespalier_parquet.so").exists():
        print("build/bin/libespalier_parquet.so is not built: scripts/setup --parquet", file=sys.stderr)
        sys.exit(77)
    for n, compression in enumerate(COMPRESSIONS):
        source = folder / f"fresh-{compression}.parquet"
        rows = table(random.Random(seed * 4 + n), 2000)
        pyarrow.parquet.write_table(rows, source, row_group_size=600, compression=compression)
        for target in (folder / "fresh.jsonl", folder / "fresh.parquet"):
            subprocess.run([program, "curate", "step", "length", "--least", "0", "--input", source, "--output", target,
                            "--overwrite"], check=True, capture_output=True)
        # A row whose text is null is no document.
        expected = [row for row in rows_of(source) if row["text"] is not None]
        lines = [json.loads(line) for line in open(folder / "fresh.jsonl", encoding="utf-8")]
        written = rows_of(folder / "fresh.parquet")
        for what, found in (("JSONL", lines), ("Parquet", written)):
            if not same(found, expected):
                place = next((n for n, (a, b) in enumerate(zip(found, expected)) if not same(a, b)), len(expected))
                sys.exit(f"{source} as {what}: {len(found)} rows for {len(expected)}; row {place}:\n{found[place]}\n"
                         f"{expected[place]}")


def main():
    if sys.argv[1:2] == ["--check"]:
        check()
    elif sys.argv[1:2] == ["--fresh"]:
        fresh(int(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        write(DATA)


if __name__ == "__main__":
    main()
