#include "infer/continue_prompts.h"

#include <algorithm>

#include "base/error.h"
#include "infer/engine/decoder_model.h"
#include "infer/engine/engine.h"

namespace espalier::infer {
namespace {

constexpr int64_t kPageTokens = 64;
constexpr int64_t kCacheBytes = int64_t{2} << 30;

int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

DecoderModelConfig sized_for(const LoadedModel& loaded, const std::vector<std::vector<int32_t>>& prompts,
                             int64_t new_tokens) {
  int64_t longest = 0, pages = 0;
  for (const auto& prompt : prompts) {
    const int64_t tokens = static_cast<int64_t>(prompt.size()) + new_tokens;
    longest = std::max(longest, tokens);
    pages += pages_for(tokens);
  }
  const int64_t at_most =
      kCacheBytes / page_bytes(loaded.model->decoder_shape(), loaded.params->compute_type(), kPageTokens);
  return {.page_tokens = kPageTokens,
          .num_pages = std::max(pages_for(longest), std::min(pages, at_most)),
          .max_positions = longest};
}

Request request_of(const std::vector<int32_t>& prompt, const GenerateConfig& config, size_t row) {
  Request request;
  request.prompt_ids = prompt;
  request.max_tokens = config.tokens_to_generate;
  request.stop_ids = config.stop_ids;
  request.sampling = config.sampling;
  request.random_stream = static_cast<uint32_t>(row);
  return request;
}

}  // namespace

std::vector<Generated> continue_prompts(const LoadedModel& loaded, const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateConfig& config, const TokenCallback& on_token) {
  check_lengths(loaded.model->decoder_shape(), prompts, config.tokens_to_generate);
  DecoderModel model(*loaded.model, loaded.params->compute_type(),
                     sized_for(loaded, prompts, config.tokens_to_generate));
  Engine engine(model, /*tokenizer=*/nullptr, {});
  std::vector<Generated> results;
  std::vector<std::string> failures;
  for (const auto& prompt : prompts) results.push_back({prompt, {}, {}});
  for (size_t row = 0; row < prompts.size(); ++row)
    engine.submit(request_of(prompts[row], config, row), [&, row](const Event& event) {
      for (const TokenScore& token : event.tokens) {
        results[row].generated_ids.push_back(token.id);
        results[row].logprobs.push_back(token.log_probability);
        if (on_token) on_token(row, token.id);
      }
      if (event.finish && event.finish->reason == FinishReason::kFailed) failures.push_back(event.finish->message);
    });
  while (engine.step()) {
  }
  if (!failures.empty()) throw UserError(failures.front());
  return results;
}

}  // namespace espalier::infer
