#include "convert/hf/tensors.h"

#include "base/error.h"

namespace espalier::convert {
namespace {

using families::GptConfig;
using Shape = std::vector<int64_t>;

// Adds the tensors of one model, part by part. Legend: h hidden, p heads * head size, f width of the MLP.
class MapBuilder {
 public:
  MapBuilder(HfFamily family, const GptConfig& config, const HfLayout& layout)
      : family_(family), config_(config), layout_(layout), hidden_(config.hidden_size) {
    for (const spec::ParamSpec& spec : families::gpt_params(config)) map_.ours.add(spec.name, spec.shape);
  }

  TensorMap build() {
    add_embedding();
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      ours_ = "layers." + std::to_string(layer) + ".";
      if (is_llama_like(family_))
        add_llama_layer(base() + "layers." + std::to_string(layer) + ".");
      else if (family_ == HfFamily::kGpt2)
        add_gpt2_layer(base() + "h." + std::to_string(layer) + ".");
      else
        add_bloom_layer(base() + "h." + std::to_string(layer) + ".");
    }
    ours_ = "";
    same("final_layernorm.weight", base() + (is_llama_like(family_) ? "norm.weight" : "ln_f.weight"));
    if (!is_llama_like(family_)) same("final_layernorm.bias", base() + "ln_f.bias");
    add_head();
    map_.check();
    return std::move(map_);
  }

 private:
  std::string base() const {
    if (!layout_.has_prefix) return "";
    return is_llama_like(family_) ? "model." : "transformer.";
  }
  size_t ours(const std::string& name) const { return map_.ours.number_of(ours_ + name); }

  // The same shape on both sides.
  void same(const std::string& name, const std::string& theirs) {
    map_.add(whole(map_, ours(name), map_.theirs.add(theirs, map_.ours[ours(name)].shape)));
  }
  void same_module(const std::string& name, const std::string& theirs, bool has_bias) {
    same(name + ".weight", theirs + ".weight");
    if (has_bias) same(name + ".bias", theirs + ".bias");
  }

  // Rows of a vocabulary; ours may have more.
  void add_vocabulary(const std::string& name, const std::string& theirs_name) {
    const size_t theirs = map_.theirs.add(theirs_name, {layout_.vocab_rows, hidden_});
    map_.add(rows(map_, ours(name), 0, theirs, 0, layout_.vocab_rows));
    const int64_t padding = config_.padded_vocab_size - layout_.vocab_rows;
    if (padding > 0) map_.our_padding.push_back({ours(name), layout_.vocab_rows * hidden_, padding * hidden_});
  }

  void add_embedding() {
    if (is_llama_like(family_)) return add_vocabulary("word_embeddings.weight", base() + "embed_tokens.weight");
    const bool is_bloom = family_ == HfFamily::kBloom;
    add_vocabulary("word_embeddings.weight", base() + (is_bloom ? "word_embeddings.weight" : "wte.weight"));
    if (is_bloom) same_module("word_embeddings.norm", base() + "word_embeddings_layernorm", true);
    if (!is_bloom) same("position_embeddings.weight", base() + "wpe.weight");
  }

  void add_head() {
    if (!config_.tie_output) return add_vocabulary("lm_head.weight", "lm_head.weight");
    if (!layout_.stores_head) return;
    const size_t theirs = map_.theirs.add("lm_head.weight", {layout_.vocab_rows, hidden_});
    map_.add(rows(map_, ours("word_embeddings.weight"), 0, theirs, 0, layout_.vocab_rows));
    map_.pieces.back().is_copy = true;
  }

  void add_bloom_layer(const std::string& theirs) {
    for (const char* name : {"input_layernorm", "self_attention.query_key_value", "self_attention.dense",
                             "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"})
      same_module(name, theirs + name, true);
  }

  // Conv1D: weights are stored [in, out]; c_attn has all queries, then all keys, then all values.
  void add_gpt2_layer(const std::string& theirs) {
    same_module("input_layernorm", theirs + "ln_1", true);
    same_module("post_attention_layernorm", theirs + "ln_2", true);
    const int64_t heads = config_.num_attention_heads, head = config_.kv_channels;
    const size_t weight = ours("self_attention.query_key_value.weight"),
                 bias = ours("self_attention.query_key_value.bias");
    const size_t their_weight = map_.theirs.add(theirs + "attn.c_attn.weight", {hidden_, 3 * hidden_});
    const size_t their_bias = map_.theirs.add(theirs + "attn.c_attn.bias", {3 * hidden_});
    for (int64_t part = 0; part < 3; ++part) {
      map_.add({.sizes = {heads, head, hidden_},
                .ours = {weight, part * head * hidden_, {3 * head * hidden_, hidden_, 1}},
                .theirs = {their_weight, part * hidden_, {head, 1, 3 * hidden_}}});
      map_.add({.sizes = {heads, head},
                .ours = {bias, part * head, {3 * head, 1}},
                .theirs = {their_bias, part * hidden_, {head, 1}}});
    }
    add_conv("self_attention.dense", theirs + "attn.c_proj");
    add_conv("mlp.dense_h_to_4h", theirs + "mlp.c_fc");
    add_conv("mlp.dense_4h_to_h", theirs + "mlp.c_proj");
  }
  void add_conv(const std::string& name, const std::string& theirs) {
    const Shape& shape = map_.ours[ours(name + ".weight")].shape;
    map_.add(transposed(map_, ours(name + ".weight"), map_.theirs.add(theirs + ".weight", {shape[1], shape[0]})));
    same(name + ".bias", theirs + ".bias");
  }

  void add_llama_layer(const std::string& theirs) {
    same("input_layernorm.weight", theirs + "input_layernorm.weight");
    same("post_attention_layernorm.weight", theirs + "post_attention_layernorm.weight");
    add_qkv("weight", theirs + "self_attn.", hidden_);
    if (config_.add_bias_linear || config_.add_qkv_bias) add_qkv("bias", theirs + "self_attn.", 1);
    if (config_.qk_layernorm) {
      same("self_attention.query_norm.weight", theirs + "self_attn.q_norm.weight");
      same("self_attention.key_norm.weight", theirs + "self_attn.k_norm.weight");
    }
    same_module("self_attention.dense", theirs + "self_attn.o_proj", config_.add_bias_linear);
    add_gate_and_up("weight", theirs + "mlp.");
    if (config_.add_bias_linear) add_gate_and_up("bias", theirs + "mlp.");
    same_module("mlp.dense_4h_to_h", theirs + "mlp.down_proj", config_.add_bias_linear);
  }

  // Ours: for each group its query heads, its key, its value. Theirs: all queries, all keys, all values, in three
  // tensors or (Phi-3) one. `row`: elements of a row.
  void add_qkv(const std::string& kind, const std::string& theirs, int64_t row) {
    const int64_t groups = config_.num_groups(), head = config_.kv_channels;
    const int64_t queries = config_.num_attention_heads / groups;
    const size_t fused = ours("self_attention.query_key_value." + kind);
    const auto shape = [&](int64_t count) { return row == 1 ? Shape{count} : Shape{count, row}; };
    const bool is_one = family_ == HfFamily::kPhi3;
    size_t target = 0;
    if (is_one) target = map_.theirs.add(theirs + "qkv_proj." + kind, shape(groups * (queries + 2) * head));
    int64_t our_head = 0, their_head = 0;  // heads before this part: within a group of ours, in all of theirs
    for (const auto& [name, count] :
         {std::pair{"q_proj.", queries}, {"k_proj.", int64_t{1}}, {"v_proj.", int64_t{1}}}) {
      if (!is_one) target = map_.theirs.add(theirs + name + kind, shape(groups * count * head));
      map_.add({.sizes = {groups, count * head * row},
                .ours = {fused, our_head * head * row, {config_.group_channels() * row, 1}},
                .theirs = {target, (is_one ? their_head : 0) * head * row, {count * head * row, 1}}});
      our_head += count, their_head += groups * count;
    }
  }

  void add_gate_and_up(const std::string& kind, const std::string& theirs) {
    const size_t both = ours("mlp.dense_h_to_4h." + kind);
    const Shape& shape = map_.ours[both].shape;
    if (family_ == HfFamily::kPhi3) {
      map_.add(whole(map_, both, map_.theirs.add(theirs + "gate_up_proj." + kind, shape)));
      return;
    }
    Shape half = shape;
    half[0] = config_.ffn_hidden_size;
    map_.add(rows(map_, both, 0, map_.theirs.add(theirs + "gate_proj." + kind, half), 0, half[0]));
    map_.add(rows(map_, both, half[0], map_.theirs.add(theirs + "up_proj." + kind, half), 0, half[0]));
  }

  HfFamily family_;
  const GptConfig& config_;
  HfLayout layout_;
  int64_t hidden_;
  std::string ours_;  // prefix of the names of ours
  TensorMap map_;
};

bool ends_with(const std::string& name, const std::string& ending) { return name.ends_with(ending); }

}  // namespace

TensorMap hf_tensor_map(HfFamily family, const GptConfig& config, const HfLayout& layout) {
  ESPALIER_CHECK(obstacles(family, config).empty(), names_of(family).model_type);
  ESPALIER_CHECK(layout.vocab_rows > 0 && layout.vocab_rows <= config.padded_vocab_size);
  return MapBuilder(family, config, layout).build();
}

HfLayout layout_of(const std::set<std::string>& names, HfFamily family, int64_t vocab_rows) {
  const std::string embedding = family == HfFamily::kGpt2    ? "wte.weight"
                                : family == HfFamily::kBloom ? "word_embeddings.weight"
                                                             : "embed_tokens.weight";
  return {.vocab_rows = vocab_rows,
          .has_prefix = !names.contains(embedding),
          .stores_head = names.contains("lm_head.weight")};
}

bool is_buffer(const std::string& name) {
  return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
         ends_with(name, ".rotary_emb.inv_freq");
}

}  // namespace espalier::convert
