#include "serve/desk.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/format.h"
#include "base/mix64.h"
#include "data/sentence_vocabulary.h"

namespace espalier::serve {

Desk::Desk(infer::Engine& the_engine, const text::Tokenizer& the_tokenizer, DeskOptions the_options)
    : engine(the_engine), tokenizer(the_tokenizer), options(std::move(the_options)) {
  std::random_device device;
  random_ = (uint64_t{device()} << 32) | device();
}

Desk::~Desk() {
  search_pool.stop();
  search_pool.join();
  pool.stop();
  pool.join();
  kept_.clear();  // they have timers of the pool
}

void Desk::keep(const std::shared_ptr<void>& work) {
  const std::lock_guard lock(mutex_);
  kept_.insert(work);
}

void Desk::let_go(const std::shared_ptr<void>& work) {
  const std::lock_guard lock(mutex_);
  kept_.erase(work);
}

void Desk::enter(int64_t count) {
  constexpr int kSoon = 1;
  if (is_draining_) throw ApiError(503, "the server is shutting down").retry_after(5);
  if (count > options.max_texts)
    throw ApiError(400, concat("the request asks for ", count, " texts; this server makes at most ", options.max_texts,
                               " at a time"));
  if (num_texts_.fetch_add(count) + count <= options.max_texts) return;
  num_texts_ -= count;
  throw ApiError(429, concat(options.max_texts, " texts are in progress or waiting already; try again"))
      .retry_after(kSoon);
}

std::vector<int32_t> Desk::stop_ids() const {
  if (options.text_ends) return {options.text_ends->end};
  std::vector<int32_t> ids;
  const text::NamedIds named = tokenizer.named_ids();
  for (const std::optional<int32_t>& id : {tokenizer.eod(), named.eos, named.text_end})
    if (id && *id < engine.limits().shape.vocab_size && std::find(ids.begin(), ids.end(), *id) == ids.end())
      ids.push_back(*id);
  return ids;
}

std::vector<int32_t> Desk::encode_prompt(const std::string& text) const {
  return has_encoder() ? data::encode_with_sentinels(tokenizer, text) : tokenizer.encode(text);
}

void Desk::give_prompt(infer::Request& request, std::vector<int32_t> ids) const {
  if (!options.text_ends) {
    request.prompt_ids = std::move(ids);
    return;
  }
  request.encoder_ids = std::move(ids);
  request.prompt_ids = {options.text_ends->begin};
}

int64_t Desk::max_context() const {
  const infer::BatchModelShape& shape = engine.limits().shape;
  const int64_t room = shape.num_pages * shape.page_tokens;
  return shape.max_positions > 0 ? std::min(shape.max_positions, room) : room;
}

void Desk::check_length(const infer::Request& request) const {
  const auto size = static_cast<int64_t>(has_encoder() ? request.encoder_ids.size() : request.prompt_ids.size());
  if (options.max_prompt_tokens > 0 && size > options.max_prompt_tokens)
    throw ApiError(400,
                   concat("the prompt has ", size, " tokens; this server takes at most ", options.max_prompt_tokens),
                   "prompt", "context_length_exceeded");
  const int64_t most = max_context() + 1;  // nothing is run after the last token
  if (has_encoder()) return check_encoder_length(size, request.max_tokens);
  if (size + std::max<int64_t>(request.max_tokens, 1) > most)
    throw ApiError(
        400,
        concat("this model's maximum context length is ", most, " tokens, and the prompt has ", size, " of them with ",
               request.max_tokens, " to come: shorten the prompt or max_tokens (lm-eval: max_length=", most - 1, ")"),
        "prompt", "context_length_exceeded");
}

// The answer begins with a token of its own.
void Desk::check_encoder_length(int64_t size, int64_t max_tokens) const {
  const int64_t most_read = engine.limits().shape.encoder_positions, most = max_context();
  if (most_read > 0 && size > most_read)
    throw ApiError(400, concat("this model's encoder reads at most ", most_read, " tokens, and the prompt has ", size),
                   "prompt", "context_length_exceeded");
  if (max_tokens > most)
    throw ApiError(400, concat("this model's answers have at most ", most, " tokens, and max_tokens is ", max_tokens),
                   "max_tokens", "context_length_exceeded");
}

void Desk::check_model(const std::string& name) const {
  if (name.empty() || name == options.model_name) return;
  const std::string elsewhere = name == options.beside ? "; that one's routes are below /beside/" : "";
  throw ApiError(
      404, concat("there is no model '", name.substr(0, 128), "' here, only '", options.model_name, "'", elsewhere),
      "model", "model_not_found");
}

// Well mixed: equal to no other number of the same start.
uint64_t Desk::new_seed() { return mix64(random_ + ++last_id_ * kMix64Step); }

std::string Desk::new_id(const std::string& prefix) {
  return concat(prefix, format_printf("%016llx", static_cast<unsigned long long>(new_seed())));
}

}  // namespace espalier::serve
