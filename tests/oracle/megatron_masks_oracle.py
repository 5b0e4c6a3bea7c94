"""Attention masks, position ids, loss weights and losses of prefix language models and of packed pairs, by
Megatron-DeepSpeed's own code.

  megatron_masks_oracle.py --write            writes the committed cases, tests/data/megatron-oracle/masks
  megatron_masks_oracle.py --check            makes them again and compares
  megatron_masks_oracle.py --fresh SEED DIR   writes new random cases into DIR/megatron_masks, for espalier_data_test

The code is found as megatron_data_oracle.py says. get_batch_pipe of pretrain_prefix_lm.py and of finetune_t0.py, with
which BLOOMZ was made (a commit of the branch t0loading), and the loss of megatron/model/gpt_model.py run unchanged, one
row at a time; what they import of the training program is a stub. Python's randint, which nobody can repeat from the
number of a sample, is replaced: row n draws from numpy's RandomState((seed + n) mod 2^32).

A case folder holds case.json (the options) and, for each row, ids [s + 1], blocked [s, s], positions [s], loss_mask [s],
token_losses [s] (random) and loss, what upstream makes of them; of pairs also segments and is_input [s + 1].
"""
import argparse
import importlib
import json
import os
import random
import subprocess
import sys
import tempfile
import types
from unittest.mock import MagicMock

import numpy as np
import torch

from megatron_data_oracle import checkout, same_folders, save

BLOOMZ_COMMIT = "1e77844c26c2e488f57e125917ba666d5afcf9c1"
COMMITTED = "tests/data/megatron-oracle/masks"
EOD, PAD = 0, 3


class Upstream:
    """The modules, and what they take for the arguments and the tokenizer of a run."""

    def __init__(self):
        folder = checkout()
        self.args = types.SimpleNamespace()
        tokenizer = types.SimpleNamespace(eod=EOD, pad=PAD)
        package = types.ModuleType("megatron")
        package.__path__ = [os.path.join(folder, "megatron")]
        package.get_args, package.get_tokenizer = lambda: self.args, lambda: tokenizer
        package.mpu = MagicMock(broadcast_data=lambda keys, data, dtype: {key: data[key].to(dtype) for key in keys},
                                vocab_parallel_cross_entropy=lambda output, labels: output)
        for name in ("print_rank_0", "get_timers", "logging", "get_adlr_autoresume", "get_num_microbatches"):
            setattr(package, name, MagicMock())
        model = types.ModuleType("megatron.model")
        model.__path__ = [os.path.join(folder, "megatron", "model")]
        model.GPTModel = model.GPTModelPipe = MagicMock()
        model_utils = MagicMock(log_debug_usage=lambda *words: lambda function: function)
        sys.modules.update({"megatron": package, "megatron.model": model, "megatron.model.utils": model_utils})
        for name in ("apex", "apex.multi_tensor_apply", "amp_C", "deepspeed", "deepspeed.pipe", "deepspeed.runtime",
                     "deepspeed.runtime.utils", "megatron.mpu", "megatron.mpu.layers", "megatron.training",
                     "megatron.data", "megatron.data.gpt_dataset", "megatron.data.decoder_packed_mtf_dataset",
                     "megatron.model.module", "megatron.model.language_model", "megatron.model.fused_layer_norm",
                     "megatron.model.transformer"):
            sys.modules[name] = MagicMock()
        sys.modules["deepspeed.pipe"].PipelineModule = type("PipelineModule", (), {})
        sys.modules["megatron.model.module"].MegatronModule = type("MegatronModule", (), {})
        sys.path.insert(0, folder)
        self.utils = importlib.import_module("megatron.utils")
        self.prefix = importlib.import_module("pretrain_prefix_lm")
        self.cross_entropy = importlib.import_module("megatron.model.gpt_model").get_cross_entropy
        show = subprocess.run(["git", "-C", folder, "show", BLOOMZ_COMMIT + ":finetune_t0.py"], capture_output=True)
        if show.returncode:
            sys.stderr.write(f"skipped: {folder} has no commit {BLOOMZ_COMMIT}\n")
            sys.exit(77)
        self.pairs = types.ModuleType("finetune_t0")
        exec(compile(show.stdout, "finetune_t0.py", "exec"), self.pairs.__dict__)

    def run(self, get_batch_pipe, data, is_prefix, token_losses):
        """One row: blocked, positions, loss_mask, loss."""
        (_, positions, blocked), (labels, loss_mask), *_ = get_batch_pipe(data)
        length = labels.shape[1]
        # norm_target_loss, which upstream's copy of the loss has on the branch only, is a mean by the mask as well.
        loss = self.cross_entropy(is_prefix)(token_losses, (labels, loss_mask.view(1, length)))
        blocked = blocked.expand(1, 1, length, length)[0, 0]
        return {"blocked": blocked.to(torch.uint8).numpy(), "positions": positions[0].numpy(),
                "loss_mask": loss_mask.view(-1).numpy(), "loss": np.float64(loss.item())}


def stack(folder, rows):
    for name in rows[0]:
        save(folder, name, np.stack([row[name] for row in rows]))


def length_of(rng, round_number):
    return (1, 7, 33, rng.randrange(2, 50))[(3 * round_number + round_number // 4) % 4]  # each with several of the flags


def set_flags(upstream, rng, round_number, case, flags):
    """Every combination of the first three by turns, the others at random."""
    for bit, flag in enumerate(flags):
        case[flag] = bool(round_number >> bit & 1) if bit < 3 else rng.random() < 0.5
        setattr(upstream.args, flag, case[flag])


def prefix_case(upstream, rng, round_number, folder):
    case = {"kind": "prefix", "eod": EOD, "seed": rng.randrange(2**32), "sequence_length": length_of(rng, round_number)}
    set_flags(upstream, rng, round_number, case,
              ("loss_on_targets_only", "reset_attention_mask", "reweight_loss_based_on_position_frequency",
               "reset_position_ids", "eod_mask_loss"))
    length, rows = case["sequence_length"], []
    for number in range(6):
        ids = [EOD if rng.random() < 0.2 else rng.randrange(1, 60000) for _ in range(length + 1)]
        for at in range(length):  # a document that is an EOD alone has no prefix upstream
            if ids[at] == EOD and (at == 0 or ids[at - 1] == EOD):
                ids[at] = rng.randrange(1, 60000)
        state = np.random.RandomState((case["seed"] + number) % 2**32)
        upstream.utils.randint = lambda low, high: int(state.randint(low, int(high) + 1))
        token_losses = torch.tensor(np.random.RandomState(rng.randrange(2**32)).rand(1, length), dtype=torch.float)
        row = upstream.run(upstream.prefix.get_batch_pipe, {"text": torch.tensor([ids])}, True, token_losses)
        rows.append({"ids": np.array(ids), "token_losses": token_losses[0].numpy(), **row})
    stack(folder, rows)
    return case


def pairs_case(upstream, rng, round_number, folder):
    case = {"kind": "pairs", "eod": EOD, "sequence_length": length_of(rng, round_number)}
    set_flags(upstream, rng, round_number, case, ("prefixlm", "norm_target_loss", "eod_mask_loss"))
    upstream.args.reset_attention_mask = upstream.args.reset_position_ids = False
    upstream.args.position_embedding_type = upstream.pairs.PositionEmbeddingType.alibi
    length, rows = case["sequence_length"], []
    for _ in range(6):
        ids, segments, is_input = ([fill] * (length + 1) for fill in (PAD, 0, False))
        at, segment, longest = 0, 0, max(2, rng.randrange(2, length + 2))
        while True:
            pair = rng.randrange(2, longest + 1)
            if at + pair > length + 1:
                break
            segment, inputs = segment + 1, rng.randrange(1, pair)
            for place in range(at, at + pair):
                ids[place] = EOD if rng.random() < 0.2 else rng.randrange(4, 60000)
                segments[place], is_input[place] = segment, place < at + inputs
            at += pair
        token_losses = torch.tensor(np.random.RandomState(rng.randrange(2**32)).rand(1, length), dtype=torch.float)
        data = {"decoder_token_ids": torch.tensor([ids]), "decoder_segment_ids": torch.tensor([segments]),
                "decoder_is_inputs": torch.tensor([is_input])}
        row = upstream.run(upstream.pairs.get_batch_pipe, data, False, token_losses)
        rows.append({"ids": np.array(ids), "segments": np.array(segments),
                     "is_input": np.array(is_input).astype(np.int64), "token_losses": token_losses[0].numpy(), **row})
    stack(folder, rows)
    return case


def write(upstream, seed, folder, rounds):
    for round_number in range(rounds):
        for kind in (prefix_case, pairs_case):
            name = kind.__name__.removesuffix("_case")
            case_folder = os.path.join(folder, f"{name}{round_number}")
            os.makedirs(case_folder)
            rng = random.Random(f"{seed} {name} {round_number}")
            case = kind(upstream, rng, round_number, case_folder)
            with open(os.path.join(case_folder, "case.json"), "w") as file:
                json.dump(case, file)
                file.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fresh", nargs=2)
    arguments = parser.parse_args()
    upstream = Upstream()
    if arguments.fresh:
        write(upstream, arguments.fresh[0], os.path.join(arguments.fresh[1], "megatron_masks"), rounds=60)
    elif arguments.write:
        write(upstream, "committed", COMMITTED, rounds=8)
    elif arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            write(upstream, "committed", os.path.join(folder, "again"), rounds=8)
            sys.exit(0 if same_folders(os.path.join(folder, "again"), COMMITTED) else 1)


if __name__ == "__main__":
    main()
