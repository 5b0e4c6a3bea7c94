#!/usr/bin/env python3
"""`espalier eval` on the stock task files of lm_eval 0.4 against lm_eval itself with its hf model on the export of the same
run, over the same random documents: prompts, log-likelihoods, greedy flags, values and standard errors.

    tests/oracle/lm_eval_oracle.py --check            with fixed seeds
    tests/oracle/lm_eval_oracle.py --fresh SEED DIR   with others

Needs the environment of tests/oracle/requirements.txt with requirements-lm-eval-04.txt in lm_eval-0.4 next to it, and
build/bin/espalier. Log-likelihoods within 1e-3, greedy flags equal; values equal, perplexities within 1e-3 of themselves.
"""
import argparse
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import tempfile

HARNESS = pathlib.Path(sys.prefix) / "lm_eval-0.4"
ROOT = pathlib.Path(__file__).parent.parent.parent
ESPALIER = str(ROOT / "build/bin/espalier")
TEXT = ROOT / "tests/data/owt-20.jsonl"
TINY = ROOT / "tests/data/gpt2-tiny"
TOKENIZER = ["--vocab-file", str(TINY / "vocab.json"), "--merge-file", str(TINY / "merges.txt")]
SHAPE = ["--num-layers", "2", "--hidden-size", "48", "--num-attention-heads", "4", "--seq-length", "128",
         "--max-position-embeddings", "128", "--micro-batch-size", "4", "--global-batch-size", "8", "--lr", "5e-3",
         "--lr-decay-style", "constant", "--split", "100,0,0", "--eval-iters", "0", "--num-threads", "1",
         "--train-iters", "20", "--save-interval", "20", "--data-path", "owt_text_document"]
EXAMPLES = {"arc_easy", "boolq", "sciq", "hellaswag", "winogrande", "mrpc", "copa"}  # tasks that are also asked with two


def run(arguments, folder):
    result = subprocess.run([ESPALIER, *arguments], cwd=folder, capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"espalier {' '.join(arguments)}: {result.returncode}\n{result.stderr}")
    return result.stdout


class Words:
    def __init__(self, rng):
        self.rng = rng
        self.words = " ".join(json.loads(line)["text"] for line in open(TEXT, encoding="utf-8")).split()

    def some(self, least, most):
        start = self.rng.randrange(len(self.words) - most)
        return " ".join(self.words[start:start + self.rng.randint(least, most)])

    def list(self, count, least=1, most=4):
        return [self.some(least, most) for _ in range(count)]


def document_makers(w):
    def choices(labels):
        return {"text": w.list(len(labels)), "label": list(labels)}

    def arc():
        labels = w.rng.choice(["ABCD", "ABC", "12345"])
        return {"question": w.some(3, 30), "choices": choices(labels), "answerKey": w.rng.choice(labels)}

    def label(count=2):
        return w.rng.randrange(count)

    def winogrande():
        return {"sentence": w.some(2, 9).replace("_", "") + " _ " + w.some(2, 9), "option1": w.some(1, 2),
                "option2": w.some(1, 2), "answer": w.rng.choice("12")}

    def race():
        problems = [{"question": w.some(3, 8) + w.rng.choice(["", "  _  ."]), "answer": w.rng.choice("ABCD"),
                     "options": w.list(4)} for _ in range(w.rng.randint(1, 3))]
        return {"article": w.some(5, 30), "problems": repr(problems)}

    def wsc():
        text = w.some(6, 20)
        index = w.rng.randrange(len(text.split()))
        return {"text": text, "span1_text": w.some(1, 2), "span2_text": text.split()[index], "span2_index": index,
                "label": label()}

    def wic():
        return {"sentence1": w.some(4, 12), "sentence2": w.some(4, 12), "start1": 2, "end1": w.rng.randint(3, 9),
                "label": label()}

    return {
        "arc_easy": arc,
        "boolq": lambda: {"passage": w.some(5, 150), "question": w.some(3, 9), "label": label()},
        "copa": lambda: {"premise": w.some(3, 9) + ". ", "choice1": "The " + w.some(2, 6), "choice2": "A " + w.some(2, 6),
                         "question": w.rng.choice(["cause", "effect"]), "label": label()},
        "headqa_en": lambda: {"qtext": w.some(4, 20), "ra": w.rng.randint(1, 4),
                              "answers": [{"aid": i + 1, "atext": text} for i, text in enumerate(w.list(4))]},
        "hellaswag": lambda: {"activity_label": w.some(1, 3), "ctx_a": w.some(3, 9), "ctx_b": w.some(2, 5),
                              "endings": ["[header] " + text + " [title] x" for text in w.list(4, 2, 7)],
                              "label": str(label(4))},
        "lambada_openai": lambda: {"text": w.some(5, 60)},
        "logiqa": lambda: {"context": w.some(5, 20), "question": w.some(3, 9), "options": w.list(4),
                           "label": w.rng.choice("abcd") + "\n"},
        "mathqa": lambda: {"Problem": w.some(4, 20), "correct": w.rng.choice("abcde"),
                           "options": "a ) 38 , b ) 27.675 , c ) 30 , d ) data inadequate , e ) none of these"},
        "mrpc": lambda: {"sentence1": w.some(3, 20), "sentence2": w.some(3, 20), "label": label()},
        "multirc": lambda: {"paragraph": w.some(5, 30), "question": w.some(3, 9), "answer": w.some(1, 4).replace("'", ""),
                            "label": label()},
        "openbookqa": lambda: {"question_stem": w.some(4, 12), "choices": choices("ABCD"), "answerKey": w.rng.choice("ABCD")},
        "piqa": lambda: {"goal": w.some(3, 9), "sol1": w.some(3, 9), "sol2": w.some(3, 9), "label": label()},
        "cola": lambda: {"sentence": w.some(3, 12), "label": label()},
        "pubmedqa": lambda: {"CONTEXTS": w.list(3, 3, 9), "QUESTION": w.some(3, 9),
                             "final_decision": w.rng.choice(["yes", "no", "maybe"])},
        "race": race,
        "sciq": lambda: {"support": " " + w.some(3, 20), "question": w.some(3, 9), "distractor1": w.some(1, 3),
                         "distractor2": w.some(1, 3), "distractor3": w.some(1, 3), "correct_answer": w.some(1, 3)},
        "webqs": lambda: {"question": w.some(3, 9), "answers": w.list(w.rng.randint(1, 4), 1, 2)},
        "wic": wic,
        "wikitext": lambda: {"page": " = " + w.some(1, 3) + " = \n \n " + w.some(20, 300).replace(",", " ,") + " \n"},
        "winogrande": winogrande,
        "wsc": wsc,
    }


def write_documents(folder, rng):
    data = pathlib.Path(folder) / "data"
    data.mkdir()
    documents = {}
    for name, make in document_makers(Words(rng)).items():
        documents[name] = {"tested": [make() for _ in range(12)], "train": [make() for _ in range(7)]}
        for part, ending in (("tested", ".jsonl"), ("train", ".train.jsonl")):
            (data / (name + ending)).write_text("".join(json.dumps(one) + "\n" for one in documents[name][part]))
    return documents


def harness(folder, documents, names, shots):
    import datasets
    import lm_eval
    import lm_eval.tasks
    tasks = lm_eval.tasks.TaskManager()
    by_path = {}
    for name in names:
        config = tasks._index[name].cfg if hasattr(tasks, "_index") else tasks.task_index[name].cfg
        by_path[(config.get("dataset_path"), config.get("dataset_name"))] = documents[name]

    def load(path=None, name=None, **_):
        parts = by_path[(path, name)]
        return datasets.DatasetDict(train=datasets.Dataset.from_list(parts["train"]),
                                    validation=datasets.Dataset.from_list(parts["tested"]),
                                    test=datasets.Dataset.from_list(parts["tested"]))

    datasets.load_dataset = load
    return lm_eval.simple_evaluate(model="hf", model_args={"pretrained": str(pathlib.Path(folder) / "run-hf"),
                                                           "dtype": "float32"},
                                   tasks=list(names), num_fewshot=shots, task_manager=tasks, device="cpu", batch_size=8,
                                   bootstrap_iters=200, log_samples=True)


def compare(folder, documents, names, shots):
    theirs = harness(folder, documents, names, shots)
    run(["eval", "--load", "run", "--task-files", str(HARNESS / "lm_eval/tasks"), "--task-set", "lm-eval-0.4", "--tasks",
         ",".join(names), "--data", "data", "--output", f"out{shots}.json", "--log-samples", "--bootstrap-iters", "200",
         "--num-fewshot", str(shots), "--num-threads", "1"], folder)
    ours = json.loads((pathlib.Path(folder) / f"out{shots}.json").read_text())
    failures = []
    for name in names:
        lines = [json.loads(line) for line in open(pathlib.Path(folder) / f"out{shots}_samples_{name}.jsonl")]
        samples = sorted(theirs["samples"][name], key=lambda one: one["doc_id"])
        worst, requests, greedy = 0, 0, 0
        for line, sample in zip(lines, samples, strict=True):
            answers = [response[0] for response in sample["resps"]]
            asked = [list(one) for one in sample["arguments"]]
            mine = [list(one.values()) for one in line["arguments"].values()]
            if mine != asked:
                failures.append(f"{name}, document {line['doc_id']}: {mine}\n    lm_eval {asked}")
                continue
            for (value, flag), answer in zip(line["filtered_resps"], answers, strict=True):
                expected, is_greedy = answer if isinstance(answer, tuple) else (answer, None)
                worst, requests = max(worst, abs(float(value) - expected)), requests + 1
                greedy += flag == "True"
                if is_greedy is not None and (flag == "True") != bool(is_greedy):
                    failures.append(f"{name}, document {line['doc_id']}: greedy {flag}, lm_eval {is_greedy}")
        if worst > 1e-3:
            failures.append(f"{name}: log-likelihoods differ by {worst}")
        values = {key: value for key, value in theirs["results"][name].items() if "," in key}
        for key, expected in values.items():
            found = ours["results"][name].get(key)
            same = found == expected if isinstance(expected, str) else found is not None and math.isclose(
                found, expected, rel_tol=1e-3 if "perplexity" in key or "bits" in key else 1e-9, abs_tol=1e-12)
            if not same:
                failures.append(f"{name}: {key} {found}, lm_eval {expected}")
        print(f"{name}, {shots} examples: {len(lines)} documents, {requests} requests, log-likelihoods within {worst:.1e}, "
              f"{greedy} greedy; {len(values)} values")
    if failures:
        sys.exit("\n".join(failures[:20]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2)
    arguments = parser.parse_args()
    if not (arguments.check or arguments.fresh):
        parser.error("nothing is committed: --check or --fresh SEED DIR")
    if not HARNESS.is_dir():
        print(f"{HARNESS} is missing: see tests/oracle/requirements-lm-eval-04.txt")
        sys.exit(77)
    sys.path.insert(0, str(HARNESS))
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    seed = int(arguments.fresh[0]) % 2**31 if arguments.fresh else 1234
    with tempfile.TemporaryDirectory() as folder:
        run(["preprocess", "--input", str(TEXT), "--output-prefix", "owt", *TOKENIZER, "--tokenizer-type",
             "GPT2BPETokenizer", "--append-eod"], folder)
        run(["train", "gpt", *SHAPE, *TOKENIZER, "--save", "run", "--seed", str(seed)], folder)
        run(["checkpoint", "export-hf", "--load", "run", "--output", "run-hf"], folder)
        documents = write_documents(folder, random.Random(seed))
        compare(folder, documents, list(documents), 0)
        compare(folder, documents, [name for name in documents if name in EXAMPLES], 2)


if __name__ == "__main__":
    main()
