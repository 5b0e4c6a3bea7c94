// The added tokens of a tokenizer.json: found in a text before anything else is done to it, whole.
//
// Tokens with "normalized": false are searched in the text as it came, the others (their content normalized as well) in
// what the normalizer made of the rest; leftmost first, then longest. Ids are given as tokenizers gives them: the
// model's id for a content that its vocabulary has, else the next free one, whatever the file says.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/internal/json_file.h"
#include "text/internal/normalizer.h"

namespace espalier::text::internal {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
  std::string searched;  // the content, normalized if `normalized`; also what decoders see
};

// Finds some of the added tokens in a text.
class AddedTokenFinder {
 public:
  void add(const AddedToken& token);
  bool empty() const { return tokens_.empty(); }

  // A token, or the text between two of them.
  struct Part {
    std::string_view text;
    int32_t id;  // -1: no token
  };
  // The parts of `text` in order; none is empty.
  void cut(std::string_view text, std::vector<Part>& parts) const;

 private:
  struct Node {
    std::map<uint8_t, size_t> next;
    int token = -1;  // index in tokens_ of the one that ends here
  };
  struct Found {
    size_t begin, end;
    const AddedToken* token;
  };
  bool find(std::string_view text, size_t from, Found& found) const;
  static bool stands_alone(std::string_view text, size_t begin, size_t end);

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> may_begin_{};
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // What decides ids and contents besides the file's list: the model's vocabulary, how many ids it has, the normalizer
  // (or null). `more`: special tokens that are added after those of the file.
  struct Context {
    const std::unordered_map<std::string, int32_t>& vocabulary;
    int64_t num_ids;
    const Normalizer* normalizer;
    std::vector<std::string> more;
  };
  AddedTokens(const JsonPart& file, const Context& context);

  const AddedTokenFinder& raw() const { return raw_; }
  const AddedTokenFinder& normalized() const { return normalized_; }
  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }
  // True for what skip_special_tokens leaves out.
  bool is_special(const std::string& decoded_piece) const { return special_.count(decoded_piece) > 0; }
  // -1 if there is none of this content.
  int32_t find(std::string_view content) const;

 private:
  void add(AddedToken token, const Context& context, int32_t& next_id);

  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t, std::less<>> ids_;
  std::set<std::string> special_;
  AddedTokenFinder raw_, normalized_;
};

}  // namespace espalier::text::internal
