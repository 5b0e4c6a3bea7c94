#!/usr/bin/env python3
"""What transformers' BLOOM, GPT-2, Llama and similar models (llama_models.py) make of small random models: expected values for src/models, src/optim, src/infer.

    tests/oracle/transformers_oracle.py                   writes tests/data/transformers again
    tests/oracle/transformers_oracle.py --check           makes them again and compares with the committed ones
    tests/oracle/transformers_oracle.py --fresh SEED DIR  writes new random models into DIR/transformers; the golden
                                                          test reads them when ESPALIER_FRESH_ORACLES=DIR

Needs the environment of tests/oracle/requirements.txt (tests/oracle/run makes it). Per model NAME.safetensors with our
names and layouts (weight.*, in bf16 so that the file is half as large; grad.* and logits in fp32), and NAME.json with
the configuration, five batches of ids, the loss mask, the losses and gradient norms of five AdamW steps (one batch
each) and of the first batch after them, and what greedy generation continues some prompts with. All in fp32.
"""
import argparse
import copy
import json
import pathlib
import random
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save
from transformers import BloomConfig, BloomForCausalLM, GenerationConfig, GPT2Config, GPT2LMHeadModel

import llama_models

ROWS, STEPS, NEW_TOKENS = 2, 5, 12
OPTIMIZER = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip": 1.0}
# Rounding must not decide which of two tokens is generated.
SMALLEST_MARGIN = 1e-3
BLOOM = {"num_layers": 3, "hidden": 24, "heads": 3, "ffn": 96, "vocab": 97, "length": 33, "epsilon": 1e-5,
         "activation": "gelu_tanh", "tied": True, "residual_from_layernorm": False}
COMMITTED = {
    "bloom": {"family": "bloom", **BLOOM},
    "gpt2": {"family": "gpt2", **BLOOM, "ffn": 70, "epsilon": 1e-6},
    "gpt2_untied_erf": {"family": "gpt2", **BLOOM, "num_layers": 1, "hidden": 14, "heads": 2, "ffn": 45, "vocab": 31,
                        "length": 7, "activation": "gelu_erf", "tied": False},
    **llama_models.COMMITTED,
}
# What the golden test allows: of a loss, and of a gradient's norm. A fresh model of which fp32 leaves a quarter of that open,
# compared with fp64, tells nothing (layer norms over two elements, steps of Adam where gradients are nearly zero).
GOLDEN_TOLERANCE = {"loss": 1e-5, "grad": 1e-4}
# Compared with the committed values on another CPU: what fp32 leaves between two orders of summation.
TOLERANCE = {"logits": 2e-6, "grad": 2e-5, "loss": 2e-6, "norm": 2e-5}


def fresh_case(rng):
    if rng.random() < 0.6:
        return llama_models.fresh_case(rng)
    family, heads = rng.choice(["bloom", "gpt2"]), rng.choice([1, 2, 3, 5, 7, 12])
    bloom = family == "bloom"
    hidden = heads * rng.choice([2, 4, 8, 10, 16])
    return {"family": family, "num_layers": rng.randint(1, 4), "hidden": hidden, "heads": heads,
            "ffn": 4 * hidden if bloom else rng.randint(1, 5 * hidden), "vocab": rng.randint(5, 300),
            "length": rng.randint(2, 150), "epsilon": 1e-5 if bloom else rng.choice([1e-5, 1e-6, 1e-3]),
            "activation": "gelu_tanh" if bloom else rng.choice(["gelu_tanh", "gelu_erf"]), "tied": rng.random() < 0.7,
            "residual_from_layernorm": bloom and rng.random() < 0.3}


def new_model(case):
    if case["family"] in llama_models.FAMILIES:
        return llama_models.new_model(case, NEW_TOKENS)
    common = {"vocab_size": case["vocab"], "n_layer": case["num_layers"], "n_head": case["heads"],
              "layer_norm_epsilon": case["epsilon"], "tie_word_embeddings": case["tied"], "bos_token_id": None,
              "eos_token_id": None, "attn_implementation": "eager"}
    if case["family"] == "bloom":
        model = BloomForCausalLM(BloomConfig(
            hidden_size=case["hidden"], hidden_dropout=0.0, attention_dropout=0.0,
            apply_residual_connection_post_layernorm=case["residual_from_layernorm"], **common))
    else:
        activation = {"gelu_tanh": "gelu_new", "gelu_erf": "gelu"}[case["activation"]]
        model = GPT2LMHeadModel(GPT2Config(
            n_embd=case["hidden"], n_inner=case["ffn"], n_positions=case["length"] + NEW_TOKENS, resid_pdrop=0.0,
            embd_pdrop=0.0, attn_pdrop=0.0, activation_function=activation, **common))
    return model.float().eval()


OUR_NAMES = {  # what follows "transformer." in Hugging Face's names; blocks are h.N there, layers.N here
    "word_embeddings_layernorm": "word_embeddings.norm", "ln_f": "final_layernorm", "wte": "word_embeddings",
    "wpe": "position_embeddings", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm",
    "attn.c_attn": "self_attention.query_key_value", "attn.c_proj": "self_attention.dense",
    "mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h",
}


def our_name(name):
    module, kind = name.removeprefix("transformer.").rsplit(".", 1)
    block = ""
    if module.startswith("h."):
        _, layer, module = module.split(".", 2)
        block = f"layers.{layer}."
    return f"{block}{OUR_NAMES.get(module, module)}.{kind}"


def our_layout(name, tensor, case):
    """GPT-2's Conv1D keeps [in, out], and c_attn all queries, then all keys, then all values; ours go head by head."""
    if case["family"] == "bloom" or ".h." not in name:
        return tensor
    if tensor.dim() == 2:
        tensor = tensor.t()
    if ".c_attn." in name:
        heads, size = case["heads"], case["hidden"] // case["heads"]
        tensor = tensor.reshape(3, heads, size, -1).transpose(0, 1).reshape(tensor.shape)
    return tensor.contiguous()


def our_tensors(tensors, case):
    """Tensors of a model by transformers' names -> the same by ours, in our layout."""
    if case["family"] in llama_models.FAMILIES:
        return llama_models.our_tensors(tensors, case)
    return {our_name(theirs): our_layout(theirs, tensor, case) for theirs, tensor in tensors.items()}


def randomise(model, rng):
    """Every parameter random, rounded to bf16: matrices, biases, and norms away from one and zero."""
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            norm_weight = parameter.dim() == 1 and name.endswith("weight")
            values = [norm_weight + rng.gauss(0, 0.2) for _ in range(parameter.numel())]
            parameter.copy_(torch.tensor(values, dtype=torch.float64).bfloat16().view(parameter.shape))


def loss_of(logits, texts, mask):
    losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), texts[:, 1:].flatten(), reduction="none")
    return (losses * mask.flatten()).sum() / mask.sum()


def decay_groups(model):
    decayed = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() != 2]
    return [{"params": decayed, "weight_decay": OPTIMIZER["weight_decay"]}, {"params": others, "weight_decay": 0.0}]


def train(model, batches, mask):
    """Losses of the batches, each in front of its step, and of the first batch after the last; the gradient norms."""
    optimizer = torch.optim.AdamW(decay_groups(model), lr=OPTIMIZER["lr"], betas=OPTIMIZER["betas"],
                                  eps=OPTIMIZER["eps"])
    losses, norms = [], []
    for texts in batches:
        optimizer.zero_grad()
        loss = loss_of(model(texts[:, :-1]).logits, texts, mask)
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIMIZER["clip"]).item())
        optimizer.step()
    with torch.no_grad():
        losses.append(loss_of(model(batches[0][:, :-1]).logits, batches[0], mask).item())
    return losses, norms


def continuation(model, prompt):
    """The greedy continuation, or None where two tokens are too near each other."""
    settings = GenerationConfig(do_sample=False, max_new_tokens=NEW_TOKENS, output_scores=True,
                                return_dict_in_generate=True)
    result = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                            generation_config=settings)
    best = torch.stack(result.scores).topk(2, dim=-1).values
    if (best[..., 0] - best[..., 1]).min() < SMALLEST_MARGIN:
        return None
    return result.sequences[0, len(prompt):].tolist()


def generations(model, case, rng):
    """For each of three lengths the most varied of some continuations."""
    found = []
    for length in case.get("prompt_lengths", [case["length"], 1, (case["length"] + 1) // 2]):
        clear = []
        while len(clear) < 12:
            prompt = [rng.randrange(case["vocab"]) for _ in range(length)]
            new_ids = continuation(model, prompt)
            if new_ids is not None:
                clear.append({"prompt": prompt, "continuation": new_ids})
        found.append(max(clear, key=lambda entry: len(set(entry["continuation"]))))
    return found


def left_open_by_fp32(model, case, batches, mask):
    """By how much fp32 misses fp64, in shares of what the golden test allows: the worst of the losses and gradients."""
    worst, found = 0.0, []
    for precision in (torch.float32, torch.float64):
        copied = copy.deepcopy(model).to(precision)
        loss_of(copied(batches[0][:, :-1]).logits, batches[0], mask.to(precision)).backward()
        gradients = our_tensors({name: parameter.grad for name, parameter in copied.named_parameters()}, case)
        found.append((gradients, train(copied, batches, mask.to(precision))[0]))
    for name, exact in found[1][0].items():
        if name.endswith("query_key_value.bias"):  # a key's bias that is not rotated has no gradient
            continue
        distance = (found[0][0][name].double() - exact).norm() / exact.norm().clamp_min(1e-30)
        worst = max(worst, distance.item() / GOLDEN_TOLERANCE["grad"])
    distance = max(abs(a - b) for a, b in zip(found[0][1], found[1][1], strict=True))
    return max(worst, distance / GOLDEN_TOLERANCE["loss"])


def make(name, case, seed, folder, most_left_open=None):
    """False, and nothing is written, if fp32 leaves more than that open (see left_open_by_fp32)."""
    rng = random.Random(f"{seed} {name}")
    model = new_model(case)
    randomise(model, rng)
    batches = [torch.tensor([[rng.randrange(case["vocab"]) for _ in range(case["length"] + 1)] for _ in range(ROWS)])
               for _ in range(STEPS)]
    mask = torch.tensor([[float(rng.random() < 0.8) for _ in range(case["length"])] for _ in range(ROWS)])
    mask[0, 0] = 1
    if most_left_open is not None and left_open_by_fp32(model, case, batches, mask) > most_left_open:
        return False

    # Kept as bf16, in which they are exact.
    weights = {theirs: parameter.detach().bfloat16() for theirs, parameter in model.named_parameters()}
    tensors = {"weight." + name: tensor.clone() for name, tensor in our_tensors(weights, case).items()}
    greedy = generations(model, case, rng)
    logits = model(batches[0][:, :-1]).logits
    loss_of(logits, batches[0], mask).backward()
    tensors["logits"] = logits.detach().contiguous()
    gradients = {theirs: parameter.grad for theirs, parameter in model.named_parameters()}
    tensors |= {"grad." + name: tensor.clone() for name, tensor in our_tensors(gradients, case).items()}
    losses, norms = train(model, batches, mask)

    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.safetensors").write_bytes(save(tensors))
    content = {"made_with": f"transformers {transformers.__version__}, torch {torch.__version__}", "config": case,
               "optimizer": OPTIMIZER, "texts": [texts.tolist() for texts in batches], "loss_mask": mask.int().tolist(),
               "losses": losses, "grad_norms": norms, "greedy": greedy}
    (folder / f"{name}.json").write_text(json.dumps(content, separators=(",", ":")) + "\n")
    return True


def differences(name, made, committed):
    """What is not as it was: names with the distance found."""
    new, old = load_file(made / f"{name}.safetensors"), load_file(committed / f"{name}.safetensors")
    if new.keys() != old.keys():
        yield f"tensors {sorted(new.keys() ^ old.keys())}"
        return
    total = torch.stack([tensor.norm() for key, tensor in old.items() if key.startswith("grad.")]).norm()
    for key, tensor in old.items():
        distance = (new[key].float() - tensor.float()).abs().max().item()
        allowed = 0.0
        if key == "logits":
            allowed = TOLERANCE["logits"] * max(1.0, tensor.abs().max().item())
        elif key.startswith("grad."):  # the gradient of a key's bias is rounding alone
            allowed = TOLERANCE["grad"] * tensor.abs().max().item() + 1e-7 * total.item()
        if distance > allowed:
            yield f"{key}: differs by {distance:.3g}, allowed {allowed:.3g}"
    new, old = (json.loads((folder / f"{name}.json").read_text()) for folder in (made, committed))
    for key in old.keys() | new.keys():
        if key == "made_with":
            continue
        if key in ("losses", "grad_norms"):
            allowed = TOLERANCE["loss" if key == "losses" else "norm"]
            if any(abs(a - b) > allowed * max(1.0, abs(b)) for a, b in zip(new[key], old[key], strict=True)):
                yield f"{key}: {new[key]}, committed {old[key]}"
        elif new.get(key) != old.get(key):
            yield f"{key} differs"


def check(committed):
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name, case in COMMITTED.items():
            make(name, case, 1, pathlib.Path(temporary))
            found = list(differences(name, pathlib.Path(temporary), committed))
            failed += bool(found)
            print(f"{name}: " + ("as committed" if not found else "; ".join(found)))
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2, metavar=("SEED", "DIR"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    committed = pathlib.Path(__file__).parent.parent / "data" / "transformers"
    if arguments.check:
        sys.exit(1 if check(committed) else 0)
    if arguments.fresh:
        seed, folder = int(arguments.fresh[0]), pathlib.Path(arguments.fresh[1]) / "transformers"
        rng = random.Random(seed)
        for number in range(8):
            while not make(f"case{number}", case := fresh_case(rng), seed, folder, most_left_open=0.25):
                print(f"case{number}: another model, fp32 does not settle the values of {case}")
        return
    for name, case in COMMITTED.items():
        make(name, case, 1, committed)


main()
