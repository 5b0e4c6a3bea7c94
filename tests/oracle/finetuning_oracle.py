"""A finetuned BERT's first step against transformers' classes for it, with the same weights and examples.

  finetuning_oracle.py --check | --fresh SEED DIR

MNLI against MegatronBertForSequenceClassification, RACE against MegatronBertForMultipleChoice, in float64. One step at a
learning rate of 0 saves the first weights and says the loss; one of plain gradient descent from the same weights gives
every gradient as the difference. Exit code 1 where the loss, or an element of a gradient relative to the largest of its
tensor (1e-3 at least), differs by more than 1e-4.
"""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import MegatronBertConfig, MegatronBertForMultipleChoice, MegatronBertForSequenceClassification

HEADS, LAYERS, HIDDEN, LENGTH, BATCH, RATE = 4, 3, 48, 33, 12, 1000.0
VOCABULARY = Path("tests/data/megatron_tokenizers/bert_lower/vocab.txt")
TOLERANCE = 1e-4
PIECES = VOCABULARY.read_text().split("\n")
WORDS = [piece for piece in PIECES if piece.isalpha() and piece.isascii() and 2 < len(piece) < 12]
LABELS = ("contradiction", "entailment", "neutral")


def tensors_of(folder):
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})
    return found


def row_of(first, second):
    """[CLS] A [SEP] B [SEP], cut and padded: ids, types, mask."""
    ids = lambda text: [PIECES.index(word) for word in text.split()]
    cls, sep, pad = (PIECES.index(piece) for piece in ("[CLS]", "[SEP]", "[PAD]"))
    left, right = [cls, *ids(first), sep], ids(second)
    text, types = left + right, [0] * len(left) + [1] * len(right)
    text, types = text[:LENGTH - 1] + [sep], types[:LENGTH - 1] + [1]
    fill = LENGTH - len(text)
    return text + [pad] * fill, types + [0] * fill, [1] * len(text) + [0] * fill


def text_of(rng, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, most)))


def make_mnli(rng, folder):
    rows, labels, lines = [], [], ["\t".join(f"column{number}" for number in range(12))]
    for number in range(BATCH):
        first, second, label = text_of(rng, 12), text_of(rng, 30), rng.randrange(3)
        rows.append(row_of(first, second))
        labels.append(label)
        lines.append("\t".join([str(number), *["x"] * 7, first, second, "y", LABELS[label]]))
    path = folder / "train.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path, rows, labels


def make_race(rng, folder):
    rows, labels = [], []
    path = folder / "RACE"
    path.mkdir()
    for number in range(BATCH):
        article, question, options, answer = text_of(rng, 20), text_of(rng, 5), [text_of(rng, 6) for _ in range(4)], rng.randrange(4)
        rows += [row_of(f"{question} {option}", article) for option in options]
        labels.append(answer)
        (path / f"{number:02}.txt").write_text(json.dumps(
            {"article": article, "questions": [question], "options": [options], "answers": ["ABCD"[answer]], "id": "x"}))
    return path, rows, labels


def names_of(task):
    """Ours -> transformers', of what is not query, key and value."""
    names = {"word_embeddings": "bert.embeddings.word_embeddings",
             "position_embeddings": "bert.embeddings.position_embeddings",
             "tokentype_embeddings": "bert.embeddings.token_type_embeddings",
             "final_layernorm": "bert.encoder.ln",
             "pooler.dense": "bert.pooler.dense",
             "multichoice_head" if task == "RACE" else "classification_head": "classifier"}
    for layer in range(LAYERS):
        of, to = f"layers.{layer}.", f"bert.encoder.layer.{layer}."
        names |= {of + "input_layernorm": to + "attention.ln",
                  of + "self_attention.dense": to + "attention.output.dense",
                  of + "post_attention_layernorm": to + "ln",
                  of + "mlp.dense_h_to_4h": to + "intermediate.dense",
                  of + "mlp.dense_4h_to_h": to + "output.dense"}
    return {f"{ours}.{part}": f"{theirs}.{part}" for ours, theirs in names.items() for part in ("weight", "bias")}


def theirs_of(task, ours):
    """The tensors under transformers' names; queries, keys and values lie head by head in one tensor of ours."""
    result = {theirs: ours[name] for name, theirs in names_of(task).items() if name in ours}
    for layer in range(LAYERS):
        for part in ("weight", "bias"):
            fused = ours[f"layers.{layer}.self_attention.query_key_value.{part}"].unflatten(0, (HEADS, 3, HIDDEN // HEADS))
            for number, name in enumerate(("query", "key", "value")):
                result[f"bert.encoder.layer.{layer}.attention.self.{name}.{part}"] = fused[:, number].flatten(0, 1)
    return result


def their_step(task, weights, rows, labels):
    config = MegatronBertConfig(vocab_size=weights["word_embeddings.weight"].shape[0], hidden_size=HIDDEN,
                                num_hidden_layers=LAYERS, layer_norm_eps=1e-5, num_attention_heads=HEADS,
                                intermediate_size=4 * HIDDEN, hidden_act="gelu", max_position_embeddings=LENGTH,
                                type_vocab_size=2, hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3)
    model = (MegatronBertForMultipleChoice if task == "RACE" else MegatronBertForSequenceClassification)(config).double()
    given = {name: value.double() for name, value in theirs_of(task, weights).items()}
    missing = [name for name in model.state_dict() if name not in given and "position_ids" not in name]
    assert not missing, missing
    model.load_state_dict(given, strict=False)
    columns = [torch.tensor([row[number] for row in rows]) for number in range(3)]
    if task == "RACE":
        columns = [column.unflatten(0, (-1, 4)) for column in columns]
    loss = model(input_ids=columns[0], token_type_ids=columns[1], attention_mask=columns[2],
                 labels=torch.tensor(labels)).loss
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in model.named_parameters()}


def compare(task, seed, folder):
    rng = random.Random(seed)
    data, rows, labels = (make_race if task == "RACE" else make_mnli)(rng, folder)

    def train(name, *more):
        subprocess.run([str(word) for word in (
            "build/bin/espalier", "train", "bert-task", "--task", task, "--train-data", data, "--epochs", 1, "--seed", seed,
            "--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", VOCABULARY, "--num-layers", LAYERS,
            "--hidden-size", HIDDEN, "--num-attention-heads", HEADS, "--seq-length", LENGTH,
            "--max-position-embeddings", LENGTH, "--micro-batch-size", 4, "--global-batch-size", BATCH,
            "--hidden-dropout", 0, "--attention-dropout", 0, "--no-bias-gelu-fusion", "--init-method-std", 0.2,
            "--eval-iters", 0, "--lr-decay-style", "constant", "--save", folder / name, *more)],
            check=True, capture_output=True)
        return tensors_of(folder / name / "step_00000001")

    before = train("still", "--lr", 0)
    after = train("moved", "--lr", RATE, "--optimizer", "sgd", "--sgd-momentum", 0, "--weight-decay", 0, "--clip-grad", 0)
    ours = json.loads((folder / "still/metrics.jsonl").read_text().splitlines()[0])["lm_loss"]
    loss, gradients = their_step(task, before, rows, labels)
    moved = theirs_of(task, {name: (before[name].double() - after[name].double()) / RATE for name in names_and_fused(before)})
    # A bias of the keys changes no softmax: its gradient is rounding alone.
    worst = max((((moved[name] - gradient).abs().max() / max(gradient.abs().max().item(), 1e-3)).item(), name)
                for name, gradient in gradients.items())
    print(f"{task}: loss {ours:.7f}, transformers {loss:.7f}; {len(gradients)} gradients, "
          f"largest relative difference {worst[0]:.1e} ({worst[1]})")
    return abs(ours - loss) <= TOLERANCE and worst[0] <= TOLERANCE


def names_and_fused(tensors):
    return [name for name in tensors if name.endswith((".weight", ".bias"))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="nothing is committed: one fixed case")
    parser.add_argument("--fresh", nargs=2, default=["1234", ""], metavar=("SEED", "DIR"))
    seed = int(parser.parse_args().fresh[0]) % 2**31 or 1
    good = True
    for task in ("MNLI", "RACE"):
        with tempfile.TemporaryDirectory() as folder:
            good = compare(task, seed, Path(folder)) and good
    sys.exit(0 if good else 1)


main()
