#include "infer/continue_prompts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "infer/engine/engine.h"
#include "infer/read_neighbors.h"

namespace espalier::infer {
namespace {

constexpr int64_t kPageTokens = 64;
constexpr int64_t kCacheBytes = int64_t{2} << 30;
constexpr int64_t kAheadOfOne = 4;  // times as many as run at once may wait for one text before them

int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

DecoderModelConfig sized_for(const LoadedModel& loaded, const ManyTexts& texts, int64_t new_tokens, bool begins_anew) {
  int64_t longest = 0, pages = 0;
  for (const auto& prompt : texts.prompts) {
    // An encoder's prompt is not part of the text.
    const int64_t tokens = (begins_anew ? 1 : static_cast<int64_t>(prompt.size())) + new_tokens;
    longest = std::max(longest, tokens);
    pages += texts.texts_of_prompt * pages_for(tokens);
  }
  pages = std::min(pages, texts.at_once * pages_for(longest));
  const int64_t at_most = kCacheBytes / page_bytes(loaded.model->decoder_shape(), loaded.weights(), kPageTokens);
  return {.page_tokens = kPageTokens,
          .num_pages = std::max(pages_for(longest), std::min(pages, at_most)),
          .max_positions = longest};
}

// Texts that are being written, or are ready before those of lower numbers.
class Desk {
 public:
  Desk(Engine& engine, const ManyTexts& texts, const GenerateConfig& config, const TokenCallback& on_token)
      : engine_(engine), texts_(texts), config_(config), on_token_(on_token), next_(texts.first), first_(texts.first) {}

  void fill() {
    while (next_ < texts_.end && next_ < first_ + kAheadOfOne * texts_.at_once) begin(next_++);
  }
  void hand_out(const std::function<void(int64_t, Generated)>& take) {
    if (!failure_.empty()) throw UserError(failure_);
    for (auto text = open_.begin(); text != open_.end() && text->second.is_ready; text = open_.erase(text))
      take(first_++, std::move(text->second.made));
  }
  bool is_done() const { return first_ == texts_.end; }

 private:
  struct Text {
    Generated made;
    bool is_ready = false;
  };

  void begin(int64_t number) {
    Request request;
    const std::vector<int32_t>& prompt = texts_.prompts[static_cast<size_t>(number / texts_.texts_of_prompt)];
    request.prompt_ids = config_.begin_id ? std::vector<int32_t>{*config_.begin_id} : prompt;
    if (config_.begin_id) request.encoder_ids = prompt;
    request.max_tokens = config_.tokens_to_generate;
    request.stop_ids = config_.stop_ids;
    request.sampling = config_.sampling;
    request.random_stream = static_cast<uint32_t>(number);
    open_[number].made.prompt_ids = prompt;
    engine_.submit(std::move(request), [this, number](const Event& event) { add(number, event); });
  }

  void add(int64_t number, const Event& event) {
    Text& text = open_.at(number);
    for (const TokenScore& token : event.tokens) {
      text.made.generated_ids.push_back(token.id);
      text.made.logprobs.push_back(token.log_probability);
      if (on_token_) on_token_(static_cast<size_t>(number), token.id);
    }
    text.is_ready = event.is_last;
    if (event.finish && event.finish->reason == FinishReason::kFailed) failure_ = event.finish->message;
  }

  Engine& engine_;
  const ManyTexts& texts_;
  const GenerateConfig& config_;
  const TokenCallback& on_token_;
  int64_t next_, first_;  // to be begun; to be handed out
  std::map<int64_t, Text> open_;
  std::string failure_;
};

void continue_with_neighbors(const LoadedModel& loaded, const ManyTexts& texts, const GenerateConfig& config,
                             const TokenCallback& on_token, const std::function<void(int64_t, Generated)>& take) {
  for (int64_t number = texts.first; number < texts.end; ++number)
    take(number, read_and_continue(*loaded.model, loaded.params->compute_type(),
                                   texts.prompts[static_cast<size_t>(number / texts.texts_of_prompt)], config, number,
                                   on_token));
}

}  // namespace

void continue_many(const LoadedModel& loaded, const ManyTexts& texts, const GenerateConfig& config,
                   const TokenCallback& on_token, const std::function<void(int64_t, Generated)>& take) {
  ESPALIER_CHECK(texts.end <= static_cast<int64_t>(texts.prompts.size()) * texts.texts_of_prompt && texts.at_once > 0,
                 texts.end, " texts of ", texts.prompts.size(), " prompts");
  check_lengths(loaded.model->decoder_shape(), texts.prompts, config.tokens_to_generate);
  if (config.find_neighbors) return continue_with_neighbors(loaded, texts, config, on_token, take);
  const std::unique_ptr<BatchModel> model =
      batch_model(loaded, sized_for(loaded, texts, config.tokens_to_generate, config.begin_id.has_value()));
  Engine engine(*model, /*tokenizer=*/nullptr, {.scheduler = {.max_sequences = texts.at_once}});
  Desk desk(engine, texts, config, on_token);
  for (desk.fill(); !desk.is_done(); desk.fill()) {
    engine.step();
    desk.hand_out(take);
  }
}

std::vector<Generated> continue_prompts(const LoadedModel& loaded, const std::vector<std::vector<int32_t>>& prompts,
                                        const GenerateConfig& config, const TokenCallback& on_token) {
  std::vector<Generated> results;
  continue_many(loaded, {.prompts = prompts, .end = static_cast<int64_t>(prompts.size())}, config, on_token,
                [&](int64_t, Generated made) { results.push_back(std::move(made)); });
  return results;
}

}  // namespace espalier::infer
