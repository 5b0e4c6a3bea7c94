"""The models that are trained for the figures: their sizes, Espalier's options for them, and the arithmetic of a token.

train_peer.py builds the same models in PyTorch from the same sizes, and the number of parameters tells that they are.
"""
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    name: str
    note: str
    layers: int
    hidden: int
    heads: int
    vocabulary: int
    positions: str  # "learned", "alibi", "rotary"
    key_value_heads: int = 0  # as many as heads
    ffn: int = 0  # four times the width
    gated: bool = False  # silu(gate) * up; else tanh GELU
    rms_norm: bool = False
    embedding_norm: bool = False
    bias: bool = True

    @property
    def groups(self):
        return self.key_value_heads or self.heads

    @property
    def inner(self):
        return self.ffn or 4 * self.hidden

    @property
    def products(self):
        """(inputs, outputs) of the linear layers of a block."""
        keys = self.hidden // self.heads * self.groups
        return [(self.hidden, self.hidden + 2 * keys), (self.hidden, self.hidden),
                (self.hidden, self.inner * (2 if self.gated else 1)), (self.inner, self.hidden)]

    def parameters(self, max_positions):
        norm = self.hidden * (1 if self.rms_norm else 2)
        linear = sum(inputs * outputs + (outputs if self.bias else 0) for inputs, outputs in self.products)
        return (self.layers * (linear + 2 * norm) + norm * (2 if self.embedding_norm else 1)
                + self.hidden * (self.vocabulary + (max_positions if self.positions == "learned" else 0)))

    def flops_per_token(self, length):
        """Two per multiply-add, three passes, causal attention once: plan/flops.h."""
        weights = sum(inputs * outputs for inputs, outputs in self.products)
        return 6 * (self.layers * (weights + (length + 1) * self.hidden) + self.hidden * self.vocabulary)

    def flags(self, max_positions):
        words = f"""--num-layers {self.layers} --hidden-size {self.hidden} --num-attention-heads {self.heads}
            --num-key-value-heads {self.groups} --ffn-hidden-size {self.inner}
            --max-position-embeddings {max_positions} --pad-vocab-size-to {self.vocabulary}""".split()
        if self.positions != "learned":
            words += ["--position-embedding-type", self.positions]
        return (words + ["--swiglu"] * self.gated + ["--normalization", "rmsnorm"] * self.rms_norm
                + ["--embed-layernorm"] * self.embedding_norm + ["--disable-bias-linear"] * (not self.bias))


SHAPES = {shape.name: shape for shape in [
    Shape("gpt2", "GPT-2 124M, its vocabulary rounded up", 12, 768, 12, 50304, "learned"),
    Shape("bloom", "BLOOM-350M, 50,304 rows instead of 250,880 of its vocabulary", 24, 1024, 16, 50304, "alibi",
          embedding_norm=True),
    Shape("llama", "Llama-3.2-1B, 4 layers instead of 16 and 32,000 rows instead of 128,256 of its vocabulary",
          4, 2048, 32, 32000, "rotary", key_value_heads=8, ffn=8192, gated=True, rms_norm=True, bias=False),
]}
# Those that a GPU trains in gpu.py.
GPU_SHAPES = {shape.name: shape for shape in [
    SHAPES["gpt2"],
    Shape("gpt2-xl", "GPT-2 1.5B, its vocabulary rounded up", 48, 1600, 25, 50304, "learned"),
    Shape("llama-8b", "Llama-3-8B, 8 layers instead of 32 and 32,000 rows instead of 128,256 of its vocabulary",
          8, 4096, 32, 32000, "rotary", key_value_heads=8, ffn=14336, gated=True, rms_norm=True, bias=False),
]}


def shape_of(name, layers=None):
    shape = (SHAPES | GPU_SHAPES)[name]
    return replace(shape, layers=layers, note=f"{layers} layers only") if layers else shape
