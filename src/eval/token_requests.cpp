#include "eval/token_requests.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

using text::python::strip_right;

using Ids = std::vector<int32_t>;

Ids together(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

RequestEncoder::RequestEncoder(const text::Tokenizer& tokenizer, Tokenization tokenization, int32_t prefix,
                               int64_t sequence_length)
    : encoder_(tokenizer.new_encoder()),
      tokenization_(tokenization),
      prefix_(prefix),
      sequence_length_(static_cast<size_t>(sequence_length)) {}

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

std::vector<TokenRow> RequestEncoder::encode(const Request& request) {
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
  if (continuation.empty() || continuation.size() > sequence_length_)
    throw UserError(concat("the continuation '", request.continuation.substr(0, 60), "' has ",
                           format_counted(static_cast<int64_t>(continuation.size()), "id"), "; from 1 to ",
                           sequence_length_, ", the sequence length, can be scored"),
                    ExitCode::kBadData);
  TokenRow row = {together(std::move(context), continuation), static_cast<int64_t>(continuation.size())};
  const size_t cut = row.ids.size() - std::min(row.ids.size(), sequence_length_ + 1);
  row.ids.erase(row.ids.begin(), row.ids.begin() + static_cast<std::ptrdiff_t>(cut));
  num_cut_ += cut > 0;
  return {std::move(row)};
}

}  // namespace espalier::eval
