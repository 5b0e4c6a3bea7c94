#include "infer/generate.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"

namespace espalier::infer {
namespace {

int64_t longest_of(const std::vector<std::vector<int32_t>>& prompts) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.size());
  return static_cast<int64_t>(longest);
}

std::vector<int64_t> lengths_of(const std::vector<std::vector<int32_t>>& prompts) {
  std::vector<int64_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<int64_t>(prompt.size()));
  return lengths;
}

// [b, longest], padded after each prompt.
at::Tensor prompt_ids(const std::vector<std::vector<int32_t>>& prompts) {
  at::Tensor ids = at::zeros({static_cast<int64_t>(prompts.size()), longest_of(prompts)}, at::kLong);
  for (size_t row = 0; row < prompts.size(); ++row)
    std::copy(prompts[row].begin(), prompts[row].end(),
              ids.data_ptr<int64_t>() + static_cast<int64_t>(row) * ids.size(1));
  return ids;
}

// [b, longest] for a first pass in which the tokens of each prompt see all of it; its padding sees nothing.
at::Tensor last_keys_of_prompts(const std::vector<int64_t>& lengths, int64_t longest) {
  const at::Tensor ends = at::tensor(lengths, at::kInt).view({-1, 1}), places = at::arange(longest, at::kInt);
  return at::where(places < ends, ends - 1, -1).to(at::kInt).contiguous();
}

// Logits after the last of the `news[row]` ids with which each row of `ids` begins, [b, V]; what follows them is
// padding, and is not in the cache afterwards.
at::Tensor next_logits(const models::Decoder& model, const at::Tensor& ids, const std::vector<int64_t>& news,
                       tensor::KeyValueCache& cache, const models::Encoded* encoded) {
  const at::Tensor counts = at::tensor(news, at::kLong), lengths = at::tensor(cache.lengths, at::kLong);
  const at::Tensor positions = (lengths.view({-1, 1}) + at::arange(ids.size(1), at::kLong)).contiguous();
  nn::ForwardContext context{.attention = model.attention_context()};
  context.attention.cache = &cache;
  const bool is_prompt = cache.lengths[0] == 0;
  if (is_prompt && model.decoder_shape().whole_prompt)
    context.attention.last_key = last_keys_of_prompts(news, ids.size(1));
  const at::Tensor hidden = model.hidden_states(ids, positions, context, encoded);  // [s, b, h]
  for (size_t row = 0; row < news.size(); ++row) cache.lengths[row] -= ids.size(1) - news[row];
  return model.logits(hidden.index({counts - 1, at::arange(ids.size(0), at::kLong)})).contiguous();
}

// Of an encoder, which reads all of a prompt and adds nothing; of a decoder, which begins with one token.
void check_encoder_lengths(const models::DecoderShape& model, int64_t longest_prompt, int64_t new_tokens) {
  if (model.max_positions == 0) return;
  if (longest_prompt > model.max_positions)
    throw UserError(concat("the longest prompt has ", longest_prompt, " tokens, but the model has learned ",
                           model.max_positions, " positions. Shorten it."),
                    ExitCode::kUsage);
  if (1 + new_tokens > model.max_positions)
    throw UserError(concat("--tokens-to-generate ", new_tokens, " and the token that the decoder begins with are more ",
                           "than the ", model.max_positions, " positions that the model has learned. Ask for at most ",
                           model.max_positions - 1, "."),
                    ExitCode::kUsage);
}

}  // namespace

void check_lengths(const models::DecoderShape& model, const std::vector<std::vector<int32_t>>& prompts,
                   int64_t new_tokens) {
  const int64_t longest_prompt = longest_of(prompts);
  if (model.first_layer > 0) return check_encoder_lengths(model, longest_prompt, new_tokens);
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

std::vector<Generated> generate(const models::Decoder& model, at::ScalarType compute_type,
                                const std::vector<std::vector<int32_t>>& prompts, const GenerateConfig& config,
                                const TokenCallback& on_token) {
  ESPALIER_CHECK(std::all_of(prompts.begin(), prompts.end(), [](const auto& prompt) { return !prompt.empty(); }),
                 "empty prompt");
  const int64_t count = static_cast<int64_t>(prompts.size());
  const models::DecoderShape shape = model.decoder_shape();
  check_lengths(shape, prompts, config.tokens_to_generate);
  std::vector<std::vector<int32_t>> begun = prompts;  // the beginnings of the texts that the decoder continues with
  std::optional<models::Encoded> encoded;
  if (config.begin_id) {
    encoded = model.encode(prompt_ids(prompts), lengths_of(prompts));
    begun.assign(prompts.size(), {*config.begin_id});
  }
  const int64_t longest = longest_of(begun);
  tensor::KeyValueCache cache = models::new_cache(shape, compute_type, count, longest + config.tokens_to_generate);
  std::vector<Generated> results;
  for (const auto& prompt : prompts) results.push_back({prompt, {}, {}});
  std::vector<int64_t> news = lengths_of(begun);  // ids of each row that the model has not seen
  std::vector<bool> done(prompts.size(), false);

  at::Tensor ids = prompt_ids(begun);  // [b, s] of this pass
  for (int64_t produced = 0; produced < config.tokens_to_generate; ++produced) {
    const at::Tensor logits = next_logits(model, ids, news, cache, encoded ? &*encoded : nullptr);
    ids = at::zeros({count, 1}, at::kLong);
    news.assign(prompts.size(), 1);
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
