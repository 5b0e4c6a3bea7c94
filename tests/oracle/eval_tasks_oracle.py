#!/usr/bin/env python3
"""`espalier eval` against lm_eval 0.3.0, whose task classes are those that scored BLOOM.

    tests/oracle/eval_tasks_oracle.py --check            runs them on the documents of tests/data/eval/bloom-tasks.json and
                                                         compares prompts, scores and aggregates with that file
    tests/oracle/eval_tasks_oracle.py --fresh SEED DIR   new random documents for all 28 tasks: every prompt, every metric
                                                         and every standard error against those of build/bin/espalier

lm_eval 0.3.0 is looked for in lm_eval-0.3.0 next to the interpreter's environment (tests/oracle/install puts it there);
what it imports and nothing here calls is replaced by empty modules, and scikit-learn's F1 by its definition.
"""
import argparse
import copy
import hashlib
import importlib.abc
import importlib.machinery
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
import types
from unittest import mock

ROOT = pathlib.Path(__file__).parent.parent.parent
GOLDEN = ROOT / "tests" / "data" / "eval" / "bloom-tasks.json"
STUBS = ("datasets", "sqlitedict", "sacrebleu", "sklearn", "openai", "pytablewriter", "zstandard", "jsonlines", "pycountry",
         "best_download", "torch", "transformers", "rouge_score", "bs4", "tqdm", "nltk", "accelerate", "requests")
TOLERANCE = 1e-12
NAMES = ("arc_challenge arc_easy boolq copa headqa hellaswag lambada logiqa mathqa mc_taco mrpc multirc openbookqa piqa prost "
         "pubmedqa qnli qqp race rte sciq sst triviaqa webqs wic winogrande wnli wsc").split()


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in STUBS:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        return module

    def exec_module(self, module):
        pass


def binary_f1(right, said):
    hits = sum(r == 1 and s == 1 for r, s in zip(right, said))
    either = sum(r == 1 for r in right) + sum(s == 1 for s in said)
    return 2 * hits / either if either else 0.0


class Harness:
    """lm_eval 0.3.0 with documents that are handed to it."""

    def __init__(self):
        sys.path.insert(0, str(pathlib.Path(sys.prefix) / "lm_eval-0.3.0"))
        sys.meta_path.insert(0, EmptyModules())
        import datasets
        import sklearn.metrics
        import torch
        import tqdm
        torch.nn.Module = type("Module", (), {})
        tqdm.tqdm = lambda items, **_: items
        datasets.__version__ = "2.0.0"
        datasets.GeneratorBasedBuilder = datasets.BuilderConfig = type("Base", (), {"__init__": lambda self, *_, **__: None})
        datasets.load_dataset = self.load
        sklearn.metrics.f1_score = binary_f1
        import lm_eval.evaluator
        import lm_eval.tasks
        self.evaluator, self.tasks = lm_eval.evaluator, lm_eval.tasks
        self.documents = []

    def load(self, *_, **__):
        splits = mock.MagicMock()
        splits.__getitem__.side_effect = lambda _: copy.deepcopy(self.documents)
        return splits

    def task(self, name, documents):
        self.documents = documents
        made = self.tasks.TASK_REGISTRY["lambada_openai" if name == "lambada" else name]()
        made.__class__.cache = {}
        return made

    def documents_of(self, task):
        return list(task.test_docs() if task.has_test_docs() else task.validation_docs())


class Model:
    """Log-likelihoods out of a hash, in steps that make ties common."""

    def loglikelihood(self, pairs):
        return [answer(*pair) for pair in pairs]


def answer(context, continuation):
    digest = hashlib.sha256(f"{context}\0{continuation}".encode()).digest()
    return -(digest[0] % 9 + 1) / 4, digest[1] % 3 == 0


WORDS = """the a river froze Tom didn't did n't ( yes ) " quoted " it 's , and . then ' why ? caf\u00e9 \u4f60\u597d \u00c9T\u00c9 STOP [step]
[title] [header] b c _under 10.5 ! : ; * \U0001f600 na\u00efve -- of in him He she""".split()


def text(rng, least=1, most=12):
    return "".join(rng.choice(WORDS) + rng.choice([" "] * 8 + ["  ", "\n", ""]) for _ in range(rng.randint(least, most))) or "x"


def plain(rng, count):
    return " ".join(rng.choice(["one", "two", "THREE", "caf\u00e9", "d.", "e's"]) + str(rng.randint(0, 99)) for _ in range(count))


def choices(rng, count):
    return [text(rng, 1, 4) for _ in range(count)]


def random_arc(rng):
    count = rng.randint(3, 5)
    return {"id": "x", "question": text(rng), "choices": {"text": choices(rng, count), "label": list("ABCDE"[:count])},
            "answerKey": rng.choice("ABCDE"[:count] if rng.random() < 0.7 else "12345"[:count])}


def random_pair(rng):
    return {"sentence1": text(rng), "sentence2": text(rng), "label": rng.randint(0, 1)}


def random_wic(rng):
    sentence = text(rng, 4, 9)
    start = rng.randint(0, len(sentence))
    return {**random_pair(rng), "sentence1": sentence, "start1": start, "end1": rng.randint(start, len(sentence) + 2)}


def random_wsc(rng):
    passage = text(rng, 5, 12)
    words = passage.split() or ["x"]
    place = rng.randrange(len(words))
    return {"text": passage, "span1_text": rng.choice(words), "span2_text": words[place], "span2_index": place, "label": rng.randint(0, 1)}


def random_mathqa(rng):
    parts = [f"{letter} ) {rng.choice(['20', '1,000 rs', 'rs . 7', 'none', '3 , 4'])}" for letter in "abcde"]
    return {"Problem": text(rng), "options": rng.choice([" , ", ", "]).join(parts), "correct": rng.choice("abcde")}


def random_lists(rng):
    answers = [rng.choice(["red", "red and white", "re", "White", "white", "\u00e9t\u00e9", "\U0001f600", "\uffee"]) for _ in range(rng.randint(1, 6))]
    return answers


MAKERS = {
    "arc_challenge": random_arc,
    "arc_easy": random_arc,
    "boolq": lambda rng: {"passage": text(rng), "question": text(rng), "label": rng.randint(0, 1)},
    "copa": lambda rng: {"premise": rng.choice(["", " "]) + text(rng) + ".", "choice1": text(rng), "choice2": text(rng),
                         "question": rng.choice(["cause", "effect"]), "label": rng.randint(0, 1)},
    "headqa": lambda rng: {"qid": "1", "qtext": text(rng), "ra": rng.randint(1, 4),
                           "answers": [{"aid": i + 1, "atext": one} for i, one in enumerate(choices(rng, 4))]},
    "hellaswag": lambda rng: {"activity_label": text(rng, 1, 3), "ctx_a": text(rng), "ctx_b": text(rng), "endings": choices(rng, 4),
                              "label": str(rng.randint(0, 3))},
    "lambada": lambda rng: {"text": text(rng) + " " + rng.choice(WORDS)},
    "logiqa": lambda rng: {"context": text(rng), "question": text(rng), "options": choices(rng, 4), "label": rng.choice("abcd")},
    "mathqa": random_mathqa,
    "mc_taco": lambda rng: {"sentence": rng.choice(["s", "t u"]), "question": rng.choice(["q?", "r?", "v w?"]), "answer": text(rng),
                            "label": rng.randint(0, 1)},
    "mrpc": random_pair,
    "multirc": lambda rng: {"paragraph": text(rng), "question": text(rng), "answer": text(rng), "label": rng.randint(0, 1),
                            "idx": {"paragraph": rng.randint(0, 3), "question": rng.randint(0, 5), "answer": 0}},
    "openbookqa": lambda rng: {"id": "7", "question_stem": text(rng), "choices": {"text": choices(rng, 4), "label": list("ABCD")},
                               "answerKey": rng.choice("ABCD") + rng.choice(["", " "])},
    "piqa": lambda rng: {"goal": text(rng), "sol1": text(rng), "sol2": text(rng), "label": rng.randint(0, 1)},
    "prost": lambda rng: {"context": text(rng), "ex_question": text(rng), **dict(zip("ABCD", choices(rng, 4))), "label": rng.randint(0, 3)},
    "pubmedqa": lambda rng: {"context": {"contexts": choices(rng, rng.randint(0, 3))}, "question": text(rng),
                             "final_decision": rng.choice(["yes", "no", "maybe"])},
    "qnli": lambda rng: {"question": text(rng), "sentence": text(rng), "label": rng.randint(0, 1)},
    "qqp": lambda rng: {"question1": text(rng), "question2": text(rng), "label": rng.randint(0, 1)},
    "race": lambda rng: {"article": rng.choice(["one", "two  x", "three", "four", "five"]), "answer": rng.choice("ABCD"),
                         "question": text(rng) + rng.choice(["", "  _  .", " _ ."]), "options": choices(rng, 4)},
    "rte": random_pair,
    "sciq": lambda rng: {"support": rng.choice(["", text(rng), " " + text(rng)]), "question": text(rng), "distractor1": text(rng),
                         "distractor2": text(rng), "distractor3": text(rng), "correct_answer": text(rng)},
    "sst": lambda rng: {"sentence": text(rng), "label": rng.randint(0, 1)},
    "triviaqa": lambda rng: {"question": text(rng), "answer": {"value": "x", "aliases": random_lists(rng)}},
    "webqs": lambda rng: {"question": text(rng), "answers": random_lists(rng)},
    "wic": random_wic,
    "winogrande": lambda rng: {"sentence": plain(rng, 3) + " _ " + text(rng), "option1": text(rng, 1, 2), "option2": text(rng, 1, 2),
                               "answer": rng.choice("12")},
    "wnli": random_pair,
    "wsc": random_wsc,
}


def espalier(*arguments):
    done = subprocess.run([ROOT / "build" / "bin" / "espalier", "eval", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"espalier eval {' '.join(map(str, arguments))}: {done.stderr}")


def asked_by(harness, name, documents):
    """(doc_id, index, context, continuation) of every request, in the harness's order."""
    task = harness.task(name, documents)
    documents = harness.documents_of(task)
    rnd = random.Random()
    rnd.seed(42)
    rnd.shuffle(documents)
    asked = []
    for number, document in enumerate(documents):
        context = task.fewshot_context(doc=document, num_fewshot=0, rnd=rnd, description="")
        pairs = [request.args for request in task.construct_requests(document, context)]
        # lambada asks one thing twice, for the two parts of the answer.
        asked += [(number, index, *pair) for index, pair in enumerate(pairs[:1] if name == "lambada" else pairs)]
    return asked


def close(a, b):
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= TOLERANCE * max(abs(a), abs(b))


def compare_results(theirs, ours):
    """What differs: tasks, metrics, standard errors."""
    found = []
    for name in theirs["results"]:
        mine, other = ours["results"][name], theirs["results"][name]
        if set(mine) != set(other):
            found.append(f"{name}: metrics {sorted(mine)}, theirs {sorted(other)}")
        found += [f"{name}: {key} {mine[key]}, theirs {other[key]}" for key in set(mine) & set(other) if not close(mine[key], other[key])]
    if ours["versions"] != theirs["versions"]:
        found.append("versions differ")
    return found


def fresh(seed):
    rng, harness = random.Random(seed), Harness()
    found, iters = [], rng.choice([2, 33, 2100])
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        made, tasks = {}, {}
        for name in NAMES:
            made[name] = [MAKERS[name](rng) for _ in range(rng.choice([2, 7, 33, 60]) if name != "multirc" else 40)]
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in made[name]))
        espalier("--tasks", "all", "--data", folder, "--write-requests", folder / "requests")
        ours = {}
        answers = []
        for line in (folder / "requests").read_text().split("\n")[:-1]:
            request = json.loads(line)
            ours.setdefault(request["task"], []).append(tuple(request[key] for key in ("doc_id", "index", "context", "continuation")))
            likelihood, greedy = answer(request["context"], request["continuation"])
            answers.append(json.dumps({**request, "log_likelihood": likelihood, "is_greedy": greedy}))
        rng.shuffle(answers)
        (folder / "answers").write_text("\n".join(answers))
        theirs = {"results": {}, "versions": {}}
        for name in NAMES:
            expected = asked_by(harness, name, made[name])
            if len(ours[name]) != len(expected):
                found.append(f"{name}: {len(ours[name])} requests, theirs {len(expected)}")
            found += [f"{name}: asks {mine}, theirs {other}" for mine, other in zip(ours[name], expected) if mine != other]
            result = harness.evaluator.evaluate(Model(), {name: harness.task(name, made[name])}, bootstrap_iters=iters)
            for part in theirs:
                theirs[part].update(result[part])
        espalier("--tasks", "all", "--data", folder, "--read-results", folder / "answers", "--results-path", folder / "results.json",
                 "--bootstrap-iters", iters)
        found += compare_results(theirs, json.loads((folder / "results.json").read_text()))
    return found


def check():
    golden, harness, found = json.loads(GOLDEN.read_text()), Harness(), []
    for case in golden["cases"]:
        task = harness.task(case["task"], [case["doc"]])
        if case["task"] == "race":
            document = case["doc"]
        else:
            (document,) = harness.documents_of(task)
        context = task.doc_to_text(document)
        requests = task.construct_requests(document, context)
        for request, expected in zip(requests, case["requests"]):
            if list(request.args) != expected["args"] or request.index != expected["index"]:
                found.append(f"{case['task']}: {request.args}")
        scores = json.loads(json.dumps(task.process_results(document, case["results_in"]), default=lambda value: value.item()))
        if context != case["context"] or task.doc_to_target(document) != case["target"] or scores != case["process_results"]:
            found.append(f"{case['task']}: {context} {scores}")
    aggregates = golden["aggregates"]
    from lm_eval import metrics
    from lm_eval.tasks import mc_taco
    items = [tuple(item) for item in aggregates["mc_taco_items_gold_pred_question"]]
    for key, value in {"em": mc_taco.exact_match(items), "f1": mc_taco.f1(items), "mean": metrics.mean(aggregates["mean_stderr_items"]),
                       "mean_stderr": metrics.mean_stderr(aggregates["mean_stderr_items"]),
                       "perplexity": metrics.perplexity(aggregates["perplexity_items"]),
                       "multirc_acc": metrics.acc_all(aggregates["multirc_items"]),
                       "multirc_stderr": metrics.acc_all_stderr(aggregates["multirc_items"])}.items():
        if value != aggregates[key]:
            found.append(f"{key}: {value}, committed {aggregates[key]}")
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    found = check() if arguments.check else fresh(int(arguments.fresh[0]))
    for line in found[:20]:
        print(line[:2000])
    print(f"{len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
