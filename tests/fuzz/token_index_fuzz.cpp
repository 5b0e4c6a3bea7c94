// An .idx of either format, with a .bin as long as it asks for: opened, walked, read, and cut into samples.
#include <algorithm>

#include "data/sample_index.h"
#include "data/store_check.h"
#include "data/store_report.h"
#include "tests/fuzz/reader_fuzz.h"

namespace {

using namespace espalier;

constexpr int64_t kMostTokenBytes = 1 << 16;

// So that files whose two halves agree are tried as well. A length that cannot be is 0.
int64_t token_bytes_of(const data::TokenIndex& index) {
  const int64_t last = index.num_sequences() - 1;
  if (last < 0 || index.size(last) < 0 || index.size(last) > kMostTokenBytes) return 0;
  if (index.start_bytes(last) < 0 || index.start_bytes(last) > kMostTokenBytes) return 0;
  return index.start_bytes(last) + index.size(last) * data::bytes_per_token(index.type());
}

// A few tokens are shuffled in no time; an index that claims millions takes as long as a data set that has them.
bool is_quickly_shuffled(const data::TokenIndex& index) {
  int64_t total = 0;
  for (int64_t i = 0; i < index.num_sequences() && total <= kMostTokenBytes; ++i) {
    total += std::max<int64_t>(index.size(i), 0);
  }
  return total <= kMostTokenBytes;
}

// What training does, which does not walk the index first.
void cut_into_samples(const data::TokenStore& store) {
  const data::SampleIndex index = data::SampleIndex::build(
      store.sizes(),
      {.documents = {0, store.num_sequences()}, .sequence_length = 7, .num_samples = 20, .seed = 1, .name = "fuzz"});
  std::vector<data::DocumentSpan> spans;
  for (int64_t sample = 0; sample < std::min<int64_t>(index.size(), 20); ++sample) {
    index.spans(sample, spans);
    for (const data::DocumentSpan& span : spans) {
      std::vector<int64_t> ids(static_cast<size_t>(span.length));
      store.read(span.document, span.offset, span.length, ids.data());
    }
  }
}

void walk(const data::TokenStore& store) {
  store.check_all();
  data::summarize_sizes(store);
  data::common_last_id(store, 100);
  data::count_document_ends(store, 1);
  Progress progress("fuzz", 0, Progress::Unit::kBytes);
  data::check_ids(store, 1000, 1, progress);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  set_log_level(LogLevel::kQuiet);
  return fuzz::try_reader([&] {
    const std::filesystem::path path = fuzz::written(input, size, "set.idx");
    const data::TokenIndex index({input, size}, "set.idx");
    const std::string tokens(static_cast<size_t>(token_bytes_of(index)), '\1');
    fuzz::written(reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size(), "set.bin");
    const data::TokenStore store(path.string().substr(0, path.string().size() - 4));
    if (is_quickly_shuffled(index)) fuzz::try_reader([&] { cut_into_samples(store); });
    walk(store);
  });
}
