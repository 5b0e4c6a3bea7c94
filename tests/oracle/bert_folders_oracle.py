#!/usr/bin/env python3
"""Hugging Face folders of small random BERTs with what transformers computes of them: tests of src/convert/bert.

    tests/oracle/bert_folders_oracle.py                   writes tests/data/hf/*bert* again
    tests/oracle/bert_folders_oracle.py --check           what is committed is still transformers', and transformers
                                                          computes the same for what `espalier checkpoint` makes of it
    tests/oracle/bert_folders_oracle.py --fresh SEED DIR  the same with new random models, in DIR/hf_bert

Needs the environment of tests/oracle/requirements.txt and, for the last two, build/bin/espalier. Each folder is what
save_pretrained writes. logits.safetensors next to it: ids, types, used (1, or 0 for padding at the end) [rows, length]
go in; logits (0 at padding) and, of models with both heads, order [rows, 2] come out. gradients.safetensors: labels
(-100: not to be predicted), order_labels and, by transformers' names, what the sum of the mean losses has for
gradients. Computed in float64, kept in float32.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import (BertConfig, BertForMaskedLM, BertForPreTraining, MegatronBertConfig, MegatronBertForMaskedLM,
                          MegatronBertForPreTraining)

ROOT = pathlib.Path(__file__).parent.parent.parent
LENGTH, ROWS = 13, 3
TOLERANCE = 1e-5  # of the largest value: what fp32 leaves between two orders of summation
CLASSES = {"megatron-bert": (MegatronBertConfig, MegatronBertForMaskedLM, MegatronBertForPreTraining),
           "bert": (BertConfig, BertForMaskedLM, BertForPreTraining)}

BASE = {"vocab_size": 33, "hidden_size": 14, "num_attention_heads": 7, "num_hidden_layers": 1, "intermediate_size": 23,
        "max_position_embeddings": 17, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
# name: model type, configuration, how it is stored
COMMITTED = {
    "megatron_bert": ("megatron-bert", {**BASE, "num_hidden_layers": 3, "hidden_act": "gelu_new"}, {"dtype": "bfloat16"}),
    "megatron_bert_words": ("megatron-bert", {**BASE, "hidden_size": 15, "num_attention_heads": 5, "type_vocab_size": 1,
                                              "layer_norm_eps": 1e-5}, {"dtype": "float32", "words": True}),
    "bert": ("bert", {**BASE, "num_hidden_layers": 2}, {"dtype": "float32"}),
    "bert_words": ("bert", {**BASE, "hidden_size": 7, "num_attention_heads": 1, "hidden_act": "gelu_fast",
                            "type_vocab_size": 3}, {"dtype": "float16", "words": True}),
    # As the first published files: both heads under the name of one, gamma and beta, copies, buffers, torch.save.
    "bert_old": ("bert", {**BASE, "num_hidden_layers": 2}, {"dtype": "float32", "old": True}),
    # A pooler that no head uses.
    "bert_pooler": ("bert", BASE, {"dtype": "float32", "words": True, "pooler": True}),
}


def fresh_case(model_type, rng):
    heads = rng.choice([1, 2, 3, 5, 7])
    # A norm of two or three elements nearly forgets them: gradients before it are rounding alone.
    size = rng.choice([5, 8] if heads == 1 else [3, 5, 8])
    words = rng.random() < 0.4
    config = {**BASE, "vocab_size": rng.randint(5, 99), "hidden_size": heads * size,
              "num_attention_heads": heads, "num_hidden_layers": rng.randint(1, 4), "intermediate_size": rng.randint(1, 70),
              "max_position_embeddings": rng.randint(LENGTH, 40), "type_vocab_size": rng.randint(1 if words else 2, 4),
              "layer_norm_eps": rng.choice([1e-12, 1e-5, 1e-3]),
              "hidden_act": rng.choice(["gelu", "gelu_new", "gelu_pytorch_tanh"])}
    return model_type, config, {"dtype": rng.choice(["float32", "bfloat16", "float16"]), "words": words,
                                "old": not words and model_type == "bert" and rng.random() < 0.3}


def new_model(model_type, config, words, seed):
    config_class, words_class, both_class = CLASSES[model_type]
    model = (words_class if words else both_class)(config_class(**config))
    rng = random.Random(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            norm = name.endswith(("LayerNorm.weight", "ln.weight"))
            values = [norm + rng.gauss(0, 0.2) for _ in range(parameter.numel())]
            parameter.copy_(torch.tensor(values, dtype=torch.float64).view(parameter.shape))
    return model.eval()


def load(folder):
    """In float64, with the heads that the weights have."""
    config = json.loads((folder / "config.json").read_text())
    _, words_class, both_class = CLASSES[config["model_type"]]
    weights = load_file(folder / "model.safetensors") if (folder / "model.safetensors").exists() else torch.load(
        folder / "pytorch_model.bin")
    both = any(name.startswith("cls.seq_relationship") for name in weights)
    return (both_class if both else words_class).from_pretrained(folder, dtype=torch.float32).double().eval()


def outputs_of(model, inputs):
    out = model(input_ids=inputs["ids"], token_type_ids=inputs["types"], attention_mask=inputs["used"])
    logits = out.prediction_logits if hasattr(out, "prediction_logits") else out.logits
    found = {"logits": logits * inputs["used"].unsqueeze(-1)}
    if hasattr(out, "seq_relationship_logits"):
        found["order"] = out.seq_relationship_logits
    return found


def gradients_of(model, inputs, labels, order_labels):
    found = outputs_of(model, inputs)
    loss = torch.nn.functional.cross_entropy(found["logits"].flatten(0, 1), labels.flatten())
    if "order" in found:
        loss = loss + torch.nn.functional.cross_entropy(found["order"], order_labels)
    model.zero_grad()
    loss.backward()
    return {"grad." + name: parameter.grad.float().clone() for name, parameter in model.named_parameters()
            if parameter.grad is not None}


def random_inputs(name, config):
    rng = random.Random(f"inputs {name}")
    # Without id 0, pad_token_id: looking it up gives no gradient in transformers.
    ids = torch.tensor([[rng.randrange(1, config["vocab_size"]) for _ in range(LENGTH)] for _ in range(ROWS)])
    used = torch.tensor([[int(at < LENGTH - 3 * row) for at in range(LENGTH)] for row in range(ROWS)])
    first = [rng.randrange(LENGTH) for _ in range(ROWS)]
    types = torch.tensor([[min(int(at >= first[row]), config["type_vocab_size"] - 1) for at in range(LENGTH)] for row in range(ROWS)])
    labels = torch.tensor([[rng.randrange(config["vocab_size"]) if used[row, at] and (at == 1 or rng.random() < 0.3) else -100
                            for at in range(LENGTH)] for row in range(ROWS)])
    return {"ids": ids, "types": types, "used": used}, labels, torch.tensor([rng.randrange(2) for _ in range(ROWS)])


def as_of_old(folder):
    """The names and the copies of the first releases."""
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
            name = name.replace(new, old)
        tensors[name] = tensor
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
    tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(tensors["bert.embeddings.position_embeddings.weight"].shape[0]).unsqueeze(0)
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["BertForMaskedLM"], "pooler_type": "first_token_transform", "directionality": "bidi"}
    for key in ("dtype", "tie_word_embeddings", "is_decoder", "add_cross_attention"):
        config.pop(key, None)
    (folder / "config.json").write_text(json.dumps(config, indent=2))


def make(name, model_type, config, stored, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    model = new_model(model_type, config, stored.get("words", False), name).to(getattr(torch, stored["dtype"]))
    model.config.dtype = getattr(torch, stored["dtype"])
    model.save_pretrained(folder)
    if stored.get("pooler"):
        tensors = load_file(folder / "model.safetensors")
        size = config["hidden_size"]
        tensors |= {"bert.pooler.dense.weight": torch.ones(size, size), "bert.pooler.dense.bias": torch.ones(size)}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    inputs, labels, order_labels = random_inputs(name, config)
    model = load(folder)  # as it is stored: rounded
    with torch.no_grad():
        outputs = {key: value.float().contiguous() for key, value in outputs_of(model, inputs).items()}
    gradients = gradients_of(model, inputs, labels, order_labels)
    if stored.get("old"):
        as_of_old(folder)
    save_file({**inputs, **outputs}, folder / "logits.safetensors")
    save_file({"labels": labels, "order_labels": order_labels, **gradients}, folder / "gradients.safetensors")


def distances(found, expected):
    for name, value in expected.items():
        if value.dtype == torch.float32:
            yield name, ((found[name] - value).abs().max() / value.abs().max()).item()


def espalier(*arguments):
    program = ROOT / "build" / "bin" / "espalier"
    done = subprocess.run([program, "checkpoint", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"espalier checkpoint {' '.join(map(str, arguments))}: {done.stderr}")


def check_folder(folder):
    expected = load_file(folder / "logits.safetensors")
    with tempfile.TemporaryDirectory() as temporary:
        run, back = pathlib.Path(temporary) / "run", pathlib.Path(temporary) / "hf"
        espalier("import-hf", "--input", folder, "--save", run)
        espalier("export-hf", "--load", run, "--output", back)
        folders = {"the export": back}
        # transformers 5 takes gamma and beta of no file of ours that has copies next to them.
        if not (folder / "pytorch_model.bin").exists():
            folders["the folder"] = folder
        for what, place in folders.items():
            with torch.no_grad():
                found = outputs_of(load(place), expected)
            for name, distance in distances(found, expected):
                if not distance <= TOLERANCE:
                    yield f"{name} of {what} differ by {distance:.3g} of the largest"


def check(folders):
    failed = 0
    for folder in sorted(folders):
        try:
            problems = list(check_folder(folder))
        except RuntimeError as error:
            problems = [str(error)]
        failed += bool(problems)
        print(f"{folder.name}: " + ("; ".join(problems) or "equal"), flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    committed = ROOT / "tests" / "data" / "hf"
    if arguments.check:
        sys.exit(check(committed / name for name in COMMITTED) > 0)
    if arguments.fresh:
        folder = pathlib.Path(arguments.fresh[1]) / "hf_bert"
        rng = random.Random(int(arguments.fresh[0]))
        for number in range(8):
            model_type = rng.choice(sorted(CLASSES))
            make(f"bert{number}", *fresh_case(model_type, rng), folder / f"bert{number}")
        sys.exit(check(folder.iterdir()) > 0)
    for name, case in COMMITTED.items():
        make(name, *case, committed / name)


main()
