"""The losses of a BERT against those of transformers' MegatronBertForPreTraining with the same weights and samples.

  bert_losses_oracle.py --check | --fresh SEED DIR

One step without dropout at a learning rate of 0 saves the first weights and says both losses over its samples;
transformers computes them again, in float64, from the checkpoint's tensors and from `espalier data sample bert`.
Exit code 1 where a loss differs by more than 1e-5.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from transformers import MegatronBertConfig, MegatronBertForPreTraining

HEADS, LAYERS, HIDDEN, LENGTH, BATCH = 4, 3, 48, 64, 16
VOCABULARY = Path("tests/data/megatron_tokenizers/bert_lower/vocab.txt")
TOLERANCE = 1e-5


def run(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def tensors_of(folder):
    found = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            found.update({name: file.get_tensor(name) for name in file.keys()})
    return found


def their_weights(ours):
    """transformers' names; queries, keys and values are stored head by head in one tensor of ours."""
    theirs = {}

    def take(name, other):
        for part in ("weight", "bias"):
            if f"{other}.{part}" in ours:
                theirs[f"{name}.{part}"] = ours[f"{other}.{part}"]

    take("bert.embeddings.word_embeddings", "word_embeddings")
    take("bert.embeddings.position_embeddings", "position_embeddings")
    take("bert.embeddings.token_type_embeddings", "tokentype_embeddings")
    for layer in range(LAYERS):
        to, of = f"bert.encoder.layer.{layer}.", f"layers.{layer}."
        take(to + "attention.ln", of + "input_layernorm")
        for part in ("weight", "bias"):
            fused = ours[f"{of}self_attention.query_key_value.{part}"].unflatten(0, (HEADS, 3, HIDDEN // HEADS))
            for number, name in enumerate(("query", "key", "value")):
                theirs[f"{to}attention.self.{name}.{part}"] = fused[:, number].flatten(0, 1)
        take(to + "attention.output.dense", of + "self_attention.dense")
        take(to + "ln", of + "post_attention_layernorm")
        take(to + "intermediate.dense", of + "mlp.dense_h_to_4h")
        take(to + "output.dense", of + "mlp.dense_4h_to_h")
    take("bert.encoder.ln", "final_layernorm")
    take("bert.pooler.dense", "pooler.dense")
    take("cls.predictions.transform.dense", "lm_head.dense")
    take("cls.predictions.transform.LayerNorm", "lm_head.layernorm")
    theirs["cls.predictions.bias"] = theirs["cls.predictions.decoder.bias"] = ours["lm_head.bias"]
    theirs["cls.predictions.decoder.weight"] = ours["word_embeddings.weight"]
    take("cls.seq_relationship", "binary_head")
    return theirs


def their_losses(weights, samples):
    rows = weights["word_embeddings.weight"].shape[0]
    config = MegatronBertConfig(vocab_size=rows, hidden_size=HIDDEN, num_hidden_layers=LAYERS, layer_norm_eps=1e-5,
                                num_attention_heads=HEADS, intermediate_size=4 * HIDDEN, hidden_act="gelu",
                                max_position_embeddings=LENGTH, type_vocab_size=2, hidden_dropout_prob=0,
                                attention_probs_dropout_prob=0)
    model = MegatronBertForPreTraining(config).double().eval()
    wanted, given = model.state_dict(), their_weights(weights)
    missing = [name for name in wanted if name not in given and "position_ids" not in name]
    assert not missing, missing
    model.load_state_dict({name: value.double() for name, value in given.items() if name in wanted}, strict=False)

    def column(name):
        return torch.tensor([sample[name] for sample in samples])

    padding = column("padding_mask")
    with torch.no_grad():
        out = model(input_ids=column("text"), token_type_ids=column("types") * padding, attention_mask=padding)
    return {"lm_loss": torch.nn.functional.cross_entropy(out.prediction_logits.flatten(0, 1),
                                                         column("labels").flatten(), ignore_index=-1).item(),
            "sop_loss": torch.nn.functional.cross_entropy(out.seq_relationship_logits, column("is_random")).item()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="nothing is committed: one fixed case")
    parser.add_argument("--fresh", nargs=2, default=["1234", ""], metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    program, seed = "build/bin/espalier", int(arguments.fresh[0]) % 2**32 or 1
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        tokenizer = ["--tokenizer-type", "BertWordPieceLowerCase", "--vocab-file", VOCABULARY]
        run(program, "preprocess", "--split-sentences", "--input", "tests/data/owt-20.jsonl", "--output-prefix",
            folder / "owt", *tokenizer)
        data = ["--data-path", folder / "owt_text_sentence", "--split", "1,0,0", "--seq-length", LENGTH, "--seed", seed,
                *tokenizer]
        run(program, "train", "bert", *data, "--num-layers", LAYERS, "--hidden-size", HIDDEN, "--num-attention-heads",
            HEADS, "--max-position-embeddings", LENGTH, "--micro-batch-size", 4, "--global-batch-size", BATCH,
            "--train-iters", 1, "--lr", 0, "--eval-iters", 0, "--hidden-dropout", 0, "--attention-dropout", 0,
            "--no-bias-gelu-fusion", "--init-method-std", 0.2, "--save", folder / "run",
            "--save-interval", 1)
        ours = json.loads((folder / "run/metrics.jsonl").read_text().splitlines()[0])
        samples = run(program, "data", "sample", "bert", *data, "--num-samples", f"{BATCH},0,0", "--count", BATCH,
                      "--json").splitlines()
        theirs = their_losses(tensors_of(folder / "run/step_00000001"), [json.loads(line) for line in samples])
    good = True
    for name, value in theirs.items():
        difference = abs(ours[name] - value)
        print(f"{name}: ours {ours[name]:.7f}, transformers {value:.7f}, difference {difference:.1e}")
        good = good and difference <= TOLERANCE
    sys.exit(0 if good else 1)


main()
