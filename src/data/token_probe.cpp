#include "data/token_probe.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace espalier::data {
namespace {

constexpr int64_t kPlaces = 16, kIdsAtOnce = 64;

}  // namespace

void probe_tokens(const TokenStore& store, const DocumentRange& range,
                  const std::function<void(const TokenProbe&)>& visit) {
  const int64_t count = std::min(kPlaces, range.size());
  std::vector<int64_t> ids;
  const auto read = [&](int64_t sequence, int64_t offset, int64_t length) {
    ids.resize(static_cast<size_t>(length));
    store.read(sequence, offset, length, ids.data());
    visit({sequence, offset, ids});
  };
  for (int64_t place = 0; place < count; ++place) {
    const int64_t sequence = range.begin + (count == 1 ? 0 : (range.size() - 1) * place / (count - 1));
    const int64_t size = store.size(sequence);
    read(sequence, 0, std::min(size, kIdsAtOnce));
    if (size > kIdsAtOnce)
      read(sequence, std::max(kIdsAtOnce, size - kIdsAtOnce), std::min(size - kIdsAtOnce, kIdsAtOnce));
  }
}

std::optional<std::string> probe_ids(const TokenStore& store, const DocumentRange& range, int64_t vocab_size) {
  std::optional<std::string> problem;
  probe_tokens(store, range, [&](const TokenProbe& probe) {
    const auto bad = [&](int64_t id) { return id < 0 || id >= vocab_size; };
    const auto found = std::find_if(probe.ids.begin(), probe.ids.end(), bad);
    if (problem || found == probe.ids.end()) return;
    problem =
        concat(store.files().tokens, ": id of token ", probe.offset + (found - probe.ids.begin()), " of sequence ",
               probe.sequence, ": expected 0 to ", vocab_size - 1, ", found ", *found,
               ". The data was made with another tokenizer, or is damaged: 'espalier data check' reads all of it.");
  });
  return problem;
}

}  // namespace espalier::data
