"""Token files, sample orders, blends, packed rows, sampler orders and samples of BERT and T5 by Megatron-DeepSpeed's own
code.

  megatron_data_oracle.py --write            writes the committed cases, tests/data/megatron-oracle/fresh_data
  megatron_data_oracle.py --check            makes them again and compares
  megatron_data_oracle.py --fresh SEED DIR   writes new random cases into DIR/megatron_data, for espalier_data_test

BigScience's Megatron-DeepSpeed is looked for in ESPALIER_MEGATRON_DEEPSPEED, else in
~/.cache/espalier/megatron-deepspeed, else cloned there. Without it the script says so and ends with code 77. Its modules
are run unchanged; what they import of the training program (arguments, groups) is a stub, and its C++ helpers are
compiled against the headers in torch's wheel. np.float, which numpy dropped, is put back.

A case folder holds case.json and, as numpy files, what upstream computed. The names are those of case.json's keys.
"""
import argparse
import filecmp
import importlib
import json
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import types

import numpy as np
import torch

COMMIT = "8387ae17c4704f6579f88a84500b535d19d7fbbf"
COMMITTED = "tests/data/megatron-oracle/fresh_data"


def checkout():
    folder = os.environ.get("ESPALIER_MEGATRON_DEEPSPEED") or os.path.expanduser("~/.cache/espalier/megatron-deepspeed")
    if not os.path.isdir(os.path.join(folder, "megatron")):
        url = "https://github.com/bigscience-workshop/Megatron-DeepSpeed"
        clone = subprocess.run(["git", "clone", "-q", "--no-checkout", url, folder], stderr=subprocess.DEVNULL)
        if clone.returncode or subprocess.run(["git", "-C", folder, "checkout", "-q", COMMIT]).returncode:
            sys.stderr.write(f"skipped: {folder} holds no Megatron-DeepSpeed, and it cannot be cloned\n")
            sys.exit(77)
    return folder


def compile_helpers(folder):
    target = os.path.join(folder, "megatron/data/helpers" + sysconfig.get_config_var("EXT_SUFFIX"))
    if not os.path.exists(target):
        include = [sysconfig.get_path("include"), os.path.join(os.path.dirname(torch.__file__), "include")]
        source = os.path.join(folder, "megatron/data/helpers.cpp")
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-std=c++17", *("-I" + path for path in include), source, "-o",
                        target], check=True)


def load_upstream():
    folder = checkout()
    compile_helpers(folder)
    np.float = float
    torch.cuda.LongTensor = torch.LongTensor
    package = types.ModuleType("megatron")
    package.__path__ = [os.path.join(folder, "megatron")]
    package.print_rank_0 = lambda *words, **more: None
    package.get_args = package.get_tokenizer = lambda: None
    package.mpu = types.SimpleNamespace(
        get_data_parallel_group=lambda: None, get_pipeline_model_parallel_group=lambda: None,
        get_tensor_model_parallel_group=lambda: None, get_tensor_model_parallel_rank=lambda: 0)
    silent = types.SimpleNamespace(warning=lambda *words: None)
    package.logging = types.SimpleNamespace(get_logger=lambda name: silent)
    package.fused_kernels = types.ModuleType("fused_kernels")
    sys.modules["megatron"] = package
    sys.modules["megatron.mpu"] = package.mpu
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    names = ("indexed_dataset", "gpt_dataset", "blendable_dataset", "decoder_packed_mtf_dataset", "data_samplers",
             "bert_dataset", "t5_dataset")
    return types.SimpleNamespace(**{name: importlib.import_module("megatron.data." + name) for name in names})


def write_set(upstream, prefix, sequences_of_documents, impl, dtype):
    module = upstream.indexed_dataset
    builder = module.make_builder(prefix + ".bin", impl=impl, dtype=dtype if impl == "mmap" else None)
    for sequences in sequences_of_documents:
        for ids in sequences:
            builder.add_item(torch.tensor(ids))
        builder.end_document()
    builder.finalize(prefix + ".idx")


def random_documents(rng, count, most_sequences, most_tokens, largest_id):
    def sequence():
        return [rng.randrange(largest_id + 1) for _ in range(rng.randrange(1, most_tokens + 1))]
    return [[sequence() for _ in range(rng.randrange(1, most_sequences + 1))] for _ in range(count)]


def save(folder, name, array):
    np.save(os.path.join(folder, name + ".npy"), np.ascontiguousarray(array))


def stores_case(upstream, rng, folder):
    """The same documents in the three formats, and parts merged by upstream."""
    documents = random_documents(rng, rng.randrange(5, 20), 3, 9, 60000)
    cut = rng.randrange(1, len(documents))
    for name, impl, dtype in (("narrow", "mmap", np.uint16), ("wide", "mmap", np.int32), ("cached", "cached", None)):
        write_set(upstream, os.path.join(folder, name), documents, impl, dtype)
    merged = upstream.indexed_dataset.MMapIndexedDatasetBuilder(os.path.join(folder, "merged.bin"), dtype=np.uint16)
    for name, part in (("part0", documents[:cut]), ("part1", documents[cut:])):
        write_set(upstream, os.path.join(folder, name), part, "mmap", np.uint16)
        merged.merge_file_(os.path.join(folder, name))
    merged.finalize(os.path.join(folder, "merged.idx"))
    return {"kind": "stores", "documents": documents}


def gpt_case(upstream, rng, folder):
    """The three arrays of a sample order."""
    documents = random_documents(rng, rng.randrange(3, 40), 1, 50, 60000)
    prefix = os.path.join(folder, "set")
    write_set(upstream, prefix, documents, "mmap", np.uint16)
    dataset = upstream.indexed_dataset.make_dataset(prefix, "mmap", skip_warmup=True)
    case = {"kind": "gpt", "sequence_length": rng.randrange(2, 20), "seed": rng.randrange(2**32),
            "begin": rng.randrange(len(documents) // 2 + 1), "end": len(documents)}
    tokens = int(np.sum(dataset.sizes[case["begin"]:case["end"]]))
    if tokens <= case["sequence_length"]:
        return gpt_case(upstream, rng, folder)
    case["num_samples"] = rng.randrange(1, 4 * tokens // case["sequence_length"] + 2)
    try:
        arrays = upstream.gpt_dataset._build_index_mappings(
            "set", os.path.join(folder, "index"), np.arange(case["begin"], case["end"], dtype=np.int32), dataset.sizes,
            case["num_samples"], case["sequence_length"], case["seed"])
    except AssertionError:  # a legal request that upstream refuses; docs/data-path.md
        return gpt_case(upstream, rng, folder)
    finally:
        for name in os.listdir(folder):
            if name.startswith("index_"):
                os.remove(os.path.join(folder, name))
    for name, array in zip(("documents", "starts", "order"), arrays):
        save(folder, name, array)
    return case


def blend_case(upstream, rng, folder):
    lengths = [rng.randrange(1, 300) for _ in range(rng.randrange(2, 40))]
    weights = [rng.choice((1.0, 0.5, rng.random())) for _ in lengths]
    blend = upstream.blendable_dataset.BlendableDataset([range(length) for length in lengths], weights)
    save(folder, "sets", blend.dataset_index)
    save(folder, "samples", blend.dataset_sample_index)
    return {"kind": "blend", "lengths": lengths, "weights": weights}


def packed_case(upstream, rng, folder):
    """Packed rows of inputs and targets; the first rows as the model gets them."""
    count = rng.randrange(2, 30)
    prefix = os.path.join(folder, "p3")
    for key in ("inputs", "targets"):
        write_set(upstream, f"{prefix}_{key}_document", random_documents(rng, count, 1, 12, 250000), "mmap", np.int32)
    case = {"kind": "packed", "sequence_length": rng.randrange(23, 60), "seed": rng.randrange(2**32), "pad_id": 3,
            "num_samples": rng.randrange(60), "end": rng.randrange(count // 2 + 1, count + 1)}
    if rng.random() < 0.3:
        case["sequence_length"] = rng.randrange(12, 16)  # some pairs are too long
    module = upstream.decoder_packed_mtf_dataset
    sizes = [len(i) for i in _sequences(upstream, prefix + "_inputs_document")]
    totals = [a + len(b) for a, b in zip(sizes, _sequences(upstream, prefix + "_targets_document"))][:case["end"]]
    if min(totals) > case["sequence_length"] + 1:
        return packed_case(upstream, rng, folder)  # no pair fits: upstream would look for rows for ever
    dataset = module.DecoderPackedMTFDataset(
        "train", prefix, "mmap", True, np.arange(case["end"], dtype=np.int32), case["num_samples"],
        case["sequence_length"] + 1, case["pad_id"], 2, case["seed"])
    for name in os.listdir(folder):
        if "_indexmap_" in name:
            os.remove(os.path.join(folder, name))
    save(folder, "rows", dataset.sample_index)
    save(folder, "order", dataset.shuffle_index)
    samples = [dataset[row] for row in range(min(len(dataset), 8))]
    for name in ("decoder_token_ids", "decoder_segment_ids", "decoder_is_inputs"):
        save(folder, name, np.stack([sample[name] for sample in samples]).astype(np.int64))
    return case


def _sequences(upstream, prefix):
    dataset = upstream.indexed_dataset.make_dataset(prefix, "mmap", skip_warmup=True)
    return [dataset.get(index) for index in range(len(dataset))]


def sampler_case(upstream, rng, folder):
    """What each rank reads, micro-batch by micro-batch, from a point of a run on; the cyclic one over several epochs."""
    case = {"kind": "sampler", "micro_batch_size": rng.randrange(1, 5), "data_parallel_size": rng.randrange(1, 5)}
    step = case["micro_batch_size"] * case["data_parallel_size"]
    case["num_samples"] = step + rng.randrange(40)
    per_epoch = case["num_samples"] // step
    module = upstream.data_samplers

    def read(sampler, rank, consumed, batches):
        rows = []
        while len(rows) < batches:  # upstream's cyclic_iter restarts the loader at the end of an epoch
            iterator = sampler(case["num_samples"], consumed + len(rows) * step, case["micro_batch_size"], rank,
                               case["data_parallel_size"])
            rows += [list(row) for _, row in zip(range(batches - len(rows)), iterator)]
        return rows

    case["cyclic_consumed"] = rng.randrange(2 * per_epoch) * step
    case["single_consumed"] = rng.randrange(per_epoch) * step
    ranks = range(case["data_parallel_size"])
    save(folder, "cyclic", [read(module.MegatronPretrainingRandomSampler, rank, case["cyclic_consumed"],
                                 3 * per_epoch) for rank in ranks])
    save(folder, "single", [read(module.MegatronPretrainingSampler, rank, case["single_consumed"],
                                 per_epoch - case["single_consumed"] // step) for rank in ranks])
    return case


def random_vocabulary(rng, num_sentinels):
    """Ids as BertWordPiece* has them: special tokens, pieces (some of which go on with a word), [BOS], [EOS], sentinels."""
    num_pieces = rng.randrange(20, 400)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [("##" if rng.random() < 0.3 else "") + f"piece{number}" for number in range(num_pieces)]
    pieces += ["[BOS]", "[EOS]"] + [f"<extra_id_{number}>" for number in range(num_sentinels)]
    size = len(pieces)
    return types.SimpleNamespace(
        inv_vocab=dict(enumerate(pieces)), pad=0, cls=2, sep=3, mask=4, bos_token_id=5 + num_pieces,
        eos_token_id=6 + num_pieces, additional_special_tokens_ids=list(range(size - num_sentinels, size)),
        largest_piece=4 + num_pieces)


def bert_case(upstream, rng, folder):
    return sentence_case(upstream, rng, folder, is_t5=False, binary_head=True)


def bert_no_head_case(upstream, rng, folder):
    return sentence_case(upstream, rng, folder, is_t5=False, binary_head=False)


def t5_case(upstream, rng, folder):
    return sentence_case(upstream, rng, folder, is_t5=True, binary_head=False)


def sentence_case(upstream, rng, folder, is_t5, binary_head):
    """The map of sentences, and its first samples."""
    vocabulary = random_vocabulary(rng, rng.randrange(10, 60))
    documents = random_documents(rng, rng.randrange(3, 25), rng.choice((3, 12)), rng.choice((8, 30)), 1)
    documents = [[[rng.randrange(1, vocabulary.largest_piece + 1) for _ in ids] for ids in document]
                 for document in documents]
    if rng.random() < 0.5:  # left out: a document with a sentence that is too long; taken: a document of one such
        documents[0].append([5] * 513)
        documents[-1] = [[5] * 600]
    prefix = os.path.join(folder, "set")
    write_set(upstream, prefix, documents, "mmap", np.uint16)
    dataset = upstream.indexed_dataset.make_dataset(prefix, "mmap", skip_warmup=True)
    case = {"kind": "sentences", "model": "t5" if is_t5 else "bert", "sequence_length": rng.randrange(12, 100),
            "decoder_sequence_length": rng.randrange(30, 90) if is_t5 else 0, "seed": rng.randrange(2**31 - 1000),
            "num_samples": rng.randrange(1, 100), "mask_prob": rng.choice((0.15, 0.15, rng.uniform(0.01, 0.5))),
            "short_seq_prob": rng.choice((0.1, 0.0, 0.5, rng.random())), "binary_head": binary_head}
    shared = {"name": "train", "indexed_dataset": dataset, "data_prefix": prefix, "num_epochs": None,
              "max_num_samples": case["num_samples"], "masked_lm_prob": case["mask_prob"],
              "max_seq_length": case["sequence_length"], "short_seq_prob": case["short_seq_prob"], "seed": case["seed"]}
    need = 2 if case["binary_head"] else 1
    try:
        if not any(len(d) >= need and (len(d) == 1 or max(map(len, d)) <= 512) for d in documents):
            raise ValueError("upstream would look for samples for ever")
        if is_t5:
            upstream.t5_dataset.get_tokenizer = lambda: vocabulary
            made = upstream.t5_dataset.T5Dataset(**shared, max_seq_length_dec=case["decoder_sequence_length"])
        else:
            upstream.bert_dataset.get_tokenizer = lambda: vocabulary
            made = upstream.bert_dataset.BertDataset(**shared, binary_head=case["binary_head"])
        samples = [made[number] for number in range(min(len(made), 12))]
    except (AssertionError, IndexError, ValueError):  # too few sentinels, a decoder that is too short, no sample
        return sentence_case(upstream, rng, folder, is_t5, binary_head)
    finally:
        for name in os.listdir(folder):
            if "_indexmap_" in name:
                os.remove(os.path.join(folder, name))
    save(folder, "mapping", made.samples_mapping)
    for name in samples[0]:
        if name not in ("enc_mask", "dec_mask", "enc_dec_mask"):  # follow from the ids
            save(folder, name, np.stack([np.asarray(sample[name]) for sample in samples]).astype(np.int32))
    case["vocabulary"] = {"size": len(vocabulary.inv_vocab), "pad": vocabulary.pad, "cls": vocabulary.cls,
                          "sep": vocabulary.sep, "mask": vocabulary.mask, "bos": vocabulary.bos_token_id,
                          "eos": vocabulary.eos_token_id, "sentinels": vocabulary.additional_special_tokens_ids,
                          "continues_word": [i for i, piece in vocabulary.inv_vocab.items() if piece.startswith("##")]}
    return case


KINDS = (stores_case, gpt_case, blend_case, packed_case, sampler_case, bert_case, bert_no_head_case, t5_case)


def write(upstream, seed, folder, rounds):
    for round_number in range(rounds):
        for kind in KINDS:
            name = kind.__name__.removesuffix("_case")
            rng = random.Random(f"{seed} {name} {round_number}")
            case_folder = os.path.join(folder, f"{name}{round_number}")
            os.makedirs(case_folder)
            case = kind(upstream, rng, case_folder)
            with open(os.path.join(case_folder, "case.json"), "w") as file:
                json.dump(case, file)
                file.write("\n")


def same_folders(found, expected):
    comparison = filecmp.dircmp(found, expected)
    different = comparison.left_only + comparison.right_only
    different += [name for name in comparison.common_files
                  if not filecmp.cmp(os.path.join(found, name), os.path.join(expected, name), shallow=False)]
    for name in different:
        sys.stderr.write(f"differs: {os.path.join(expected, name)}\n")
    inner = [same_folders(os.path.join(found, name), os.path.join(expected, name)) for name in comparison.common_dirs]
    return not different and all(inner)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2)
    arguments = parser.parse_args()
    upstream = load_upstream()
    if arguments.fresh:
        write(upstream, arguments.fresh[0], os.path.join(arguments.fresh[1], "megatron_data"), rounds=20)
    elif arguments.write:
        write(upstream, "committed", COMMITTED, rounds=2)
    elif arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            write(upstream, "committed", os.path.join(folder, "again"), rounds=2)
            sys.exit(0 if same_folders(os.path.join(folder, "again"), COMMITTED) else 1)


if __name__ == "__main__":
    main()
