"""How fast Hugging Face folders become checkpoints and back, against cp: convert_bench.py ESPALIER FOLDER MIB ROUNDS

Prints one JSON object. Models of about MIB in bf16: a BLOOM, whose tensors are laid out as ours are, a Llama, whose query, key and
value are apart, and a GPT-2, whose matrices are transposed. cp is the system's, of the file of weights, and ends, as both
conversions do, when the bytes are on the disk (sync); the rounds of the three alternate and the median counts. Sources
are in memory: what was imported, past the page cache, is read once before it is exported. Logits are not compared here.
"""
import json
import os
import pathlib
import shutil
import statistics
import sys

from measured_run import run

HIDDEN = 1536


def bloom(layers):
    tensors = {"word_embeddings.weight": [64000, HIDDEN]}
    tensors |= {f"word_embeddings_layernorm.{kind}": [HIDDEN] for kind in ("weight", "bias")}
    for layer in range(layers):
        for name, rows, columns in [("self_attention.query_key_value", 3, 1), ("self_attention.dense", 1, 1),
                                    ("mlp.dense_h_to_4h", 4, 1), ("mlp.dense_4h_to_h", 1, 4)]:
            tensors[f"h.{layer}.{name}.weight"] = [rows * HIDDEN, columns * HIDDEN]
            tensors[f"h.{layer}.{name}.bias"] = [rows * HIDDEN]
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors |= {f"h.{layer}.{name}.{kind}": [HIDDEN] for kind in ("weight", "bias")}
    tensors |= {f"ln_f.{kind}": [HIDDEN] for kind in ("weight", "bias")}
    return {"model_type": "bloom", "hidden_size": HIDDEN, "n_layer": layers, "n_head": 16, "vocab_size": 64000}, tensors


def gpt2(layers):
    tensors = {"wte.weight": [64000, HIDDEN], "wpe.weight": [1024, HIDDEN]}
    for layer in range(layers):
        for name, rows, columns in [("attn.c_attn", 1, 3), ("attn.c_proj", 1, 1), ("mlp.c_fc", 1, 4),
                                    ("mlp.c_proj", 4, 1)]:
            tensors[f"h.{layer}.{name}.weight"] = [rows * HIDDEN, columns * HIDDEN]
            tensors[f"h.{layer}.{name}.bias"] = [columns * HIDDEN]
        for name in ("ln_1", "ln_2"):
            tensors |= {f"h.{layer}.{name}.{kind}": [HIDDEN] for kind in ("weight", "bias")}
    tensors |= {f"ln_f.{kind}": [HIDDEN] for kind in ("weight", "bias")}
    return {"model_type": "gpt2", "n_embd": HIDDEN, "n_layer": layers, "n_head": 16, "vocab_size": 64000}, tensors


def llama(layers):
    ffn, tensors = 4096, {"model.embed_tokens.weight": [32000, HIDDEN]}
    for layer in range(layers):
        start = f"model.layers.{layer}."
        tensors |= {start + f"self_attn.{name}_proj.weight": [rows, HIDDEN]
                    for name, rows in (("q", HIDDEN), ("k", HIDDEN // 4), ("v", HIDDEN // 4), ("o", HIDDEN))}
        tensors |= {start + f"mlp.{name}_proj.weight": [ffn, HIDDEN] for name in ("gate", "up")}
        tensors |= {start + "mlp.down_proj.weight": [HIDDEN, ffn]}
        tensors |= {start + f"{name}_layernorm.weight": [HIDDEN] for name in ("input", "post_attention")}
    tensors |= {"model.norm.weight": [HIDDEN], "lm_head.weight": [32000, HIDDEN]}
    return {"model_type": "llama", "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_attention_heads": 16,
            "num_key_value_heads": 4, "intermediate_size": ffn, "vocab_size": 32000}, tensors


def elements(tensors):
    total = 0
    for shape in tensors.values():
        count = 1
        for size in shape:
            count *= size
        total += count
    return total


def write(folder, make, mib):
    """A model of at most this many MiB; returns the bytes of its weights."""
    layers = 1
    while elements(make(layers + 1)[1]) * 2 <= mib * 2**20:
        layers += 1
    config, tensors = make(layers)
    header, position = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors.items():
        size = 2 * elements({name: shape})
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    block = b"".join(bytes([value % 256, 0x3c]) for value in range(2**20))
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for start in range(0, position, len(block)):
            file.write(block[:min(len(block), position - start)])
        file.flush()
        os.fsync(file.fileno())
    return position


def main():
    espalier, folder, mib, rounds = sys.argv[1], pathlib.Path(sys.argv[2]), *map(int, sys.argv[3:5])
    models = []
    for name, make in (("bloom", bloom), ("llama", llama), ("gpt2", gpt2)):
        source, copy, imported, exported = (folder / (name + end) for end in ("", "_copy", "_run", "_hf"))
        size = write(source, make, mib)
        found = {"cp": [], "import": [], "export": []}
        for _ in range(rounds):
            found["cp"].append(run(["sh", "-c", 'cp "$0" "$1" && sync "$1"', source / "model.safetensors", copy]))
            found["import"].append(run([espalier, "checkpoint", "import-hf", "--input", source, "--save", imported,
                                        "--no-check-logits"]))
            for file in imported.glob("*/*.safetensors"):
                file.read_bytes()
            found["export"].append(run([espalier, "checkpoint", "export-hf", "--load", imported, "--output", exported,
                                        "--no-check-logits"]))
            copy.unlink()
            shutil.rmtree(imported)
            shutil.rmtree(exported)
        row = {"model": name, "mib": size / 2**20}
        for what, runs in found.items():
            row[what + "_gb_per_s"] = size / 1e9 / statistics.median(one[0] for one in runs)
            row[what + "_cpu_s"] = statistics.median(one[1] for one in runs)
            row[what + "_peak_mib"] = max(one[2] for one in runs)
        models.append(row)
        shutil.rmtree(source)
    print(json.dumps(models))


main()
