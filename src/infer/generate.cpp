#include "infer/generate.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::infer {
namespace {

// The rows of one batch while they grow: ids padded on the left to one length.
class Rows {
 public:
  explicit Rows(const std::vector<std::vector<int32_t>>& prompts) {
    for (const auto& prompt : prompts) longest_ = std::max(longest_, static_cast<int64_t>(prompt.size()));
    for (const auto& prompt : prompts) padding_.push_back(longest_ - static_cast<int64_t>(prompt.size()));
  }

  int64_t longest() const { return longest_; }
  int64_t count() const { return static_cast<int64_t>(padding_.size()); }

  // Padding sees only itself, so that no row of the softmax is empty; nothing sees the padding.
  at::Tensor first_keys(int64_t begin, int64_t length) const {
    at::Tensor keys = at::empty({count(), length}, at::kInt);
    auto at = keys.accessor<int32_t, 2>();
    for (int64_t row = 0; row < count(); ++row)
      for (int64_t query = 0; query < length; ++query)
        at[row][query] = static_cast<int32_t>(std::min(padding_[row], begin + query));
    return keys;
  }

  at::Tensor positions(int64_t begin, int64_t length) const {
    at::Tensor positions = at::empty({count(), length}, at::kLong);
    auto at = positions.accessor<int64_t, 2>();
    for (int64_t row = 0; row < count(); ++row)
      for (int64_t query = 0; query < length; ++query)
        at[row][query] = std::max<int64_t>(0, begin + query - padding_[row]);
    return positions;
  }

  at::Tensor prompt_ids(const std::vector<std::vector<int32_t>>& prompts) const {
    at::Tensor ids = at::zeros({count(), longest_}, at::kLong);
    for (int64_t row = 0; row < count(); ++row)
      std::copy(prompts[row].begin(), prompts[row].end(), ids.data_ptr<int64_t>() + row * longest_ + padding_[row]);
    return ids;
  }

 private:
  std::vector<int64_t> padding_;
  int64_t longest_ = 0;
};

tensor::KeyValueCache new_cache(const models::DecoderShape& model, at::ScalarType type, int64_t rows,
                                int64_t capacity) {
  tensor::KeyValueCache cache;
  cache.capacity = capacity;
  const auto part = [&] { return at::empty({rows, model.num_groups, capacity, model.head_size}, type); };
  for (int64_t layer = 0; layer < model.num_layers; ++layer) cache.layers.push_back({part(), part()});
  return cache;
}

void check_length(const models::DecoderShape& model, int64_t longest_prompt, int64_t new_tokens) {
  if (model.max_positions == 0) return;
  const int64_t wanted = longest_prompt + new_tokens;
  if (longest_prompt >= model.max_positions)
    throw UserError(
        concat("the longest prompt has ", longest_prompt, " tokens, but the model has learned ", model.max_positions,
               " positions. Shorten it to at most ", model.max_positions - 1, " tokens."),
        ExitCode::kUsage);
  if (wanted > model.max_positions)
    throw UserError(concat("the longest prompt has ", longest_prompt, " tokens, and with --tokens-to-generate ",
                           new_tokens, " that makes ", wanted, ", but the model has learned ", model.max_positions,
                           " positions. Ask for at most ", model.max_positions - longest_prompt, "."),
                    ExitCode::kUsage);
}

}  // namespace

std::vector<Generated> generate(const models::Decoder& model, at::ScalarType compute_type,
                                const std::vector<std::vector<int32_t>>& prompts, const GenerateConfig& config,
                                const TokenCallback& on_token) {
  ESPALIER_CHECK(std::all_of(prompts.begin(), prompts.end(), [](const auto& prompt) { return !prompt.empty(); }),
                 "empty prompt");
  const Rows rows(prompts);
  const models::DecoderShape shape = model.decoder_shape();
  check_length(shape, rows.longest(), config.tokens_to_generate);
  tensor::KeyValueCache cache =
      new_cache(shape, compute_type, rows.count(), rows.longest() + config.tokens_to_generate);
  std::vector<Generated> results;
  for (const auto& prompt : prompts) results.push_back({prompt, {}, {}});
  std::vector<bool> done(prompts.size(), false);

  at::Tensor ids = rows.prompt_ids(prompts);  // [b, s] of this pass
  for (int64_t produced = 0; produced < config.tokens_to_generate; ++produced) {
    const int64_t begin = cache.length, length = ids.size(1);
    nn::ForwardContext context{.attention = model.attention_context()};
    context.attention.cache = &cache;
    context.attention.first_key = rows.first_keys(begin, length);
    const at::Tensor hidden = model.hidden_states(ids, rows.positions(begin, length), context);  // [s, b, h]
    const at::Tensor logits = model.logits(hidden[length - 1]).contiguous();                     // [b, V]
    ids = at::zeros({rows.count(), 1}, at::kLong);
    for (size_t row = 0; row < prompts.size(); ++row) {
      if (done[row]) continue;
      const float* values = logits.data_ptr<float>() + static_cast<int64_t>(row) * logits.size(1);
      const SampledToken token =
          sample_token(values, shape.vocab_size, config.sampling, static_cast<int64_t>(row), produced);
      results[row].generated_ids.push_back(token.id);
      results[row].logprobs.push_back(token.log_probability);
      ids.data_ptr<int64_t>()[row] = token.id;
      done[row] = std::find(config.stop_ids.begin(), config.stop_ids.end(), token.id) != config.stop_ids.end();
      if (on_token) on_token(row, token.id);
    }
    if (std::find(done.begin(), done.end(), false) == done.end()) break;
  }
  return results;
}

}  // namespace espalier::infer
