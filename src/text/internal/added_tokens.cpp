#include "text/internal/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

void AddedTokenFinder::add(const AddedToken& token) {
  size_t node = 0;
  for (const char byte : token.searched) {
    const auto [child, is_new] = nodes_[node].next.try_emplace(static_cast<uint8_t>(byte), nodes_.size());
    node = child->second;
    if (is_new) nodes_.emplace_back();
  }
  if (nodes_[node].token >= 0) {
    throw UserError(concat("two added tokens are '", token.searched, "' after normalization: ids ",
                           tokens_[static_cast<size_t>(nodes_[node].token)].id, " and ", token.id),
                    ExitCode::kBadData);
  }
  nodes_[node].token = static_cast<int>(tokens_.size());
  may_begin_[static_cast<uint8_t>(token.searched[0])] = true;
  tokens_.push_back(token);
}

bool AddedTokenFinder::find(std::string_view text, size_t from, Found& found) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!may_begin_[static_cast<uint8_t>(text[begin])]) continue;
    int longest = -1;
    size_t end = begin, node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = nodes_[node].next.find(static_cast<uint8_t>(text[at]));
      if (child == nodes_[node].next.end()) break;
      node = child->second;
      if (nodes_[node].token < 0) continue;
      longest = nodes_[node].token;
      end = at + 1;
    }
    if (longest < 0) continue;
    found = {begin, end, &tokens_[static_cast<size_t>(longest)]};
    return true;
  }
  return false;
}

bool AddedTokenFinder::stands_alone(std::string_view text, size_t begin, size_t end) {
  const bool word_before = begin > 0 && is_word_for_whitespace(decode_utf8(previous_utf8(text.data() + begin)).code);
  const bool word_after = end < text.size() && is_word_for_whitespace(decode_utf8(text.data() + end).code);
  return !word_before && !word_after;
}

void AddedTokenFinder::cut(std::string_view text, std::vector<Part>& parts) const {
  size_t done = 0;
  Found found{0, 0, nullptr};
  for (size_t from = 0; !tokens_.empty() && find(text, from, found); from = found.end) {
    if (found.token->single_word && !stands_alone(text, found.begin, found.end)) continue;
    size_t begin = found.begin, end = found.end;
    if (found.token->lstrip) {  // blanks that the token before has not taken
      while (begin > done && is_white_space(decode_utf8(previous_utf8(text.data() + begin)).code)) {
        begin = static_cast<size_t>(previous_utf8(text.data() + begin) - text.data());
      }
    }
    begin = std::max(begin, done);
    if (found.token->rstrip) {
      while (end < text.size()) {
        const CodePoint point = decode_utf8(text.data() + end);
        if (!is_white_space(point.code)) break;
        end += static_cast<size_t>(point.num_bytes);
      }
    }
    if (done < begin) parts.push_back({text.substr(done, begin - done), -1});
    parts.push_back({text.substr(begin, end - begin), found.token->id});
    done = end;
  }
  if (done < text.size()) parts.push_back({text.substr(done), -1});
}

namespace {

AddedToken read_token(const JsonPart& part) {
  AddedToken token;
  token.id = static_cast<int32_t>(part.whole_number("id"));
  token.content = part.text("content");
  token.single_word = part.flag("single_word");
  token.lstrip = part.flag("lstrip");
  token.rstrip = part.flag("rstrip");
  token.normalized = part.flag("normalized");
  token.special = part.flag("special");
  return token;
}

}  // namespace

void AddedTokens::add(AddedToken token, const Context& context, int32_t& next_id) {
  if (token.content.empty()) return;
  const auto again = ids_.find(token.content);
  const auto in_model = context.vocabulary.find(token.content);
  token.id = again != ids_.end() ? again->second : in_model != context.vocabulary.end() ? in_model->second : next_id++;
  token.searched = token.content;
  if (token.normalized && context.normalizer != nullptr) {
    Piece piece{token.content, true};
    context.normalizer->apply(piece);
    token.searched = piece.text;
  }
  ids_[token.content] = token.id;
  if (token.special) special_.insert(token.content);
  by_id_[token.id] = std::move(token);
}

AddedTokens::AddedTokens(const JsonPart& file, const Context& context) {
  auto next_id = static_cast<int32_t>(context.num_ids);
  const size_t num_listed = file.has("added_tokens") ? file.list("added_tokens").size() : 0;
  for (size_t i = 0; i < num_listed; ++i) {
    const AddedToken token = read_token(file.element("added_tokens", i));
    add(token, context, next_id);
    const int32_t id = find(token.content);
    if (id != token.id && !token.content.empty()) {
      log_warning(file.where(), ": added token '", token.content, "' has the id ", token.id, " in the file but gets ",
                  id, ", as tokenizers gives it");
    }
  }
  for (const std::string& content : context.more) {
    AddedToken token;
    token.content = content;
    token.normalized = false;
    token.special = true;
    add(std::move(token), context, next_id);
  }
  for (const auto& [id, token] : by_id_) {
    if (token.searched.empty()) file.fail("the normalizer leaves nothing of the added token '" + token.content + "'");
    (token.normalized ? normalized_ : raw_).add(token);
  }
}

int32_t AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(content);
  return found == ids_.end() ? -1 : found->second;
}

}  // namespace espalier::text::internal
