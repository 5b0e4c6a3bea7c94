#include "text/chat_tokenizer.h"

#include <algorithm>
#include <map>

namespace espalier::text {
namespace {

std::map<std::string, int32_t> special_names(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = tokenizer.special_ids();
  const NamedIds named = tokenizer.named_ids();
  for (const auto& id : {tokenizer.eod(), named.bos, named.eos, named.pad})
    if (id) ids.push_back(*id);
  std::map<std::string, int32_t> names;
  for (const int32_t id : ids)
    if (std::string name = tokenizer.id_to_piece(id); !name.empty()) names.insert({std::move(name), id});
  return names;
}

}  // namespace

// Most tokenizers take special tokens for plain text: they are cut out first.
std::vector<int32_t> encode_marked(const Tokenizer& tokenizer, std::string_view text) {
  if (const auto* const finds_them = dynamic_cast<const AddsSpecialTokens*>(&tokenizer))
    return finds_them->encode_bare(text);
  const std::map<std::string, int32_t> names = special_names(tokenizer);
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t found = std::string_view::npos;
    const std::pair<const std::string, int32_t>* special = nullptr;
    for (const auto& name : names) {
      const size_t at = text.find(name.first);
      const bool is_longer = special != nullptr && at == found && name.first.size() > special->first.size();
      if (at == std::string_view::npos || (at >= found && !is_longer)) continue;
      found = at;
      special = &name;
    }
    const std::string_view plain = text.substr(0, found);
    if (!plain.empty()) {
      const std::vector<int32_t> part = tokenizer.encode(plain);
      ids.insert(ids.end(), part.begin(), part.end());
    }
    if (special == nullptr) break;
    ids.push_back(special->second);
    text.remove_prefix(found + special->first.size());
  }
  return ids;
}

std::string chat_template_origin(const Tokenizer& tokenizer) {
  std::string origin;
  for (const auto& [name, path] : tokenizer.files()) {
    if (name == "chat_template.jinja") return path;
    if (name == "tokenizer_config.json") origin = path + ": chat_template";
  }
  return origin;
}

}  // namespace espalier::text
