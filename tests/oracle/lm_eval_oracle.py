#!/usr/bin/env python3
"""`espalier eval` on the stock task files of lm_eval 0.4 against lm_eval itself with its hf model on the export of the same
run, over the same random documents: prompts, log-likelihoods, greedy flags, generated texts, what filters leave of them,
values and standard errors.

    tests/oracle/lm_eval_oracle.py --check            with fixed seeds
    tests/oracle/lm_eval_oracle.py --fresh SEED DIR   with others

Needs the environment of tests/oracle/requirements.txt with requirements-lm-eval-04.txt in lm_eval-0.4 next to it, and
build/bin/espalier. Log-likelihoods within 1e-3, greedy flags and texts equal; values equal, perplexities within 1e-3 of themselves.
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
GENERATING = {"triviaqa", "nq_open", "gsm8k", "babi", "anagrams1", "mmlu_flan_cot_zeroshot_abstract_algebra",
              "salt_eng-swa_prompt_2"}
GENERATED_TOKENS = 24
T5_TASKS = ["arc_easy", "lambada_openai", "sciq", "wic", "wikitext", "winogrande"]
T5_TEXTS = ["triviaqa", "anagrams1"]
EXAMPLES = {"triviaqa", "gsm8k", "arc_easy", "boolq", "sciq", "hellaswag", "winogrande", "mrpc", "copa"}  # tasks that are also asked with two


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

    def sentence():
        return w.some(2, 9).capitalize() + w.rng.choice([".", "!", ", " + w.some(1, 3)])

    return {
        "triviaqa": lambda: {"question": w.some(3, 9), "answer": {"aliases": w.list(w.rng.randint(1, 4), 1, 2)}},
        "nq_open": lambda: {"question": w.some(3, 9), "answer": ["the", *w.list(2, 1, 2)]},
        "gsm8k": lambda: {"question": w.some(9, 30),
                          "answer": f"{w.some(3, 9)} 1,{w.rng.randrange(10)} #### {w.rng.randrange(30)}"},
        "babi": lambda: {"passage": w.some(5, 20) + "\n", "question": w.some(3, 6), "answer": w.some(1, 1)},
        "anagrams1": lambda: {"context": "Please unscramble: " + w.some(1, 2) + "\nword =", "completion": w.some(1, 1)},
        "mmlu_flan_cot_zeroshot_abstract_algebra": lambda: {"question": " " + w.some(5, 20) + " ", "answer": label(4),
                                                            "choices": ["the", "of", w.some(1, 1), "a"]},
        "salt_eng-swa_prompt_2": lambda: {"eng_source_text": sentence(), "swa_text": sentence() + " the of and"},
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


def write_t5(folder, seed):
    """A random T5 in Hugging Face's form, whose tokenizer ends a text."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import T5Config, T5ForConditionalGeneration
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((json.loads(line)["text"] for line in open(TEXT, encoding="utf-8")), trainer)
    sentinels = [f"<extra_id_{number}>" for number in range(100)]
    tokenizer.add_special_tokens(sentinels)
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                             special_tokens=[("</s>", 1)])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
         "additional_special_tokens": sentinels}))
    torch.manual_seed(seed)
    T5ForConditionalGeneration(T5Config(
        vocab_size=tokenizer.get_vocab_size(), d_model=32, d_kv=8, d_ff=48, num_layers=2, num_decoder_layers=2, num_heads=4,
        relative_attention_num_buckets=8, relative_attention_max_distance=20, dropout_rate=0.0, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=1)).save_pretrained(folder)


def harness(folder, documents, names, shots, gen_kwargs, model):
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
                                    dev=datasets.Dataset.from_list(parts["train"]),
                                    validation=datasets.Dataset.from_list(parts["tested"]),
                                    test=datasets.Dataset.from_list(parts["tested"]))

    datasets.load_dataset = load
    more = {} if model == "run" else {"max_length": 512}  # which a T5's config does not say
    return lm_eval.simple_evaluate(model="hf", model_args={"pretrained": str(pathlib.Path(folder) / f"{model}-hf"),
                                                           "dtype": "float32", **more},
                                   tasks=list(names), num_fewshot=shots, task_manager=tasks, device="cpu", batch_size=8,
                                   bootstrap_iters=200, log_samples=True, gen_kwargs=gen_kwargs)


def compare_texts(name, lines, samples, ends):
    """Lines and samples in the same order, one for each filter and document; what differs. Without `ends` lm_eval's texts
    may be longer: it gives a seq2seq as many more tokens as the longest prompt of the batch has."""
    for line, sample in zip(lines, samples, strict=True):
        place = f"{name}, {line['filter']}, document {line['doc_id']}"
        if [list(line["arguments"]["gen_args_0"].values())] != [list(one) for one in sample["arguments"]]:
            yield f"{place}: {line['arguments']}\n    lm_eval {sample['arguments']}"
        if not ends and not sample["resps"][0][0].startswith(line["resps"][0][0]):
            yield f"{place}: {line['resps']}, lm_eval {sample['resps']}"
        for part in ("resps", "filtered_resps") if ends else ():
            if line[part] != sample[part]:
                yield f"{place}: {part} {line[part]}, lm_eval {sample[part]}"


def compare(folder, documents, names, shots, model="run"):
    if any(name in GENERATING for name in names):
        more, gen_kwargs = ["--max-gen-toks", str(GENERATED_TOKENS)], f"max_gen_toks={GENERATED_TOKENS}"
    else:
        more, gen_kwargs = [], None
    theirs = harness(folder, documents, names, shots, gen_kwargs, model)
    run(["eval", *more, "--load", model, "--task-files", str(HARNESS / "lm_eval/tasks"), "--task-set", "lm-eval-0.4", "--tasks",
         ",".join(names), "--data", "data", "--output", f"out{shots}.json", "--log-samples", "--bootstrap-iters", "200",
         "--num-fewshot", str(shots), "--num-threads", "1"], folder)
    ours = json.loads((pathlib.Path(folder) / f"out{shots}.json").read_text())
    failures = []
    for name in names:
        lines = [json.loads(line) for line in open(pathlib.Path(folder) / f"out{shots}_samples_{name}.jsonl")]
        samples = sorted(theirs["samples"][name], key=lambda one: one["doc_id"])
        worst, requests, greedy = 0, 0, 0
        if name in GENERATING:
            order = list(dict.fromkeys(line["filter"] for line in lines))
            samples.sort(key=lambda one: order.index(one["filter"]))
            failures += compare_texts(name, lines, samples, ends=model == "run")
            requests = len(lines)
        for line, sample in [] if name in GENERATING else zip(lines, samples, strict=True):
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
        if model != "run" and name in GENERATING:
            values = {}  # of longer texts
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
        for generates in (False, True):
            some = [name for name in documents if (name in GENERATING) == generates]
            compare(folder, documents, some, 0)
            compare(folder, documents, [name for name in some if name in EXAMPLES], 2)
        write_t5(pathlib.Path(folder) / "t5-hf", seed)
        run(["checkpoint", "import-hf", "--input", "t5-hf", "--save", "t5"], folder)
        compare(folder, documents, T5_TASKS, 0, "t5")
        compare(folder, documents, T5_TEXTS, 2, "t5")


if __name__ == "__main__":
    main()
