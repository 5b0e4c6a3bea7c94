// Cross-checks of the options that give the shape of a GPT, and the fields that they leave to be derived.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/format.h"
#include "base/literal.h"
#include "base/log.h"
#include "config/resolving.h"
#include "families/gpt/internal/gpt.h"
#include "families/transformer_options.h"

namespace espalier::families::internal {
namespace {

using plan::divisors_near;

constexpr int64_t kMostRotated = 1024;  // kernels/rotary.h

class GptResolver {
 public:
  GptResolver(const config::Resolving& resolving, GptSettings& settings)
      : resolving_(resolving), problems_(resolving.problems), model_(settings.shape), options_(settings.options) {}

  void resolve_positions();
  void resolve_length();
  void resolve_model();
  void check_division();

 private:
  void resolve_groups();
  void resolve_activation();
  void resolve_rotary();
  void resolve_rope_spellings();
  void check_rope_scaling();
  void read_factors(const char* name, const std::vector<std::string>& words, int64_t expected,
                    std::vector<double>& factors);
  void resolve_window();

  std::string origin(const char* name) const { return resolving_.origin(name); }
  bool given(const char* name) const { return resolving_.given(name); }

  const config::Resolving& resolving_;
  Problems& problems_;
  GptConfig& model_;
  GptOptions& options_;
};

void GptResolver::resolve_length() {
  const int64_t length = resolving_.run.data.sequence_length;
  if (length == 0) return;
  const bool any_length =
      model_.position_embedding == PositionEmbedding::kRotary || model_.position_embedding == PositionEmbedding::kNone;
  if (model_.max_position_embeddings == 0 && any_length) {
    model_.max_position_embeddings = length;
  } else if (model_.max_position_embeddings == 0) {
    problems_.add("--max-position-embeddings is required: the longest sequence of the model, at least ", length,
                  " (the sequence length)");
  } else if (model_.max_position_embeddings < length) {
    problems_.add(origin("--max-position-embeddings"), " is below the sequence length ", length, "; use ", length,
                  " or more");
  }
}

void GptResolver::resolve_model() {
  model_.tie_output = !options_.untie_output;
  resolve_activation();
  resolve_head_size(resolving_, model_.hidden_size, model_.num_attention_heads, model_.kv_channels);
  resolve_groups();
  resolve_rotary();
  resolve_window();
  if (model_.qk_layernorm && model_.normalization != spec::Normalization::kRmsNorm)
    problems_.add(
        "--qk-layernorm is an RMS norm of every head and goes with --normalization rmsnorm; give both, or "
        "leave --qk-layernorm out");
  check_dropout(resolving_, model_.attention_dropout, model_.hidden_dropout);
}

// Leaves --num-key-value-heads, and nothing of NVIDIA's pair of options.
void GptResolver::resolve_groups() {
  const int64_t heads = model_.num_attention_heads;
  const char* name = options_.num_key_value_heads ? "--num-key-value-heads" : "--num-query-groups";
  if (options_.num_query_groups && !options_.group_query_attention) {
    problems_.add(origin("--num-query-groups"), " is not read by Megatron without --group-query-attention; give both, ",
                  "or --num-key-value-heads ", *options_.num_query_groups);
  } else if (options_.group_query_attention) {
    const int64_t groups = options_.num_query_groups.value_or(options_.num_key_value_heads.value_or(1));
    if (options_.num_key_value_heads.value_or(groups) != groups)
      problems_.add(origin("--num-query-groups"), " and ", origin("--num-key-value-heads"), " differ; give one");
    options_.num_key_value_heads = groups;
    if (!options_.num_query_groups) name = "--group-query-attention";
    options_.num_query_groups.reset();
    options_.group_query_attention = false;
  }
  model_.num_query_groups = options_.num_key_value_heads.value_or(heads);
  if (heads > 0 && heads % model_.num_query_groups != 0) {
    problems_.add(origin(name), ": ", model_.num_query_groups, " heads of keys and values do not divide ",
                  origin("--num-attention-heads"), "; use ", divisors_near(model_.num_query_groups, heads));
    model_.num_query_groups = heads;
  }
}

// Leaves --activation, or the options of gelu where it is one of these.
void GptResolver::resolve_activation() {
  const auto name_one = [&](const char* row, const std::string& activation) {
    if (!options_.activation.empty() && options_.activation != activation)
      problems_.add(origin(row), ": the activation is ", options_.activation, " already; give one of the two");
    options_.activation = activation;
  };
  const bool two_thirds = options_.swiglu;
  if (!options_.glu_activation.empty()) name_one("--glu-activation", options_.glu_activation);
  if (options_.swiglu) name_one("--swiglu", "swiglu");
  if (options_.squared_relu) name_one("--squared-relu", "squared_relu");
  options_.glu_activation.clear();
  options_.swiglu = options_.squared_relu = false;
  const bool is_tanh = options_.gelu_is_fused || options_.openai_gelu;
  model_.activation = is_tanh ? spec::Activation::kGeluTanh : spec::Activation::kGeluErf;
  for (const auto& [name, activation] : activation_names())
    if (name == options_.activation) model_.activation = activation;
  if (model_.hidden_size == 0 || model_.ffn_hidden_size != 0) return;
  model_.ffn_hidden_size = two_thirds ? model_.hidden_size * 8 / 3 / 64 * 64 : 4 * model_.hidden_size;
  if (model_.ffn_hidden_size == 0)
    problems_.add("--swiglu makes the MLP's width 2/3 of 4 * hidden size in multiples of 64, which is 0 for ",
                  origin("--hidden-size"), "; give --ffn-hidden-size");
}

// Leaves --position-embedding-type and --rope-scaling-type.
void GptResolver::resolve_rotary() {
  if (model_.position_embedding != PositionEmbedding::kRotary) {
    for (const char* name :
         {"--rotary-position-embeddings-theta", "--rotary-percent", "--rotary-interleaved", "--rope-scaling-type"}) {
      const Option& option = *resolving_.table.find(name);
      if (option.values() != option.default_values())
        problems_.add(origin(name), " needs --position-embedding-type rotary; give both, or leave it out");
    }
    return;
  }
  const int64_t size = model_.rotary_size();
  if (model_.kv_channels > 0 && (size < 2 || size % 2 != 0))
    problems_.add(origin("--rotary-percent"), " of the ", model_.kv_channels, " channels of a head is ", size,
                  " channels, which are not pairs; use a share that makes an even number, at least 2");
  if (size > kMostRotated)
    problems_.add("rotary positions turn at most ", kMostRotated, " channels of a head, not ", size, " of ",
                  model_.kv_channels, "; use a smaller --rotary-percent or more heads");
  check_rope_scaling();
}

// Of the positions, before the length is resolved.
void GptResolver::resolve_positions() {
  const bool chosen = given("--position-embedding-type");
  if (options_.use_rotary) {
    if (chosen && model_.position_embedding != PositionEmbedding::kRotary)
      problems_.add("--use-rotary-position-embeddings and ", origin("--position-embedding-type"),
                    " are mutually exclusive; give one");
    model_.position_embedding = PositionEmbedding::kRotary;
  } else if (options_.no_position_embedding && model_.position_embedding == PositionEmbedding::kLearned) {
    if (chosen)
      problems_.add("--no-position-embedding and ", origin("--position-embedding-type"),
                    " are mutually exclusive; give one");
    model_.position_embedding = PositionEmbedding::kNone;
  }
  options_.use_rotary = options_.no_position_embedding = false;
  resolve_rope_spellings();
}

void GptResolver::resolve_rope_spellings() {
  using Kind = spec::RopeScaling::Kind;
  spec::RopeScaling& scaling = model_.rope_scaling;
  if (options_.use_rope_scaling) {
    if (scaling.kind != Kind::kNone && scaling.kind != Kind::kLlama3)
      problems_.add("--use-rope-scaling is Llama 3.1's and ", origin("--rope-scaling-type"), " another; give one");
    scaling.kind = Kind::kLlama3;
    if (!given("--rope-scaling-factor")) scaling.factor = 8;
    if (scaling.original_max_position_embeddings == 0) scaling.original_max_position_embeddings = 8192;
    options_.use_rope_scaling = false;
  }
  if (options_.interpolation_factor) {
    if (scaling.kind != Kind::kNone && scaling.kind != Kind::kLinear)
      problems_.add("--rotary-seq-len-interpolation-factor is linear and ", origin("--rope-scaling-type"),
                    " another; give one");
    scaling.kind = Kind::kLinear;
    scaling.factor = *options_.interpolation_factor;
    options_.interpolation_factor.reset();
  }
}

void GptResolver::check_rope_scaling() {
  using Kind = spec::RopeScaling::Kind;
  spec::RopeScaling& scaling = model_.rope_scaling;
  const std::string type = origin("--rope-scaling-type");
  const int64_t pairs = model_.rotary_size() / 2;
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
  read_factors("--rope-scaling-short-factors", options_.short_factors, pairs, scaling.short_factors);
  read_factors("--rope-scaling-long-factors", options_.long_factors, pairs, scaling.long_factors);
}

void GptResolver::read_factors(const char* name, const std::vector<std::string>& words, int64_t expected,
                               std::vector<double>& factors) {
  factors.clear();
  for (const std::string& word : words) {
    const std::optional<double> factor = parse_python_float(word);
    if (!factor || !std::isfinite(*factor) || *factor <= 0) {
      problems_.add(name, ": '", word, "' is not a number above 0");
      return;
    }
    factors.push_back(*factor);
  }
  if (static_cast<int64_t>(factors.size()) != expected)
    problems_.add(name, " has ", factors.size(), " numbers, but longrope needs one for each of the ", expected,
                  " pairs of rotated channels");
}

// A number of keys, or Megatron's window: LEFT keys before the query, and 0 after it (-1: all).
void GptResolver::resolve_window() {
  std::string& text = options_.window_size;
  int64_t& window = model_.window_size;
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

void GptResolver::check_division() {
  const spec::GridShape& grid = resolving_.run.grid;
  // A rank has whole groups of query heads, each with its key and value.
  const int64_t heads = model_.num_groups();
  const bool grouped = heads != model_.num_attention_heads;
  const std::string heads_name = grouped ? concat("the ", heads, " heads of keys and values (--num-key-value-heads)")
                                         : origin("--num-attention-heads");
  if (heads > 0 && heads % grid.tensor != 0)
    problems_.add(origin("--tensor-model-parallel-size"), " does not divide ", heads_name, "; use ",
                  divisors_near(grid.tensor, std::gcd(heads, model_.ffn_hidden_size)));
  else if (model_.ffn_hidden_size % grid.tensor != 0)
    problems_.add(origin("--tensor-model-parallel-size"), " does not divide the MLP's width ", model_.ffn_hidden_size,
                  "; use ", divisors_near(grid.tensor, std::gcd(heads, model_.ffn_hidden_size)));
  else if (heads > 0 && heads / grid.tensor % grid.context != 0)
    problems_.add(origin("--context-parallel-size"), " does not divide the ", heads / grid.tensor,
                  grouped ? " heads of keys and values of a tensor rank (" : " heads of a tensor rank (", heads, " / ",
                  grid.tensor, "), which attention exchanges; use ", divisors_near(grid.context, heads / grid.tensor));
}

}  // namespace

void resolve_gpt(const config::Resolving& resolving, GptSettings& settings) {
  GptResolver resolver(resolving, settings);
  resolver.resolve_positions();
  resolver.resolve_length();
  resolver.resolve_model();
  resolver.check_division();
  resolve_mup(resolving, settings.shape.mup);
  settings.shape.whole_prompt = settings.objective.sees_whole_prompt();
  if (settings.shape.fp32_residual && settings.shape.residual_from_layernorm)
    resolving.problems.add(
        "--fp32-residual-connection and --apply-residual-connection-post-layernorm are mutually exclusive: the output "
        "of a "
        "norm, with which the stream restarts, has the compute type; leave one out");
  check_objective(resolving, settings);
  check_attention_backend(resolving, settings);
  if (settings.shape.init_method_std == 0 && resolving.table.says_notes())
    warn_once(resolving.origin("--init-method-std") +
              ": weights that all begin as 0 get no gradient, and learn nothing");
}

}  // namespace espalier::families::internal
