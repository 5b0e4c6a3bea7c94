// Kinds of layers that families choose from, by the names of Megatron's options.
#pragma once

namespace espalier::spec {

enum class Normalization { kLayerNorm, kRmsNorm };
// Those from kSwiglu on are gated: activation(gate) * up (Shazeer 2020), with silu, erf gelu, tanh gelu, relu and none.
enum class Activation { kGeluTanh, kGeluErf, kRelu, kSquaredRelu, kSilu, kSwiglu, kGeglu, kGegluTanh, kReglu, kLiglu };

constexpr bool is_gated(Activation activation) { return activation >= Activation::kSwiglu; }

}  // namespace espalier::spec
