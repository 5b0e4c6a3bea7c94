#!/usr/bin/env python3
"""Small checkpoints by Megatron-DeepSpeed's own code: tests/data/megatron-checkpoints.

  make_megatron_checkpoints.py OUT [NAME...]

Runs megatron_train.py for each case below (six steps, a checkpoint after the third), with the interpreter that runs this
script: the environment of tests/oracle/install_megatron. Upstream is looked for in ESPALIER_MEGATRON_DEEPSPEED. OUT gets

  vocab.json merges.txt tokens.bin tokens.idx    the data of all GPTs
  vocab.txt sentences.bin sentences.idx          the data of all BERTs
  NAME/                                          what upstream saved after step 3
  NAME.losses.json                               the losses of the six steps (of a BERT, both added)
  NAME.truth.safetensors                         the whole tensors, put together here by torch.cat

and, for the cases that say so, NAME-universal/ by upstream's tools/convert_checkpoint/ds_to_universal.py.
"""
import glob
import json
import os
import random
import re
import shutil
import socket
import struct
import subprocess
import sys

import torch

import megatron_train

HERE = os.path.dirname(os.path.abspath(__file__))
UPSTREAM = os.environ.get("ESPALIER_MEGATRON_DEEPSPEED") or os.path.expanduser("~/.cache/espalier/megatron-deepspeed")
VOCABULARY, SEQUENCE, LAYERS = 61, 16, 2

BLOOM = ["--embed-layernorm", "--position-embedding-type", "alibi"]
# name: tensor, pipeline, data, arguments, DeepSpeed's configuration
CASES = {
    "plain-fp32": (1, 1, 1, [], None),
    "plain-bf16-tp2pp2": (2, 2, 1, ["--bf16"], None),
    "plain-fp32-swiglu-tp2": (2, 1, 1, ["--glu-activation", "swiglu", "--no-bias-gelu-fusion"], None),
    "plain-fp16-tp2dp2": (2, 1, 2, ["--fp16", "--initial-loss-scale", "65536", "--loss-scale-window", "2"], None),
    "deepspeed-fp32-pp2": (1, 2, 1, [], {"zero_optimization": {"stage": 0}}),
    "deepspeed-bf16-tp2pp2dp2": (2, 2, 2, ["--bf16", *BLOOM], {"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}}),
    "deepspeed-bf16-stage0": (1, 1, 2, ["--bf16", *BLOOM], {"zero_optimization": {"stage": 0}, "bf16": {"enabled": True}}),
    "deepspeed-fp16-dp3": (1, 1, 3, ["--fp16"],
                           {"zero_optimization": {"stage": 1}, "fp16": {"enabled": True, "initial_scale_power": 12, "loss_scale_window": 2}}),
    "deepspeed-fp16-stage0": (1, 1, 1, ["--fp16"],
                              {"zero_optimization": {"stage": 0}, "fp16": {"enabled": True, "initial_scale_power": 12}}),
    # pretrain_bert.py: upstream trains it without DeepSpeed alone.
    "bert-fp32-pp2": (1, 2, 1, [], None),
    "bert-bf16-tp2pp2": (2, 2, 1, ["--bf16", "--apply-residual-connection-post-layernorm", "--no-bias-gelu-fusion"], None),
    "bert-fp16-words": (1, 1, 1, ["--fp16", "--bert-no-binary-head", "--openai-gelu", "--initial-loss-scale", "65536"], None),
}
UNIVERSAL = ["deepspeed-bf16-tp2pp2dp2"]


def write_index(path, sizes, documents):
    """`documents`: how many sequences each has."""
    starts = [2 * sum(sizes[:at]) for at in range(len(sizes))]
    ends = [sum(documents[:at]) for at in range(len(documents) + 1)]
    with open(path, "wb") as file:
        file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(ends)))
        file.write(struct.pack("<%di" % len(sizes), *sizes) + struct.pack("<%dq" % len(sizes), *starts))
        file.write(struct.pack("<%dq" % len(ends), *ends))


def write_sentences(out):
    rng = random.Random(2)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + [chr(97 + at) for at in range(26)] + ["##" + chr(97 + at) for at in range(26)]
    with open(os.path.join(out, "vocab.txt"), "w") as file:
        file.write("\n".join(pieces) + "\n")
    # Words of few pieces and samples of full length: a micro-batch in which nothing is masked would make upstream's loss NaN.
    def piece():
        return rng.randrange(5, 31) if rng.random() < 0.8 else rng.randrange(31, len(pieces))
    documents = [[[piece() for _ in range(rng.randrange(4, 9))] for _ in range(rng.randrange(3, 6))] for _ in range(40)]
    sentences = [sentence for document in documents for sentence in document]
    with open(os.path.join(out, "sentences.bin"), "wb") as file:
        for sentence in sentences:
            file.write(struct.pack("<%dH" % len(sentence), *sentence))
    write_index(os.path.join(out, "sentences.idx"), [len(sentence) for sentence in sentences], [len(document) for document in documents])


def write_data(out):
    write_sentences(out)
    rng = random.Random(1)
    vocabulary = {chr(33 + at): at for at in range(VOCABULARY - 1)}
    vocabulary["<|endoftext|>"] = VOCABULARY - 1
    with open(os.path.join(out, "vocab.json"), "w") as file:
        json.dump(vocabulary, file)
    with open(os.path.join(out, "merges.txt"), "w") as file:
        file.write("#version: 0.2\n")
    documents = [[rng.randrange(VOCABULARY - 1) for _ in range(rng.randrange(5, 60))] + [VOCABULARY - 1] for _ in range(40)]
    sizes = [len(document) for document in documents]
    with open(os.path.join(out, "tokens.bin"), "wb") as file:
        for document in documents:
            file.write(struct.pack("<%dH" % len(document), *document))
    write_index(os.path.join(out, "tokens.idx"), sizes, [1] * len(sizes))


def data_arguments(name):
    if name.startswith("bert-"):
        return "--tokenizer-type BertWordPieceLowerCase --vocab-file vocab.txt --data-path sentences --mask-prob 0.3 --short-seq-prob 0"
    return "--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt --data-path tokens"


def run(out, name, work, layout=None, load=None):
    """Losses of the steps, those after the checkpoint in `load` if it is given. `layout`: tensor, pipeline, data."""
    tensor, pipeline, data, more, deepspeed = CASES[name]
    tensor, pipeline, data = layout or (tensor, pipeline, data)
    world = tensor * pipeline * data
    batch = 12 if data == 3 else 8
    arguments = f"""--tensor-model-parallel-size {tensor} --pipeline-model-parallel-size {pipeline} --num-layers {LAYERS}
      --hidden-size 8 --num-attention-heads 4 --seq-length {SEQUENCE} --max-position-embeddings {SEQUENCE}
      --micro-batch-size 2 --global-batch-size {batch} --lr 1e-2 --min-lr 1e-3 --lr-decay-style cosine --train-iters 6
      --lr-warmup-iters 2 --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 --seed 42 --attention-dropout 0
      --hidden-dropout 0 {data_arguments(name)} --make-vocab-size-divisible-by 32 --split 100,0,0 --data-impl mmap --log-interval 1
      --eval-iters 0 --eval-interval 1000 --save-interval 3 --num-workers 0 --no-masked-softmax-fusion
      --no-bias-dropout-fusion --distributed-backend gloo --init-method-std 0.3 --use-cpu-initialization --no-save-rng
      --save {os.path.relpath(work, out)}/save""".split() + more
    if load:
        arguments += ["--load", load, "--no-load-rng"]
    if deepspeed is not None:
        configuration = {"train_micro_batch_size_per_gpu": 2, "train_batch_size": batch, "gradient_clipping": 1.0,
                         "steps_per_print": 1000, "zero_allow_untested_optimizer": True, **deepspeed}
        with open(os.path.join(work, "deepspeed.json"), "w") as file:
            json.dump(configuration, file)
        stage = deepspeed["zero_optimization"]["stage"]
        arguments += ["--deepspeed", "--deepspeed_config", os.path.relpath(os.path.join(work, "deepspeed.json"), out), "--zero-stage", str(stage)]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(world):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1",
                           MASTER_PORT=str(port), OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="", TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")
        log = open(os.path.join(work, "log.%d" % rank), "w")
        script = "pretrain_bert" if name.startswith("bert-") else "pretrain_gpt"
        ranks.append(subprocess.Popen([sys.executable, os.path.join(HERE, "megatron_train.py"), UPSTREAM, os.path.join(work, "losses"),
                                       script, *arguments], cwd=out, env=environment, stdout=log, stderr=subprocess.STDOUT))
    if any([process.wait() for process in ranks]):
        raise SystemExit("%s: a rank failed; see %s/log.*" % (name, work))
    with open(os.path.join(work, "losses")) as file:
        return [float(line) for line in file]


def train(out, name, work):
    losses = run(out, name, work)
    deepspeed = CASES[name][4]
    with open(os.path.join(out, name + ".losses.json"), "w") as file:
        json.dump(losses, file)
    kept = "global_step3" if deepspeed is not None else "iter_0000003"
    target = os.path.join(out, name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(os.path.join(work, "save", kept), os.path.join(target, kept))
    note = "latest" if deepspeed is not None else "latest_checkpointed_iteration.txt"
    with open(os.path.join(target, note), "w") as file:
        file.write(kept if deepspeed is not None else "3")


# ---- the whole tensors, by torch.cat

def load(path):
    if UPSTREAM not in sys.path:  # for the classes of its arguments
        megatron_train.lend_cuda()
        megatron_train.lend_apex()
        sys.path.insert(0, UPSTREAM)
    return torch.load(path, map_location="cpu", weights_only=False)


def cat_dim(name):
    """None: every tensor rank has all of it."""
    if name.endswith(("self_attention.dense.weight", "dense_4h_to_h.weight")):
        return 1
    if "query_key_value" in name or "dense_h_to_4h" in name or name in ("word_embeddings.weight", "lm_head.bias"):
        return 0
    return None


def merge(name, parts):
    dim = cat_dim(name)
    return parts[0] if dim is None else torch.cat(parts, dim)


def norm_or_bias(name):
    return "norm" in name or name.endswith("bias")


def plain_rank(state, layers_before):
    """Weights of a rank by global name, in the order of the module."""
    model = state["model"]["language_model"]
    weights = {}
    for table, values in model.get("embedding", {}).items():
        for key, value in values.items():
            weights[table + "." + key] = value
    for key, value in model["encoder"].items():
        found = re.match(r"layers\.(\d+)\.(.*)", key)
        weights["layers.%d.%s" % (int(found[1]) + layers_before, found[2]) if found else key] = value
    for key, value in model.get("pooler", {}).items():
        weights["pooler." + key] = value
    if "word_embeddings_for_head" in state["model"]:
        weights["copy of word_embeddings.weight"] = state["model"]["word_embeddings_for_head"]["weight"]
    for head in ("lm_head", "binary_head"):
        for key, value in state["model"].get(head, {}).items():
            weights[head + "." + key] = value
    return weights


def plain_truth(folder, tensor, pipeline, half):
    parts = {}
    for stage in range(pipeline):
        for rank in range(tensor):
            name = "mp_rank_%02d" % rank + ("_%03d" % stage if pipeline > 1 else "")
            state = load(os.path.join(folder, name, "model_optim_rng.pt"))
            weights = plain_rank(state, stage * LAYERS // pipeline)
            order = [n for n in weights if not norm_or_bias(n)] + [n for n in weights if norm_or_bias(n)]
            optimizer = state["optimizer"]["optimizer"] if half else state["optimizer"]
            masters = [m for group in state["optimizer"]["fp32_from_fp16_params"] for m in group] if half else [weights[n] for n in order]
            numbers = [i for group in optimizer["param_groups"] for i in group["params"]]
            for name, number, master in zip(order, numbers, masters):
                moments = optimizer["state"][number]
                for kind, value in (("", weights[name]), (".master", master), (".exp_avg", moments["exp_avg"]), (".exp_avg_sq", moments["exp_avg_sq"])):
                    parts.setdefault((name, kind), []).append(value)
    return {name + kind: merge(name, values) for (name, kind), values in parts.items() if not name.startswith("copy")}


def deepspeed_name(name):
    if name.startswith("tied_modules.embed."):
        return name[len("tied_modules.embed."):]
    layer, rest = name.split(".", 1)
    return "final_layernorm." + rest if int(layer) == LAYERS + 4 else "layers.%d.%s" % (int(layer) - 3, rest)


def deepspeed_truth(folder, tensor, pipeline, data):
    truth = {}
    for path in sorted(glob.glob(folder + "/layer_*-model_00-model_states.pt")):
        layer = int(os.path.basename(path).split("-")[0].split("_")[1])
        files = [load(path.replace("model_00", "model_%02d" % rank)) for rank in range(tensor)]
        for key in files[0]:
            name = key if layer == 1 else deepspeed_name("%d.%s" % (layer, key))
            truth[name] = merge(name, [state[key] for state in files])
    flat = {}
    for stage in range(pipeline):
        for rank in range(tensor):
            for shard in range(data):
                found = glob.glob(folder + "/*zero_pp_rank_%d_mp_rank_%02d_optim_states.pt" % (shard, stage * tensor + rank))
                if not found:
                    return {**truth, **whole_optimizers(folder, tensor, pipeline, truth)}
                state = load(found[0])["optimizer_state_dict"]
                for group, names in enumerate(state["param_slice_mappings"]):
                    moments = state["base_optimizer_state"]["state"][group]
                    for name, at in names.items():
                        if stage > 0 and name.startswith("tied_modules"):
                            continue
                        for kind, value in (("master", state["single_partition_of_fp32_groups"][group]), ("exp_avg", moments["exp_avg"]),
                                            ("exp_avg_sq", moments["exp_avg_sq"])):
                            flat.setdefault((deepspeed_name(name), kind), {}).setdefault(rank, []).append(value[at.start:at.start + at.numel])
    for (name, kind), by_rank in flat.items():
        whole, dim = truth[name], cat_dim(name)
        shape = list(whole.shape)
        if dim is not None:
            shape[dim] //= tensor
        truth[name + "." + kind] = merge(name, [torch.cat(by_rank[rank]).view(shape) for rank in range(tensor)])
    return truth


def whole_optimizers(folder, tensor, pipeline, weights):
    """Without ZeRO: parameters in the order of the module (embedding first), those with weight decay before the others."""
    states = {}
    for stage in range(pipeline):
        own = ["word_embeddings.weight", "position_embeddings.weight"]
        for layer in range(stage * LAYERS // pipeline, (stage + 1) * LAYERS // pipeline):
            own += [name for name in weights if name.startswith("layers.%d." % layer)]
        own += [name for name in weights if name.startswith("final_layernorm")] if stage == pipeline - 1 else []
        order = [n for n in own if not norm_or_bias(n)] + [n for n in own if norm_or_bias(n)]
        for rank in range(tensor):
            optimizer = load(os.path.join(folder, "mp_rank_%02d_model_states.pt" % (stage * tensor + rank)))["optimizer"]
            numbers = [i for group in optimizer.get("optimizer_state_dict", optimizer)["param_groups"] for i in group["params"]]
            if "fp32_groups_flat" in optimizer:
                sizes = [weights[name].numel() for name in order]
                flat = {"master": torch.cat(optimizer["fp32_groups_flat"])}
                for kind in ("exp_avg", "exp_avg_sq"):
                    flat[kind] = torch.cat([optimizer["optimizer_state_dict"]["state"][i][kind] for i in numbers])
                parts = {kind: value.split(sizes) for kind, value in flat.items()}
            else:
                parts = {kind: [optimizer["state"][i][kind] for i in numbers] for kind in ("exp_avg", "exp_avg_sq")}
                parts["master"] = [weights[name] for name in order]
            for at, name in enumerate(order):
                for kind, values in parts.items():
                    if stage == 0 or not name.endswith("embeddings.weight"):
                        states.setdefault((name, kind), []).append(values[at].view(weights[name].shape))
    return {name + "." + kind: merge(name, values) for (name, kind), values in states.items()}


def save_truth(out, name):
    from safetensors.torch import save_file
    tensor, pipeline, data, more, deepspeed = CASES[name]
    if deepspeed is None:
        truth = plain_truth(os.path.join(out, name, "iter_0000003"), tensor, pipeline, "--bf16" in more or "--fp16" in more)
    else:
        truth = deepspeed_truth(os.path.join(out, name, "global_step3"), tensor, pipeline, data)
    save_file({key: value.detach().clone().contiguous() for key, value in truth.items()}, os.path.join(out, name + ".truth.safetensors"))


def make_universal(out, name):
    target = os.path.join(out, name + "-universal")
    shutil.rmtree(target, ignore_errors=True)
    tool = os.path.join(UPSTREAM, "tools/convert_checkpoint/ds_to_universal.py")
    lend = "import sys, runpy, megatron_train as m; m.lend_cuda(); m.lend_apex(); runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    subprocess.run([sys.executable, "-c", lend, tool, "--input_folder", os.path.join(out, name, "global_step3"), "--output_folder",
                    os.path.join(target, "global_step3_universal"), "--num_extract_workers", "1", "--num_merge_workers", "1"],
                   check=True, env=dict(os.environ, PYTHONPATH=UPSTREAM + ":" + HERE, TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1", DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES=""))
    with open(os.path.join(target, "latest_universal"), "w") as file:
        file.write("global_step3_universal")


def main(out, names):
    out = os.path.abspath(out)
    os.makedirs(out, exist_ok=True)
    write_data(out)
    for name in names or CASES:
        work = os.path.join(out, "..", "work-" + name)
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        train(out, name, work)
        save_truth(out, name)
        if name in UNIVERSAL:
            make_universal(out, name)
        for left in glob.glob(out + "/tokens_*.npy") + glob.glob(out + "/sentences_*.npy"):  # upstream's order of samples
            os.remove(left)
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
