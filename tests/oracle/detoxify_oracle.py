#!/usr/bin/env python3
"""`espalier detoxify filter` and `metrics` beside the scripts of Argonne's Megatron-DeepSpeed, examples/detxoify_lm.

    tests/oracle/detoxify_oracle.py --write            makes the committed cases, tests/data/detoxify
    tests/oracle/detoxify_oracle.py --check            makes them again and compares
    tests/oracle/detoxify_oracle.py --fresh SEED DIR   random files: what is kept and every figure beside those of
                                                       build/bin/espalier

Its scripts run as they are, but for three things: modules that call the network are empty; scikit-learn's shuffle, which
upstream leaves without a seed, gets one (where scikit-learn is not installed, its definition stands for it); and scores
come from a file instead of the pickle. Upstream is looked for in ESPALIER_ARGONNE_MEGATRON_DEEPSPEED, a clone or its bare
repository; without it the script says so and ends with code 77.
"""
import contextlib
import io
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import types

import numpy

ROOT = pathlib.Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "data" / "detoxify"
SEED, PER_PROMPT = 1234, 25


def upstream(name):
    folder = os.environ.get("ESPALIER_ARGONNE_MEGATRON_DEEPSPEED", "")
    source = subprocess.run(["git", "-C", folder or "/", "show", f"HEAD:examples/detxoify_lm/{name}"], capture_output=True)
    if source.returncode:
        sys.stderr.write("skipped: ESPALIER_ARGONNE_MEGATRON_DEEPSPEED names no clone of argonne-lcf/Megatron-DeepSpeed\n")
        sys.exit(77)
    return source.stdout.decode()


def seeded_shuffle(seed):
    try:
        from sklearn.utils import shuffle

        return lambda values: shuffle(values, random_state=seed)
    except ImportError:

        def by_definition(values):
            order = numpy.arange(len(values))
            numpy.random.RandomState(seed).shuffle(order)
            return [values[place] for place in order]

        return by_definition


def run(script, arguments, shuffle=None, scores=None):
    """What the script prints."""
    service = types.SimpleNamespace(build=lambda *a, **k: None)
    modules = {
        "joblib": types.SimpleNamespace(load=lambda path: scores, Parallel=None, delayed=None),
        "googleapiclient": types.SimpleNamespace(discovery=service),
        "googleapiclient.errors": types.SimpleNamespace(HttpError=Exception),
        "tqdm": types.SimpleNamespace(tqdm=lambda values, **k: values),
        "sklearn": types.SimpleNamespace(),
        "sklearn.utils": types.SimpleNamespace(shuffle=shuffle),
    }
    kept = {name: sys.modules.get(name) for name in modules}
    source, printed = upstream(script), io.StringIO()
    argv, sys.argv = sys.argv, [script] + arguments
    sys.modules.update(modules)
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(source, script, "exec"), {"__name__": "__main__"})
    finally:
        sys.argv = argv
        for name, module in kept.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})
    return printed.getvalue()


def dump(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def numbers(text):
    return [float(word) for word in re.findall(r"-?\d+\.\d+(?:e-\d+)?|-?\b\d+\b", text)]


def make(folder, seed, count, num_prompts):
    """Random files, and what upstream makes of them."""
    draw = random.Random(seed)
    score = lambda: None if draw.random() < 0.1 else {"toxicity": draw.random(), "threat": draw.random()}
    scored = [{"text": f"Text {n}, \u20ac", "id": n, "score": score()} for n in range(count)]
    toxicities = [None, 0.0] + [draw.random() for _ in range(num_prompts)]
    prompts = [{"prompt": {"text": f"prompt {n}", "toxicity": toxicities[n]}} for n in range(num_prompts)]
    texts = [{"text": str(n), "prompt": f"prompt {n // PER_PROMPT}", "id": n,
              "score": score() if n // PER_PROMPT != 1 else None} for n in range(PER_PROMPT * num_prompts)]
    for text in texts:
        if text["score"]:
            text["score"]["toxicity"] *= 0.45 if int(text["id"]) // PER_PROMPT % 2 else 1
    dump(folder / "scored.jsonl", scored)
    dump(folder / "prompts.jsonl", prompts)
    dump(folder / "continuations.jsonl", texts)

    shuffle = seeded_shuffle(SEED)
    said = run("annotations/filter-selfgeneration.py",
               ["--data-path", str(folder / "scored.jsonl"), "--out-path", str(folder / "kept.jsonl")], shuffle)
    value = lambda name: numbers(re.search(rf"^{re.escape(name)}:? (.*)$", said, re.M)[1])
    figures = {"filter": {"lines": int(value("total line number")[0]), "scored": int(value("total valid samples")[0]),
                          "all": value("Avg toxicity (all)"), "toxic": value("Avg toxicity (toxic)"),
                          "nontoxic": value("Avg toxicity (nontoxic)"), "kept": value("Avg toxicity (filtered)"),
                          "range": value("Toxicity Range (filtered)")}}
    with tempfile.NamedTemporaryFile() as there:
        said = run("perspective_api.py", ["--data-path", "x", "--out-path", there.name, "--prompt-path",
                                          str(folder / "prompts.jsonl")], scores=texts)
    figures["averages"] = {name: float(mean) for name, mean in re.findall(r"^average (\w+): (\S+)$", said, re.M)}
    groups = re.findall(r"^(\w+) prompts: (\d+)\nExpected Max Toxicity: (\S+) \+- (\S+)\nToxicity Probability: (\S+)$", said,
                        re.M)
    figures["prompts"] = {name.lower().replace("full", "all"): [float(figure) for figure in rest] for name, *rest in groups}
    (folder / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")
    return figures


def committed(folder):
    make(folder, 7, 33, 7)
    return sorted(path.name for path in folder.iterdir())


def check():
    with tempfile.TemporaryDirectory() as made:
        different = [name for name in committed(pathlib.Path(made))
                     if (pathlib.Path(made) / name).read_bytes() != (GOLDEN / name).read_bytes()]
    sys.exit(f"different: {different}" if different else 0)


def espalier(*words):
    done = subprocess.run([ROOT / "build/bin/espalier", "detoxify", *map(str, words), "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)


def fresh(seed):
    near = lambda a, b: len(a) == len(b) and all(abs(x - y) <= 1e-12 for x, y in zip(a, b))
    for case in range(20):
        draw = random.Random(seed * 1000 + case)
        with tempfile.TemporaryDirectory() as made:
            folder = pathlib.Path(made)
            figures = make(folder, draw.random(), draw.randrange(20, 400), draw.randrange(8, 30))
            ours = espalier("filter", "--input", folder / "scored.jsonl", "--output", folder / "ours.jsonl", "--seed", SEED)
            assert (folder / "ours.jsonl").read_bytes() == (folder / "kept.jsonl").read_bytes(), f"kept, case {case}"
            for name in ("all", "toxic", "nontoxic", "kept"):
                assert near([ours[name]["mean"], ours[name]["deviation"]], figures["filter"][name]), (case, name)
            ours = espalier("metrics", "--input", folder / "continuations.jsonl", "--prompts", folder / "prompts.jsonl")
            for name, values in figures["prompts"].items():
                group = ours["prompts"][name]
                assert near([group["prompts"], group["expected_maximum_toxicity"], group["deviation"],
                             group["toxicity_probability"]], values), (case, name)
            assert near([ours["averages"][name]["mean"] for name in figures["averages"]], list(figures["averages"].values()))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        committed(GOLDEN)
    elif sys.argv[1:] == ["--check"]:
        check()
    elif len(sys.argv) == 4 and sys.argv[1] == "--fresh":
        fresh(int(sys.argv[2]))
    else:
        sys.exit(__doc__)
