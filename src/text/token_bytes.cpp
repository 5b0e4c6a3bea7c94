#include "text/token_bytes.h"

#include <algorithm>
#include <string>

#include "text/internal/byte_level.h"
#include "text/utf8.h"

namespace espalier::text {
namespace {

bool is_word(const std::string& text) {
  return text.size() >= 2 && std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

class ByteCounter {
 public:
  explicit ByteCounter(const Tokenizer& tokenizer) : tokenizer_(tokenizer), specials_(tokenizer.special_ids()) {
    const NamedIds named = tokenizer.named_ids();
    for (const auto& id :
         {named.bos, named.eos, named.pad, named.cls, named.sep, named.mask, named.text_end, tokenizer.eod()})
      if (id) specials_.push_back(*id);
    std::sort(specials_.begin(), specials_.end());
    find_word();
  }

  // As the first of a text, or within one.
  int32_t first(int32_t id) const { return count(id, tokenizer_.decode(std::vector<int32_t>{id})); }
  int32_t within(int32_t id) const { return count(id, added_by(id)); }

 private:
  int32_t count(int32_t id, const std::string& added) const {
    if (std::binary_search(specials_.begin(), specials_.end(), id)) return kNoText;
    const std::string piece = tokenizer_.id_to_piece(id);
    // A part of a character, which alone is decoded to U+FFFD.
    if (is_byte_name(piece) && added != piece) return 1;
    for (const std::string& bytes : {internal::bytes_of_piece(piece).value_or(""), piece})
      if (repaired(bytes) == added) return static_cast<int32_t>(bytes.size());
    return static_cast<int32_t>(added.size());
  }

  // A plain word to be before each id: decoders treat what begins a text in another way.
  void find_word() {
    const auto size = static_cast<int32_t>(tokenizer_.vocab_size());
    for (int32_t id = 0; id < size && word_text_.empty(); ++id) {
      if (std::binary_search(specials_.begin(), specials_.end(), id)) continue;
      const std::string text = tokenizer_.decode(std::vector<int32_t>{id});
      if (!is_word(text)) continue;
      word_ = {id};
      word_text_ = text;
    }
  }

  std::string added_by(int32_t id) const {
    std::vector<int32_t> ids = word_;
    ids.push_back(id);
    const std::string whole = tokenizer_.decode(ids);
    return whole.starts_with(word_text_) ? whole.substr(word_text_.size())
                                         : tokenizer_.decode(std::vector<int32_t>{id});
  }

  static bool is_byte_name(const std::string& piece) {
    return piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>';
  }

  static std::string repaired(const std::string& bytes) {
    std::string storage;
    int64_t num_replaced = 0;
    return std::string(repair_utf8(bytes, storage, num_replaced));
  }

  const Tokenizer& tokenizer_;
  std::vector<int32_t> specials_;
  std::vector<int32_t> word_;
  std::string word_text_;
};

}  // namespace

TextBytes text_bytes(const Tokenizer& tokenizer) {
  if (!tokenizer.encodes_any_text()) return {};
  const ByteCounter counter(tokenizer);
  TextBytes bytes;
  for (int32_t id = 0; id < static_cast<int32_t>(tokenizer.vocab_size()); ++id) {
    bytes.within.push_back(counter.within(id));
    bytes.first.push_back(counter.first(id));
  }
  return bytes;
}

}  // namespace espalier::text
