"""Llama and similar models in transformers, for transformers_oracle.py: models of a case, and their tensors as ours.

A case names what spec::GptConfig does: "groups" (heads of keys and values), "head_size", "rotary" (transformers'
rope_parameters), "window", "qkv_bias", ... Ours keeps, group after group, a group's query heads, its key and its value
in query_key_value, and gate over up in dense_h_to_4h.
"""
import torch
from transformers import (GlmConfig, GlmForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          StableLmConfig, StableLmForCausalLM, Starcoder2Config, Starcoder2ForCausalLM)

LLAMA = {"num_layers": 2, "hidden": 24, "heads": 6, "groups": 2, "head_size": 4, "ffn": 20, "vocab": 61, "length": 33,
         "epsilon": 1e-5, "activation": "swiglu", "norm": "rms", "tied": False, "bias": False, "qkv_bias": False,
         "qk_norm": False, "interleaved": False, "window": 0,
         "rotary": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}}
COMMITTED = {
    # Of 4 frequencies at least one stays, one is stretched whole and one in part.
    "llama": {"family": "llama", **LLAMA, "head_size": 8, "rotary": {
        "rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "partial_rotary_factor": 1.0}},
    "llama_yarn": {"family": "llama", **LLAMA, "num_layers": 1, "groups": 6, "head_size": 10, "tied": True, "rotary": {
        "rope_type": "yarn", "rope_theta": 1e3, "factor": 3.0, "beta_fast": 8.0, "beta_slow": 1.0,
        "original_max_position_embeddings": 64, "partial_rotary_factor": 1.0}},
    "mistral": {"family": "mistral", **LLAMA, "window": 7, "groups": 3, "epsilon": 1e-6},
    "qwen2": {"family": "qwen2", **LLAMA, "tied": True, "qkv_bias": True, "groups": 1, "rotary": {
        "rope_type": "linear", "rope_theta": 1e4, "factor": 2.0, "partial_rotary_factor": 1.0}},
    "qwen3": {"family": "qwen3", **LLAMA, "tied": True, "qk_norm": True, "head_size": 6, "heads": 4, "epsilon": 1e-6},
    "phi3": {"family": "phi3", **LLAMA, "num_layers": 1, "hidden": 32, "heads": 4, "head_size": 8, "window": 20,
             "prompt_lengths": [33, 20, 17], "max_positions": 64, "rotary": {
                 "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                 "original_max_position_embeddings": 16, "short_factor": [1.0, 1.5], "long_factor": [1.25, 3.0]}},
    "glm": {"family": "glm", **LLAMA, "num_layers": 1, "qkv_bias": True, "head_size": 8, "interleaved": True, "rotary": {
        "rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    "starcoder2": {"family": "starcoder2", **LLAMA, "num_layers": 1, "activation": "gelu_tanh", "norm": "layer",
                   "bias": True, "qkv_bias": True, "tied": True},
}
FAMILIES = {"llama": (LlamaConfig, LlamaForCausalLM), "mistral": (MistralConfig, MistralForCausalLM),
            "qwen2": (Qwen2Config, Qwen2ForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM),
            "phi3": (Phi3Config, Phi3ForCausalLM), "glm": (GlmConfig, GlmForCausalLM),
            "stablelm": (StableLmConfig, StableLmForCausalLM), "starcoder2": (Starcoder2Config, Starcoder2ForCausalLM)}
HIDDEN_ACT = {"swiglu": "silu", "reglu": "relu", "geglu": "gelu", "geglu_tanh": "gelu_pytorch_tanh",
              "gelu_tanh": "gelu_pytorch_tanh", "gelu_erf": "gelu", "relu": "relu", "silu": "silu"}


def fresh_rotary(rng):
    theta, original = rng.choice([1e2, 1e4, 1e6]), rng.choice([16, 64, 256])
    common = {"rope_theta": theta, "partial_rotary_factor": 1.0, "factor": rng.uniform(1.5, 16)}
    return rng.choice([
        {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": 1.0},
        {"rope_type": "linear", **common},
        {"rope_type": "yarn", **common, "original_max_position_embeddings": original, "beta_slow": 1.0,
         "beta_fast": rng.uniform(2, 40)},
        {"rope_type": "llama3", **common, "original_max_position_embeddings": original,
         "low_freq_factor": rng.uniform(0.5, 2), "high_freq_factor": rng.uniform(2.5, 8)}])


def fresh_case(rng):
    family = rng.choice(["llama", "mistral", "qwen2", "qwen3", "glm", "stablelm", "starcoder2"])
    groups = rng.randint(1, 4)
    heads, size = groups * rng.randint(1, 4), 2 * rng.randint(1, 8)
    case = {"family": family, **LLAMA, "num_layers": rng.randint(1, 3), "heads": heads, "groups": groups,
            "head_size": size, "hidden": heads * size, "ffn": rng.randint(1, 100), "vocab": rng.randint(5, 200),
            "length": rng.randint(2, 100), "epsilon": rng.choice([1e-5, 1e-6, 1e-3]), "tied": rng.random() < 0.5,
            "rotary": fresh_rotary(rng), "activation": rng.choice(["swiglu", "reglu", "geglu", "geglu_tanh"])}
    if family == "mistral":
        case["window"] = rng.randint(1, 50)
    if family == "qwen2":
        case["qkv_bias"] = True
    if family == "qwen3":
        case["qk_norm"] = True
    if family in ("glm", "stablelm"):
        case.update(qkv_bias=rng.random() < 0.5, interleaved=family == "glm", norm="rms" if family == "glm" else "layer",
                    rotary={**case["rotary"], "partial_rotary_factor": rng.choice([1.0, (size // 4 * 2 or 2) / size])})
    if family == "starcoder2":
        case.update(norm="layer", bias=True, qkv_bias=True, window=rng.choice([0, 5]), interleaved=False,
                    activation=rng.choice(["gelu_tanh", "gelu_erf", "relu", "silu"]))
    return case


def new_model(case, new_tokens):
    settings = {
        "vocab_size": case["vocab"], "hidden_size": case["hidden"], "intermediate_size": case["ffn"],
        "num_hidden_layers": case["num_layers"], "num_attention_heads": case["heads"],
        "num_key_value_heads": case["groups"], "head_dim": case["head_size"], "hidden_act": HIDDEN_ACT[case["activation"]],
        "max_position_embeddings": case.get("max_positions", case["length"] + new_tokens),
        "rope_parameters": dict(case["rotary"]), "tie_word_embeddings": case["tied"], "bos_token_id": None,
        "eos_token_id": None, "pad_token_id": None, "attn_implementation": "eager"}
    family = case["family"]
    if family in ("mistral", "phi3", "starcoder2"):
        settings["sliding_window"] = case["window"] or None
    if family == "glm":
        settings["attention_bias"] = case["qkv_bias"]
    if family == "stablelm":
        settings["use_qkv_bias"] = case["qkv_bias"]
    if family == "phi3":
        settings["original_max_position_embeddings"] = case["rotary"]["original_max_position_embeddings"]
    epsilon = {"stablelm": "layer_norm_eps", "starcoder2": "norm_epsilon"}.get(family, "rms_norm_eps")
    settings[epsilon] = case["epsilon"]
    config, model = FAMILIES[family]
    if family == "starcoder2":
        settings.update(use_bias=True, residual_dropout=0.0, embedding_dropout=0.0)
    return model(config(**settings)).float().eval()


def query_key_value(q, k, v, case):
    """[groups * (queries, key, value) of the group, ...] from all queries, all keys, all values."""
    groups = case["groups"]
    parts = [tensor.reshape(groups, -1, *tensor.shape[1:]) for tensor in (q, k, v)]
    return torch.cat(parts, dim=1).reshape(-1, *q.shape[1:])


def our_block(theirs, prefix, case):
    """Pairs of our name and tensor; `theirs(name)` is a tensor of the block, or None."""
    size = case["head_size"]
    yield "input_layernorm.weight", theirs("input_layernorm.weight")
    yield "post_attention_layernorm.weight", theirs("post_attention_layernorm.weight")
    for kind in ("weight", "bias"):
        packed = theirs(f"self_attn.qkv_proj.{kind}")
        if packed is not None:
            q, k, v = packed.split([case["heads"] * size, case["groups"] * size, case["groups"] * size])
        else:
            q, k, v = (theirs(f"self_attn.{x}_proj.{kind}") for x in "qkv")
        if q is not None:
            yield f"self_attention.query_key_value.{kind}", query_key_value(q, k, v, case)
        yield f"self_attention.dense.{kind}", theirs(f"self_attn.o_proj.{kind}")
        gate, up = theirs(f"mlp.gate_proj.{kind}"), theirs(f"mlp.up_proj.{kind}")
        inner = torch.cat([gate, up]) if gate is not None else theirs(f"mlp.gate_up_proj.{kind}")
        yield f"mlp.dense_h_to_4h.{kind}", inner if inner is not None else theirs(f"mlp.c_fc.{kind}")
        outer = theirs(f"mlp.down_proj.{kind}")
        yield f"mlp.dense_4h_to_h.{kind}", outer if outer is not None else theirs(f"mlp.c_proj.{kind}")
    yield "input_layernorm.bias", theirs("input_layernorm.bias")
    yield "post_attention_layernorm.bias", theirs("post_attention_layernorm.bias")
    yield "self_attention.query_norm.weight", theirs("self_attn.q_norm.weight")
    yield "self_attention.key_norm.weight", theirs("self_attn.k_norm.weight")


def our_tensors(tensors, case):
    """`tensors` of a whole model by transformers' names -> the same by ours."""
    whole = {"word_embeddings.weight": "model.embed_tokens.weight", "final_layernorm.weight": "model.norm.weight",
             "final_layernorm.bias": "model.norm.bias", "lm_head.weight": "lm_head.weight"}
    ours = {name: tensors[theirs] for name, theirs in whole.items() if theirs in tensors}
    for layer in range(case["num_layers"]):
        prefix = f"model.layers.{layer}."
        for name, tensor in our_block(lambda theirs: tensors.get(prefix + theirs), prefix, case):
            if tensor is not None:
                ours[f"layers.{layer}.{name}"] = tensor
    assert sum(t.numel() for t in ours.values()) == sum(t.numel() for t in tensors.values()), "a tensor was left out"
    return ours
