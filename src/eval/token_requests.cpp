#include "eval/token_requests.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "data/sentence_vocabulary.h"
#include "text/chat_tokenizer.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::strip_right;

using Ids = std::vector<int32_t>;

Ids together(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Without what the tokenizer puts around a text.
Ids bare_ids(const text::Tokenizer& tokenizer, std::string_view text) {
  if (const auto* const adds = dynamic_cast<const text::AddsSpecialTokens*>(&tokenizer)) return adds->encode_bare(text);
  return data::encode_with_sentinels(tokenizer, text);
}

}  // namespace

RequestEncoder::RequestEncoder(const text::Tokenizer& tokenizer, Tokenization tokenization, int32_t prefix,
                               int64_t sequence_length, ContextReader reader)
    : tokenizer_(tokenizer),
      encoder_(tokenizer.new_encoder()),
      tokenization_(tokenization),
      prefix_(prefix),
      sequence_length_(static_cast<size_t>(sequence_length)),
      reader_(reader) {}

Ids RequestEncoder::ids_of(std::string_view text) {
  Ids ids;
  encoder_->encode(text, ids);
  return ids;
}

// Every id once; each window but the first ends the text so far and holds as much before what is new as it can.
std::vector<TokenRow> RequestEncoder::rolling_rows(const Ids& ids) const {
  std::vector<TokenRow> rows;
  const size_t first = std::min(sequence_length_, ids.size());
  if (first == 0) return rows;
  rows.push_back({together({prefix_}, Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first))),
                  static_cast<int64_t>(first)});
  for (size_t done = first; done < ids.size();) {
    const size_t count = std::min(ids.size() - done, sequence_length_), end = done + count;
    rows.push_back({Ids(ids.begin() + static_cast<std::ptrdiff_t>(end - sequence_length_ - 1),
                        ids.begin() + static_cast<std::ptrdiff_t>(end)),
                    static_cast<int64_t>(count)});
    done = end;
  }
  return rows;
}

// What a text is written after; nothing of it is predicted.
TokenRow RequestEncoder::prompt_row(const Request& request) {
  const bool shares = reader_ == ContextReader::kDecoder;  // the sequence with what is written
  const auto wanted = shares ? static_cast<size_t>(request.generation->max_tokens) : 0;
  if (wanted >= sequence_length_)
    throw UserError(concat("max_gen_toks ", wanted, " leaves no room for a prompt in a sequence of ", sequence_length_,
                           " ids; --max-gen-toks N asks for shorter texts"),
                    ExitCode::kUsage);
  TokenRow row = {shares ? ids_of(request.context) : data::encode_with_sentinels(tokenizer_, request.context), 0};
  if (row.ids.empty()) row.ids = {prefix_};
  cut_left(row.ids, sequence_length_ - wanted);
  return row;
}

void RequestEncoder::cut_left(Ids& ids, size_t length) {
  if (ids.size() <= length) return;
  ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(length));
  ++num_cut_;
}

TokenRow RequestEncoder::row_with_encoder(const Request& request) {
  std::string_view context = request.context;
  if (tokenization_ == Tokenization::kJoint) context = strip_right(context);
  const std::string said = request.context.substr(context.size()) + request.continuation;
  Ids ids, continuation = bare_ids(tokenizer_, said);
  if (!context.empty())
    ids = data::encode_with_sentinels(tokenizer_, context);
  else if (continuation.size() > 1 && continuation[0] == prefix_)
    continuation.erase(continuation.begin());
  if (ids.empty()) ids = {prefix_};
  check_continuation(continuation, request);
  cut_left(ids, sequence_length_);
  return {together(std::move(ids), continuation), static_cast<int64_t>(continuation.size())};
}

void RequestEncoder::check_continuation(const Ids& continuation, const Request& request) const {
  if (continuation.empty() || continuation.size() > sequence_length_)
    throw UserError(concat("the continuation '", request.continuation.substr(0, 60), "' has ",
                           format_counted(static_cast<int64_t>(continuation.size()), "id"), "; from 1 to ",
                           sequence_length_, ", the sequence length, can be scored"),
                    ExitCode::kBadData);
}

std::vector<TokenRow> RequestEncoder::encode(const Request& request) {
  if (request.kind == RequestKind::kGenerate) return {prompt_row(request)};
  if (request.kind == RequestKind::kLogLikelihood && reader_ == ContextReader::kEncoder)
    return {row_with_encoder(request)};
  if (request.kind == RequestKind::kRolling) return rolling_rows(ids_of(request.continuation));
  Ids context = request.context_ids, continuation = request.continuation_ids;
  if (request.kind == RequestKind::kLogLikelihood && tokenization_ == Tokenization::kSeparate) {
    context = ids_of(request.context);
    continuation = ids_of(request.continuation);
  } else if (request.kind == RequestKind::kLogLikelihood) {
    // Blanks that end the context belong to the first word after it.
    const std::string_view kept = strip_right(request.context);
    context = ids_of(kept);
    continuation = ids_of(request.context + request.continuation);
    continuation.erase(continuation.begin(), continuation.begin() + static_cast<std::ptrdiff_t>(
                                                                        std::min(context.size(), continuation.size())));
  }
  if (context.empty()) {
    // Joint: a text that begins with the prefix brings it along.
    if (tokenization_ == Tokenization::kJoint && continuation.size() > 1 && continuation[0] == prefix_)
      continuation.erase(continuation.begin());
    context = {prefix_};
  }
  check_continuation(continuation, request);
  TokenRow row = {together(std::move(context), continuation), static_cast<int64_t>(continuation.size())};
  cut_left(row.ids, sequence_length_ + 1);
  return {std::move(row)};
}

}  // namespace espalier::eval
