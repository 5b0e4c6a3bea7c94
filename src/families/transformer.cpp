#include "families/transformer.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace espalier::families {

using spec::Init;
using spec::Placement;

namespace {

spec::MatrixRows whole_matrix(int64_t rows) { return {.first = 0, .count = rows, .stride = rows, .times = 1}; }

// Of rows that come in groups, each with this many rows of every matrix, one after the other.
std::vector<spec::MatrixRows> matrices_of_groups(const std::vector<int64_t>& rows, int64_t num_groups) {
  const int64_t stride = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  std::vector<spec::MatrixRows> matrices;
  int64_t first = 0;
  for (const int64_t count : rows) {
    matrices.push_back({.first = first, .count = count, .stride = stride, .times = num_groups});
    first += count;
  }
  return matrices;
}

}  // namespace

std::string TransformerShape::layer_name(int64_t layer) const { return prefix + "layers." + std::to_string(layer); }

spec::ParamSpec& ParamList::add(const std::string& name, std::vector<int64_t> shape, Placement placement, Init init,
                                bool decay) {
  specs_.push_back({.name = name,
                    .shape = std::move(shape),
                    .tensor_placement = std::move(placement),
                    .depth = depth_,
                    .init = init,
                    .weight_decay = decay,
                    .matrices = {}});
  return specs_.back();
}

void ParamList::add_norm(const std::string& name, int64_t size, spec::Normalization kind) {
  add(name + ".weight", {size}, Placement::replicated(), Init::constant(1), false);
  if (kind == spec::Normalization::kLayerNorm)
    add(name + ".bias", {size}, Placement::replicated(), Init::constant(0), false);
}

void ParamList::add_dense(const std::string& name, int64_t rows, int64_t columns, Init init) {
  add(name + ".weight", {rows, columns}, Placement::replicated(), init, true);
  add(name + ".bias", {rows}, Placement::replicated(), Init::constant(0), false);
}

void ParamList::add_layer(const TransformerShape& shape, int64_t layer) {
  set_depth(shape.depth_of(layer));
  const int64_t hidden = shape.hidden_size;
  const Init normal = Init::normal(shape.init_method_std);
  const Init scaled_normal =
      Init::normal(shape.init_method_std / std::sqrt(2.0 * static_cast<double>(shape.num_layers)));
  // A column-parallel linear layer splits its rows (and bias) over tensor ranks, a row-parallel one its columns.
  const auto add_column = [&](const std::string& name, const std::vector<int64_t>& segments, int64_t unit, bool bias,
                              std::vector<spec::MatrixRows> matrices) {
    const int64_t rows = std::accumulate(segments.begin(), segments.end(), int64_t{0});
    add(name + ".weight", {rows, hidden}, Placement::split(0, segments, unit), normal, true).matrices =
        std::move(matrices);
    if (bias) add(name + ".bias", {rows}, Placement::split(0, segments, unit), Init::constant(0), false);
  };
  const auto add_row = [&](const std::string& name, int64_t columns, int64_t unit) {
    add(name + ".weight", {hidden, columns}, Placement::split(1, {columns}, unit), scaled_normal, true).matrices = {
        whole_matrix(hidden)};
    if (shape.add_bias_linear) add(name + ".bias", {hidden}, Placement::replicated(), Init::constant(0), false);
  };
  // Every tensor rank has it for its own heads.
  const auto add_head_norm = [&](const std::string& name) {
    add(name + ".weight", {shape.kv_channels}, Placement::replicated(), Init::constant(1), false).use_is_split = true;
  };

  const int64_t projection = shape.num_attention_heads * shape.kv_channels;
  const int64_t head = shape.kv_channels, groups = shape.num_groups, queries = projection / groups;
  const std::vector<int64_t> inner(spec::is_gated(shape.activation) ? 2 : 1, shape.ffn_hidden_size);
  const bool bias_of_projections = shape.add_bias_linear || shape.add_qkv_bias;
  const std::string prefix = shape.layer_name(layer) + ".";
  add_norm(prefix + "input_layernorm", hidden, shape.normalization);
  add_column(prefix + "self_attention.query_key_value", {shape.num_groups * shape.group_channels()},
             shape.group_channels(), bias_of_projections, matrices_of_groups({queries, head, head}, groups));
  if (shape.qk_layernorm) {
    add_head_norm(prefix + "self_attention.query_norm");
    add_head_norm(prefix + "self_attention.key_norm");
  }
  add_row(prefix + "self_attention.dense", projection, projection / shape.num_groups);
  add_norm(prefix + "post_attention_layernorm", hidden, shape.normalization);
  if (shape.cross_attention) {
    add_column(prefix + "inter_attention.query", {projection}, queries, bias_of_projections,
               {whole_matrix(projection)});
    // Groups of a key and its value.
    add_column(prefix + "inter_attention.key_value", {groups * 2 * head}, 2 * head, bias_of_projections,
               matrices_of_groups({head, head}, groups));
    add_row(prefix + "inter_attention.dense", projection, projection / shape.num_groups);
    add_norm(prefix + "post_inter_attention_layernorm", hidden, shape.normalization);
  }
  add_column(prefix + "mlp.dense_h_to_4h", inner, 1, shape.add_bias_linear, matrices_of_groups(inner, 1));
  add_row(prefix + "mlp.dense_4h_to_h", shape.ffn_hidden_size, 1);
}

double layer_flops(const TransformerShape& shape, const LayerTokens& sizes) {
  const double hidden = static_cast<double>(shape.hidden_size);
  const double projection = static_cast<double>(shape.num_attention_heads * shape.kv_channels);
  const double qkv = static_cast<double>(shape.num_groups * shape.group_channels());
  const double ffn = static_cast<double>(shape.ffn_hidden_size);
  // Multiply-adds of one token: query, key, value and output projections; the two layers of the MLP, or three if gated.
  const double linear = hidden * (qkv + projection) + (spec::is_gated(shape.activation) ? 3 : 2) * hidden * ffn;
  // Each pair costs a product with the key and one with the value.
  double products = sizes.tokens * linear + 2 * sizes.pairs * projection;
  if (shape.cross_attention) {
    const double keys_and_values = 2 * static_cast<double>(shape.num_groups * shape.kv_channels);
    products += 2 * sizes.tokens * hidden * projection + sizes.other_tokens * hidden * keys_and_values +
                2 * sizes.tokens * sizes.other_tokens * projection;
  }
  return 2 * products;
}

spec::GhostProgram layer_ghost(const TransformerShape& shape) {
  const spec::GhostAttention attention{
      .projection = static_cast<double>(shape.num_attention_heads * shape.kv_channels),
      .qkv = static_cast<double>(shape.num_groups * shape.group_channels()),
      .heads = static_cast<double>(shape.num_attention_heads),
      .normed_heads = shape.qk_layernorm ? static_cast<double>(shape.num_attention_heads + shape.num_groups) : 0,
      .rotary = shape.rotary};
  const double ffn = static_cast<double>(shape.ffn_hidden_size);
  const double inner = spec::is_gated(shape.activation) ? 2 * ffn : ffn;
  const spec::Normalization norm = shape.normalization;
  const bool crosses = shape.cross_attention;
  return [=](spec::GhostOps& ops, const spec::Ghost& x) {
    const spec::Ghost attention_input = ops.norm(x, norm, true);
    spec::Ghost a = ops.self_attention(attention_input, attention);
    if (crosses) {
      const spec::Ghost cross_input = ops.norm(a, norm, true);
      a = ops.cross_attention(cross_input, attention);
    }
    const spec::Ghost mlp_input = ops.norm(a, norm, true);
    return ops.mlp(mlp_input, inner, ffn);
  };
}

spec::Depth layer_depth(const TransformerShape& shape, const LayerTokens& sizes) {
  const double tokens = sizes.tokens, other = sizes.other_tokens;
  const double hidden = static_cast<double>(shape.hidden_size);
  const double row = tokens * static_cast<double>(shape.num_attention_heads * shape.kv_channels);
  spec::Depth depth;
  depth.tokens = tokens;
  depth.other_tokens = other;
  depth.passed_on = (tokens + other) * hidden;
  depth.forward_flops = layer_flops(shape, sizes);
  depth.megatron_flops = 24 * tokens * hidden * hidden + 4 * tokens * tokens * hidden;
  // After attention and MLP on the way forward, before them on the way back.
  depth.summed_forward = depth.summed_backward = 2 * tokens * hidden;
  if (shape.cross_attention) {
    // Queries and the result cost 4 h^2 a token, keys and values 4 h^2 a token of the other sequence.
    depth.megatron_flops += 4 * (tokens + other) * hidden * hidden + 4 * tokens * other * hidden;
    depth.summed_forward += tokens * hidden;
    depth.summed_backward += (tokens + other) * hidden;
  }
  depth.exchanged = (3 + 1) * row;  // queries, keys and values; the result
  depth.ghost = layer_ghost(shape);
  return depth;
}

}  // namespace espalier::families
