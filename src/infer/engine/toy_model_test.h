// A model whose logits are a hash of (token, position) of the whole text so far, which it reads back from the pages, so
// that a wrong page, position or order changes them; and a tokenizer of ids that cut characters. For the tests of the
// engine.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "infer/engine/batch_model.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace espalier::infer::toy {

inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ (value + 0x9E3779B97F4A7C15ULL)) * 0xBF58476D1CE4E5B9ULL;
  return hash ^ (hash >> 29);
}

inline uint64_t hash_of(std::span<const int32_t> ids) {
  uint64_t hash = 1;
  for (const int32_t id : ids) hash = mixed(hash, static_cast<uint64_t>(id));
  return hash;
}

// Of the text's hash; no two ids are equally likely but by chance.
inline float logit_of(uint64_t hash, int64_t id) {
  const uint64_t bits = mixed(mixed(hash, static_cast<uint64_t>(id) + 77), 5);
  return static_cast<float>(static_cast<double>(bits >> 40) * 0x1p-24 * 8 - 4);
}

// What the engine should see after place `place` of a text, without pages: a plain loop.
inline std::vector<float> logits_after(std::span<const int32_t> ids, int64_t place, int64_t num_whole,
                                       std::span<const int32_t> encoder_ids, int64_t vocab_size) {
  uint64_t hash = encoder_ids.empty() ? 3 : hash_of(encoder_ids);
  for (int64_t at = 0; at <= place; ++at) {
    const uint64_t seen = at < num_whole ? hash_of(ids.first(static_cast<size_t>(num_whole))) : 0;
    hash =
        mixed(mixed(mixed(hash, static_cast<uint64_t>(ids[static_cast<size_t>(at)])), static_cast<uint64_t>(at)), seen);
  }
  std::vector<float> logits;
  for (int64_t id = 0; id < vocab_size; ++id) logits.push_back(logit_of(hash, id));
  return logits;
}

class ToyModel final : public BatchModel {
 public:
  explicit ToyModel(const BatchModelShape& shape)
      : shape_(shape), slots_(static_cast<size_t>(shape.num_pages * shape.page_tokens)) {}

  BatchModelShape shape() const override { return shape_; }

  void forward(std::span<const TokenRun> runs, float* logits) override {
    if (throw_at-- == 0) throw std::runtime_error("the toy is broken");
    check_pages(runs);
    for (const TokenRun& run : runs) write(run);
    int64_t num_rows = 0, num_tokens = 0;
    for (const TokenRun& run : runs) {
      const auto size = static_cast<int64_t>(run.ids.size());
      for (int64_t row = size - run.num_logits; row < size; ++row) {
        const uint64_t hash = read(run, run.first_position + row);
        for (int64_t id = 0; id < shape_.vocab_size; ++id) *logits++ = is_nan_at(run, row) ? kNan : logit_of(hash, id);
      }
      num_rows += run.num_logits;
      num_tokens += size;
    }
    most_rows = std::max(most_rows, num_rows);
    most_tokens = std::max(most_tokens, num_tokens);
    ++num_passes;
  }

  int32_t encode(std::span<const int32_t> ids) override {
    const auto number = static_cast<int32_t>(num_encoded++);
    encoded_[number] = hash_of(ids);
    return number;
  }
  void release(int32_t encoded) override { ASSERT_EQ(encoded_.erase(encoded), 1u); }

  size_t num_kept_encoded() const { return encoded_.size(); }

  int64_t most_rows = 0, most_tokens = 0, num_passes = 0, num_encoded = 0;
  int64_t throw_at = -1;  // passes from now
  int32_t nan_after = -1;

 private:
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  struct Slot {
    int32_t id = -1;
    int64_t position = -1;
    uint64_t seen = 0;
  };

  bool is_nan_at(const TokenRun& run, int64_t row) const { return run.ids[static_cast<size_t>(row)] == nan_after; }

  Slot& slot(const TokenRun& run, int64_t position) {
    const int32_t page = run.pages[static_cast<size_t>(position / shape_.page_tokens)];
    return slots_[static_cast<size_t>(page * shape_.page_tokens + position % shape_.page_tokens)];
  }

  void write(const TokenRun& run) {
    const uint64_t seen = (run.whole ? hash_of(run.ids) : 0) + (run.is_long ? 1 : 0);
    for (size_t at = 0; at < run.ids.size(); ++at) {
      const int64_t position = run.first_position + static_cast<int64_t>(at);
      slot(run, position) = {run.ids[at], position, seen};
    }
  }

  uint64_t read(const TokenRun& run, int64_t place) {
    uint64_t hash = shape_.has_encoder ? encoded_.at(run.encoded) : 3;
    for (int64_t at = 0; at <= place; ++at) {
      const Slot& slot = this->slot(run, at);
      hash = mixed(mixed(mixed(hash, static_cast<uint64_t>(slot.id)), static_cast<uint64_t>(slot.position)), slot.seen);
    }
    return hash;
  }

  // What the interface forbids.
  void check_pages(std::span<const TokenRun> runs) {
    ASSERT_FALSE(runs.empty());
    std::map<int32_t, int64_t> num_runs;
    std::set<int32_t> written;
    for (const TokenRun& run : runs) {
      ASSERT_FALSE(run.ids.empty());
      ASSERT_LE(run.num_logits, static_cast<int64_t>(run.ids.size()));
      const int64_t end = run.first_position + static_cast<int64_t>(run.ids.size());
      ASSERT_LE(end, static_cast<int64_t>(run.pages.size()) * shape_.page_tokens);
      ASSERT_TRUE(shape_.max_positions == 0 || end <= shape_.max_positions);
      ASSERT_TRUE(!run.whole || run.first_position == 0);
      for (const int32_t page : run.pages) ++num_runs[page];
      for (int64_t page = run.first_position / shape_.page_tokens; page * shape_.page_tokens < end; ++page)
        written.insert(run.pages[static_cast<size_t>(page)]);
    }
    for (const int32_t page : written) ASSERT_EQ(num_runs[page], 1) << "page " << page << " is written and shared";
  }

  BatchModelShape shape_;
  std::vector<Slot> slots_;
  std::map<int32_t, uint64_t> encoded_;
};

// Bytes, of which some form characters only together.
class ToyTokenizer final : public text::Tokenizer {
 public:
  explicit ToyTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  std::string decode(std::span<const int32_t> ids, bool /*skip_special_tokens*/) const override {
    std::string bytes, storage;
    for (const int32_t id : ids) bytes += pieces_.at(static_cast<size_t>(id));
    int64_t num_replaced = 0;
    return std::string(text::repair_utf8(bytes, storage, num_replaced));
  }
  std::unique_ptr<text::Encoder> new_encoder() const override { return nullptr; }
  int64_t vocab_size() const override { return static_cast<int64_t>(pieces_.size()); }
  std::optional<int32_t> eod() const override { return std::nullopt; }
  std::string id_to_piece(int32_t id) const override { return pieces_.at(static_cast<size_t>(id)); }
  std::optional<int32_t> piece_to_id(std::string_view) const override { return std::nullopt; }
  text::TokenizerJson tokenizer_json() const override { return {}; }
  std::string description() const override { return "a toy"; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }

 private:
  std::vector<std::string> pieces_;
};

// 17 ids: the euro sign and an emoji in bytes, halves of it, words that share beginnings, one that fits nowhere.
inline ToyTokenizer tokenizer() {
  return ToyTokenizer({"a", "b", "ab", "ba", "c", " the", "\xE2", "\x82", "\xAC", "\xF0\x9F", "\x98\x80", "\xFF", "abc",
                       "\xC3\xA9", "x\xE2", "\n", ""});
}
constexpr int64_t kVocabulary = 17;

}  // namespace espalier::infer::toy
