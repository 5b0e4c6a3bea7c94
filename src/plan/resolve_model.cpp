// Cross-checks of the options that give the shape of the model, and the fields that they leave to be derived.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/literal.h"
#include "plan/internal/gpt_rows.h"
#include "plan/internal/resolver.h"

namespace espalier::plan::internal {

using spec::PositionEmbedding;

constexpr int64_t kMostRotated = 1024;  // kernels/rotary.h

void Resolver::resolve_length() {
  DataConfig& data = config_.data;
  if (data.seq_length && data.encoder_seq_length) {
    problems_.add(origin("--seq-length"), " and ", origin("--encoder-seq-length"), " are the same option; give one");
  } else if (!data.seq_length && !data.encoder_seq_length) {
    problems_.add("--seq-length is required: tokens of one sample");
  }
  data.sequence_length = data.seq_length.value_or(data.encoder_seq_length.value_or(0));
  const std::vector<int64_t>& cyclic = data.cyclic_layout;
  const auto is_size = [](int64_t size) { return size >= 1 && size <= 1000000; };
  if (!cyclic.empty() && data.dataloader_type != DataloaderType::kCyclic)
    problems_.add(origin("--cyclic-layout"), " needs --dataloader-type cyclic; leave it out, or give both");
  if (!cyclic.empty() && (cyclic.size() != 2 || !is_size(cyclic[0]) || !is_size(cyclic[1])))
    problems_.add(origin("--cyclic-layout"),
                  " takes 2 numbers, the micro-batch size and the data-parallel size of the run whose order is to be "
                  "read, each 1 to 1000000; for example --cyclic-layout 4 8");
  if (data.sequence_length == 0) return;
  spec::GptConfig& model = config_.model;
  const bool any_length = model.position_embedding == spec::PositionEmbedding::kRotary ||
                          model.position_embedding == spec::PositionEmbedding::kNone;
  if (model.max_position_embeddings == 0 && any_length) {
    model.max_position_embeddings = data.sequence_length;
  } else if (model.max_position_embeddings == 0) {
    problems_.add("--max-position-embeddings is required: the longest sequence of the model, at least ",
                  data.sequence_length, " (the sequence length)");
  } else if (model.max_position_embeddings < data.sequence_length) {
    problems_.add(origin("--max-position-embeddings"), " is below the sequence length ", data.sequence_length, "; use ",
                  data.sequence_length, " or more");
  }
}

void Resolver::resolve_model() {
  spec::GptConfig& model = config_.model;
  model.tie_output = !config_.model_options.untie_output;
  resolve_activation();
  const int64_t hidden = model.hidden_size, heads = model.num_attention_heads;
  if (hidden > 0 && heads > 0 && model.kv_channels == 0) {
    if (hidden % heads != 0)
      problems_.add(origin("--hidden-size"), " is not a multiple of ", origin("--num-attention-heads"),
                    "; use a hidden size of ", multiples_near(hidden, heads), ", or ", divisors_near(heads, hidden),
                    " heads, or give --kv-channels");
    model.kv_channels = hidden / heads;
  }
  resolve_groups();
  resolve_rotary();
  resolve_window();
  if (model.qk_layernorm && model.normalization != spec::Normalization::kRmsNorm)
    problems_.add(
        "--qk-layernorm is an RMS norm of every head and goes with --normalization rmsnorm; give both, or "
        "leave --qk-layernorm out");
  for (const char* name : {"--hidden-dropout", "--attention-dropout"}) {
    const double rate = std::string(name) == "--hidden-dropout" ? model.hidden_dropout : model.attention_dropout;
    if (rate >= 1) problems_.add(origin(name), " drops everything; use a share below 1, such as 0.1");
  }
  for (const char* name : {"--adam-beta1", "--adam-beta2"}) {
    const double beta =
        std::string(name) == "--adam-beta1" ? config_.optimizer.adam_beta1 : config_.optimizer.adam_beta2;
    if (beta >= 1) problems_.add(origin(name), " never forgets; use a number below 1, such as 0.9 or 0.999");
  }
  const TokenizerConfig& tokenizer = config_.tokenizer;
  if (tokenizer.pad_vocab_size_to && *tokenizer.pad_vocab_size_to % tokenizer.make_vocab_size_divisible_by != 0) {
    const int64_t divisor = tokenizer.make_vocab_size_divisible_by;
    problems_.add(origin("--pad-vocab-size-to"), ": ", *tokenizer.pad_vocab_size_to, " is not divisible by ", divisor,
                  " (--make-vocab-size-divisible-by); use ", multiples_near(*tokenizer.pad_vocab_size_to, divisor));
  }
}

// Leaves --num-key-value-heads, and nothing of NVIDIA's pair of options.
void Resolver::resolve_groups() {
  ModelOptions& options = config_.model_options;
  const int64_t heads = config_.model.num_attention_heads;
  const char* name = options.num_key_value_heads ? "--num-key-value-heads" : "--num-query-groups";
  if (options.num_query_groups && !options.group_query_attention) {
    problems_.add(origin("--num-query-groups"), " is not read by Megatron without --group-query-attention; give both, ",
                  "or --num-key-value-heads ", *options.num_query_groups);
  } else if (options.group_query_attention) {
    const int64_t groups = options.num_query_groups.value_or(options.num_key_value_heads.value_or(1));
    if (options.num_key_value_heads.value_or(groups) != groups)
      problems_.add(origin("--num-query-groups"), " and ", origin("--num-key-value-heads"), " differ; give one");
    options.num_key_value_heads = groups;
    if (!options.num_query_groups) name = "--group-query-attention";
    options.num_query_groups.reset();
    options.group_query_attention = false;
  }
  config_.model.num_query_groups = options.num_key_value_heads.value_or(heads);
  if (heads > 0 && heads % config_.model.num_query_groups != 0) {
    problems_.add(origin(name), ": ", config_.model.num_query_groups, " heads of keys and values do not divide ",
                  origin("--num-attention-heads"), "; use ", divisors_near(config_.model.num_query_groups, heads));
    config_.model.num_query_groups = heads;
  }
}

// Leaves --activation, or the options of gelu where it is one of these.
void Resolver::resolve_activation() {
  ModelOptions& options = config_.model_options;
  spec::GptConfig& model = config_.model;
  const auto name_one = [&](const char* row, const std::string& activation) {
    if (!options.activation.empty() && options.activation != activation)
      problems_.add(origin(row), ": the activation is ", options.activation, " already; give one of the two");
    options.activation = activation;
  };
  const bool two_thirds = options.swiglu;
  if (!options.glu_activation.empty()) name_one("--glu-activation", options.glu_activation);
  if (options.swiglu) name_one("--swiglu", "swiglu");
  if (options.squared_relu) name_one("--squared-relu", "squared_relu");
  options.glu_activation.clear();
  options.swiglu = options.squared_relu = false;
  const bool is_tanh = options.gelu_is_fused || options.openai_gelu;
  model.activation = is_tanh ? spec::Activation::kGeluTanh : spec::Activation::kGeluErf;
  for (const auto& [name, activation] : activation_names())
    if (name == options.activation) model.activation = activation;
  if (model.hidden_size == 0 || model.ffn_hidden_size != 0) return;
  model.ffn_hidden_size = two_thirds ? model.hidden_size * 8 / 3 / 64 * 64 : 4 * model.hidden_size;
  if (model.ffn_hidden_size == 0)
    problems_.add("--swiglu makes the MLP's width 2/3 of 4 * hidden size in multiples of 64, which is 0 for ",
                  origin("--hidden-size"), "; give --ffn-hidden-size");
}

// Leaves --position-embedding-type and --rope-scaling-type.
void Resolver::resolve_rotary() {
  spec::GptConfig& model = config_.model;
  if (model.position_embedding != PositionEmbedding::kRotary) {
    for (const char* name :
         {"--rotary-position-embeddings-theta", "--rotary-percent", "--rotary-interleaved", "--rope-scaling-type"}) {
      const Option& option = *table_.find(name);
      if (option.values() != option.default_values())
        problems_.add(origin(name), " needs --position-embedding-type rotary; give both, or leave it out");
    }
    return;
  }
  const int64_t size = model.rotary_size();
  if (model.kv_channels > 0 && (size < 2 || size % 2 != 0))
    problems_.add(origin("--rotary-percent"), " of the ", model.kv_channels, " channels of a head is ", size,
                  " channels, which are not pairs; use a share that makes an even number, at least 2");
  if (size > kMostRotated)
    problems_.add("rotary positions turn at most ", kMostRotated, " channels of a head, not ", size, " of ",
                  model.kv_channels, "; use a smaller --rotary-percent or more heads");
  check_rope_scaling();
}

// Of the positions, before the length is resolved.
void Resolver::resolve_positions() {
  ModelOptions& options = config_.model_options;
  spec::GptConfig& model = config_.model;
  const bool chosen = given("--position-embedding-type");
  if (options.use_rotary) {
    if (chosen && model.position_embedding != PositionEmbedding::kRotary)
      problems_.add("--use-rotary-position-embeddings and ", origin("--position-embedding-type"),
                    " exclude each other; give one");
    model.position_embedding = PositionEmbedding::kRotary;
  } else if (options.no_position_embedding && model.position_embedding == PositionEmbedding::kLearned) {
    if (chosen)
      problems_.add("--no-position-embedding and ", origin("--position-embedding-type"),
                    " exclude each other; give one");
    model.position_embedding = PositionEmbedding::kNone;
  }
  options.use_rotary = options.no_position_embedding = false;
  resolve_rope_spellings();
}

void Resolver::resolve_rope_spellings() {
  using Kind = spec::RopeScaling::Kind;
  ModelOptions& options = config_.model_options;
  spec::RopeScaling& scaling = config_.model.rope_scaling;
  if (options.use_rope_scaling) {
    if (scaling.kind != Kind::kNone && scaling.kind != Kind::kLlama3)
      problems_.add("--use-rope-scaling is Llama 3.1's and ", origin("--rope-scaling-type"), " another; give one");
    scaling.kind = Kind::kLlama3;
    if (!given("--rope-scaling-factor")) scaling.factor = 8;
    if (scaling.original_max_position_embeddings == 0) scaling.original_max_position_embeddings = 8192;
    options.use_rope_scaling = false;
  }
  if (options.interpolation_factor) {
    if (scaling.kind != Kind::kNone && scaling.kind != Kind::kLinear)
      problems_.add("--rotary-seq-len-interpolation-factor is linear and ", origin("--rope-scaling-type"),
                    " another; give one");
    scaling.kind = Kind::kLinear;
    scaling.factor = *options.interpolation_factor;
    options.interpolation_factor.reset();
  }
}

void Resolver::check_rope_scaling() {
  using Kind = spec::RopeScaling::Kind;
  spec::RopeScaling& scaling = config_.model.rope_scaling;
  const std::string type = origin("--rope-scaling-type");
  const int64_t pairs = config_.model.rotary_size() / 2;
  const bool has_length =
      scaling.kind == Kind::kLlama3 || scaling.kind == Kind::kYarn || scaling.kind == Kind::kLongRope;
  if (has_length && scaling.original_max_position_embeddings == 0)
    problems_.add(type,
                  " needs --rope-scaling-original-max-position-embeddings, the longest sequence before the "
                  "scaling; Llama 3.1's is 8192");
  if (scaling.kind == Kind::kLlama3 && scaling.high_freq_factor <= scaling.low_freq_factor)
    problems_.add(origin("--rope-scaling-high-freq-factor"), " is not above ", origin("--rope-scaling-low-freq-factor"),
                  "; Llama 3.1 has 4 and 1");
  if (scaling.kind == Kind::kYarn && scaling.beta_fast <= scaling.beta_slow)
    problems_.add(origin("--rope-scaling-beta-fast"), " is not above ", origin("--rope-scaling-beta-slow"),
                  "; the usual ones are 32 and 1");
  if (scaling.kind != Kind::kLongRope) return;
  read_factors("--rope-scaling-short-factors", config_.model_options.short_factors, pairs, scaling.short_factors);
  read_factors("--rope-scaling-long-factors", config_.model_options.long_factors, pairs, scaling.long_factors);
}

void Resolver::read_factors(const char* name, const std::vector<std::string>& words, int64_t expected,
                            std::vector<double>& factors) {
  factors.clear();
  for (const std::string& word : words) {
    const std::optional<double> factor = parse_python_float(word);
    if (!factor || !std::isfinite(*factor) || *factor <= 0) {
      problems_.add(name, ": '", word, "' is no number above 0");
      return;
    }
    factors.push_back(*factor);
  }
  if (static_cast<int64_t>(factors.size()) != expected)
    problems_.add(name, " has ", factors.size(), " numbers, and longrope takes one for each of the ", expected,
                  " pairs of rotated channels");
}

// A number of keys, or Megatron's window: LEFT keys before the query, and 0 after it (-1: all).
void Resolver::resolve_window() {
  std::string& text = config_.model_options.window_size;
  int64_t& window = config_.model.window_size;
  window = 0;
  if (text.empty()) return;
  std::string plain = text;
  std::erase_if(plain, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const size_t comma = plain.find(',');
  const std::optional<int64_t> left = parse_python_int(plain.substr(0, comma));
  const bool causal = comma == std::string::npos || plain.substr(comma + 1) == "0";
  if (!left || !causal || *left < (comma == std::string::npos ? 0 : -1)) {
    problems_.add(origin("--window-size"),
                  " is neither a number of keys (0: all) nor LEFT,0 (LEFT keys before the "
                  "query, none after it; -1,0: all)");
    return;
  }
  window = comma == std::string::npos ? *left : *left + 1;
  text = concat(window);
}

}  // namespace espalier::plan::internal
