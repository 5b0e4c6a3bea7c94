#include "serve/token_names.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::serve {
namespace {

constexpr std::string_view kUnfinishedCharacter = "\uFFFD";

// What `ids` add to the text of `before`.
std::string text_after(const text::Tokenizer& tokenizer, const std::vector<int32_t>& before,
                       const std::string& before_text, const std::vector<int32_t>& ids) {
  std::vector<int32_t> all = before;
  all.insert(all.end(), ids.begin(), ids.end());
  const std::string whole = tokenizer.decode(all);
  return whole.starts_with(before_text) ? whole.substr(before_text.size()) : tokenizer.decode(ids);
}

nlohmann::ordered_json chat_token(const std::string& name, double log_probability) {
  nlohmann::ordered_json bytes;
  if (name.find(kUnfinishedCharacter) == std::string::npos) {
    bytes = nlohmann::ordered_json::array();
    for (const char byte : name) bytes.push_back(static_cast<uint8_t>(byte));
  }
  return {{"token", name}, {"logprob", finite(log_probability)}, {"bytes", bytes}};
}

}  // namespace

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

double finite(double log_probability) { return std::max(log_probability, -9999.0); }

TokenNames::TokenNames(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  if (!tokenizer.encodes_any_text()) return;
  const std::vector<int32_t> ids = tokenizer.encode("a");
  if (ids.empty()) return;
  before_ = {ids.back()};
  before_text_ = tokenizer.decode(before_);
}

std::string TokenNames::name(int32_t id) const { return text_after(tokenizer_, before_, before_text_, {id}); }

int64_t TextOffsets::push(int32_t id) {
  const int64_t begin = offset_;
  const std::string before = last_.empty() ? "" : tokenizer_.decode(last_);
  open_.push_back(id);
  std::string text = last_.empty() ? tokenizer_.decode(open_) : text_after(tokenizer_, last_, before, open_);
  constexpr size_t kMostOpen = 4;  // bytes of a character
  const bool is_open = text.ends_with(kUnfinishedCharacter) && open_.size() < kMostOpen;
  if (is_open) return begin;
  offset_ += num_characters(text);
  last_ = std::exchange(open_, {});
  return begin;
}

LegacyLogprobs::LegacyLogprobs(const TokenNames& names, bool as_ids) : names_(names), as_ids_(as_ids) {
  for (const char* const member : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    json_[member] = nlohmann::ordered_json::array();
}

std::string LegacyLogprobs::name(int32_t id) const { return as_ids_ ? concat("token_id:", id) : names_.name(id); }

void LegacyLogprobs::add_first(int32_t id, TextOffsets& offsets) {
  json_["tokens"].push_back(name(id));
  json_["token_logprobs"].push_back(nullptr);
  json_["top_logprobs"].push_back(nullptr);
  json_["text_offset"].push_back(offsets.push(id));
}

// Two ids of one name: the likelier one stays, which is the first. The chosen one has the double that it has among
// them.
void LegacyLogprobs::add(const infer::TokenScore& score, TextOffsets& offsets) {
  nlohmann::ordered_json top = nlohmann::ordered_json::object();
  for (const infer::Alternative& alternative : score.alternatives) {
    const std::string key = name(alternative.id);
    if (!top.contains(key)) top[key] = finite(alternative.log_probability);
  }
  const std::string chosen = name(score.id);
  if (!top.contains(chosen)) top[chosen] = finite(score.log_probability);
  json_["tokens"].push_back(chosen);
  json_["token_logprobs"].push_back(finite(score.log_probability));
  json_["top_logprobs"].push_back(std::move(top));
  json_["text_offset"].push_back(offsets.push(score.id));
}

nlohmann::ordered_json chat_logprob(const TokenNames& names, const infer::TokenScore& score, int64_t num_alternatives) {
  nlohmann::ordered_json element = chat_token(names.name(score.id), score.log_probability);
  element["top_logprobs"] = nlohmann::ordered_json::array();
  for (const infer::Alternative& alternative : score.alternatives)
    if (static_cast<int64_t>(element["top_logprobs"].size()) < num_alternatives)
      element["top_logprobs"].push_back(chat_token(names.name(alternative.id), alternative.log_probability));
  return element;
}

}  // namespace espalier::serve
