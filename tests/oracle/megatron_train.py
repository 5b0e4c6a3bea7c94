#!/usr/bin/env python3
"""One rank of a training run by BigScience's Megatron-DeepSpeed, on a CPU.

  RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 megatron_train.py CHECKOUT LOSSES SCRIPT ARGUMENTS...

Upstream's code in CHECKOUT (and DeepSpeed's, where --deepspeed is given) is run unchanged. What it takes from a GPU is
lent here: the names of torch.cuda give CPU tensors, apex's Adam is torch's AdamW, its norms and copies are loops, and the
layer norm kernel is torch's own. SCRIPT is pretrain_gpt or pretrain_bert. Rank 0 of the last stage writes the losses of
the steps to LOSSES, one a line: of a BERT the sum of both.
"""
import importlib
import os
import runpy
import subprocess
import sys
import sysconfig
import types

os.environ["DS_ACCELERATOR"] = "cpu"
os.environ["DS_SKIP_CUDA_CHECK"] = "1"

import numpy as np
import torch


def module(name, **members):
    made = types.ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(made).update(members)
    sys.modules[name] = made
    return made


def lend_cuda():
    cuda = torch.cuda
    for kind in ("Float", "Half", "BFloat16", "Int", "Long", "Byte"):
        setattr(cuda, kind + "Tensor", getattr(torch, kind + "Tensor"))
    cuda.device_count = lambda: 64
    cuda.is_current_stream_capturing = lambda: False
    cuda.set_device = cuda.synchronize = lambda *words: None
    cuda.current_device = lambda: "cpu"
    cuda.manual_seed = torch.manual_seed
    cuda.get_rng_state = lambda *words: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *words: torch.set_rng_state(state)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(cuda, name, lambda *words: 0)
    torch.Tensor.cuda = lambda self, *words, **more: self
    torch.nn.Module.cuda = lambda self, *words: self
    torch.Tensor.pin_memory = lambda self, *words, **more: self
    type_of = torch.Tensor.type

    def type_as_on_a_gpu(self, *words, **more):
        return type_of(self, *words, **more) if words or more else type_of(self).replace("torch.", "torch.cuda.")
    torch.Tensor.type = type_as_on_a_gpu


def lend_apex():
    class FusedAdam(torch.optim.AdamW):
        """Keeps its count of steps in the groups, as apex does."""

        def __init__(self, params, lr, weight_decay, betas, eps):
            super().__init__(params, lr=lr, weight_decay=weight_decay, betas=betas, eps=eps, foreach=False)

    def l2norm(overflow, lists, per_tensor):
        return torch.sqrt(sum((t.float() ** 2).sum() for t in lists[0])).view(1), None

    def scale(overflow, lists, factor):
        for source, target in zip(*lists):
            target.copy_(source * factor)

    module("apex")
    module("apex.optimizers", FusedAdam=FusedAdam, FusedSGD=torch.optim.SGD)
    module("apex.multi_tensor_apply", multi_tensor_applier=lambda op, overflow, lists, *words: op(overflow, lists, *words))
    module("amp_C", multi_tensor_l2norm=l2norm, multi_tensor_scale=scale)
    module("transformers", AutoTokenizer=None)
    module("torch._six", inf=float("inf"))  # dropped by torch 2.0

    def forward(x, shape, weight, bias, eps):
        y, mean, inverse = torch.native_layer_norm(x.float(), shape, weight.float(), bias.float(), eps)
        return y.to(weight.dtype), mean, inverse

    def backward(grad, mean, inverse, x, shape, weight, bias, eps):
        grads = torch.ops.aten.native_layer_norm_backward(grad.float(), x.float(), shape, mean, inverse, weight.float(), bias.float(),
                                                          [True, True, True])
        return grads[0].to(x.dtype), grads[1].to(weight.dtype), grads[2].to(bias.dtype)
    module("fused_mix_prec_layer_norm_cuda", forward_affine=forward, backward_affine=backward)


def compile_helpers(folder):
    target = os.path.join(folder, "megatron/data/helpers" + sysconfig.get_config_var("EXT_SUFFIX"))
    if not os.path.exists(target):
        include = [sysconfig.get_path("include"), os.path.join(os.path.dirname(torch.__file__), "include")]
        source = os.path.join(folder, "megatron/data/helpers.cpp")
        partial = "%s.%d" % (target, os.getpid())
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-std=c++17", *("-I" + path for path in include), source, "-o", partial], check=True)
        os.replace(partial, target)


def main(folder, losses_path, script, arguments):
    torch.set_num_threads(1)
    np.float, np.int, np.bool = float, int, bool
    lend_cuda()
    lend_apex()
    compile_helpers(folder)
    sys.path.insert(0, folder)
    sys.argv = [script + ".py", *arguments]
    import deepspeed  # before megatron, which takes parts of it by name

    import megatron.data.dataset_utils
    import megatron.fused_kernels
    import megatron.initialize
    import megatron.model.fused_softmax
    import megatron.mpu.random
    import megatron.training
    from megatron.enums import AttnMaskType
    megatron.data.dataset_utils.compile_helper = lambda: None
    megatron.fused_kernels.load = lambda args: None
    megatron.initialize.git_ds_info = lambda: None
    megatron.mpu.random._set_cuda_rng_state = lambda state, device=-1: torch.set_rng_state(state)
    checkpointing = sys.modules["deepspeed.runtime.activation_checkpointing.checkpointing"]
    checkpointing._set_cuda_rng_state = lambda state, device=-1: torch.set_rng_state(state)
    # Without DeepSpeed this commit's model hands on a causal mask that its own softmax asserts not to be there.
    softmax = megatron.model.fused_softmax.FusedScaleMaskSoftmax
    softmax_forward = softmax.forward
    softmax.forward = lambda self, x, mask: softmax_forward(self, x, None if self.attn_mask_type == AttnMaskType.causal else mask)
    # Later DeepSpeed wants its configuration once; this commit gives it in two places.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True  # torch's CPU kernels take it by now
    deepspeed_initialize = deepspeed.initialize

    def initialize_with_one_configuration(args, **more):
        args.deepspeed_config, kept = None, args.deepspeed_config
        result = deepspeed_initialize(args=args, **more)
        args.deepspeed_config = kept
        return result
    deepspeed.initialize = initialize_with_one_configuration
    initialize = megatron.training.initialize_megatron
    megatron.training.initialize_megatron = lambda **more: initialize(allow_no_cuda=True, **more)

    train_step = megatron.training.train_step

    def recording_step(*words):
        result = train_step(*words)
        if "lm loss" in result[0] and losses_path != "-" and torch.distributed.get_rank() == torch.distributed.get_world_size() - 1:
            with open(losses_path, "a") as file:
                file.write("%r\n" % sum(float(loss) for loss in result[0].values()))
        return result
    megatron.training.train_step = recording_step
    runpy.run_path(os.path.join(folder, script + ".py"), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
