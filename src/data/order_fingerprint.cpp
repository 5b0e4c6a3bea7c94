#include "data/order_fingerprint.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "data/gpt_dataset.h"
#include "data/token_probe.h"

namespace espalier::data {
namespace {

constexpr const char* kFirstWords = "sample order, format 2";

std::string without_controls(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char byte) { return byte < ' '; }, '?');
  return text;
}

// Reads "NAME VALUE" pairs of a line, in order.
class FingerprintLine {
 public:
  explicit FingerprintLine(const std::string& line) : line_(line), stream_(line) {}

  template <class Value>
  void read(const char* name, Value& value, int base = 10) {
    std::string word, text;
    if (!(stream_ >> word >> text) || word != name) refuse(name);
    const char* const end = text.data() + text.size();
    std::from_chars_result result{};
    if constexpr (std::is_floating_point_v<Value>)
      result = std::from_chars(text.data(), end, value);
    else
      result = std::from_chars(text.data(), end, value, base);
    if (result.ec != std::errc() || result.ptr != end) refuse(name);
  }
  // All that is left of the line.
  std::string rest(const char* name) {
    std::string word, text;
    if (!(stream_ >> word) || word != name) refuse(name);
    std::getline(stream_ >> std::ws, text);
    return text;
  }

 private:
  [[noreturn]] void refuse(const char* name) const {
    throw UserError(concat("the checkpoint's sample order: expected '", name, "' and its value, found the line '",
                           line_.substr(0, 120), "'. The manifest is damaged or of a later release."),
                    ExitCode::kBadData);
  }

  const std::string line_;
  std::istringstream stream_;
};

std::string documents_text(const DocumentRange& range) { return concat(range.begin, " to ", range.end); }

// Why the samples of a part are others than they were; empty when they are the same.
std::vector<std::string> changes_of(const OrderOfPart& saved, const OrderOfPart& present) {
  std::vector<std::string> lines;
  const auto changed = [&](const auto&... parts) { lines.push_back(concat(parts...)); };
  if (saved.weight != present.weight)
    changed("its share of the blend was ", format_shortest(saved.weight), " and is ", format_shortest(present.weight));
  if (saved.documents.begin != present.documents.begin || saved.documents.end != present.documents.end) {
    changed("its documents were ", documents_text(saved.documents), " and are ", documents_text(present.documents));
  } else if (saved.sizes_hash != present.sizes_hash) {
    changed("its documents have other lengths: the files were regenerated or replaced");
  } else {
    if (saved.tokens_hash != present.tokens_hash)
      changed("it holds other tokens: the files were regenerated or replaced");
    if (saved.arrays_hash != present.arrays_hash && saved.num_epochs != present.num_epochs)
      changed("it was asked for ", format_count(saved.num_samples_asked), " samples, which took ",
              format_count(saved.num_epochs), saved.num_epochs == 1 ? " epoch" : " epochs", ", and is asked for ",
              format_count(present.num_samples_asked), ", which takes ", format_count(present.num_epochs));
    else if (saved.arrays_hash != present.arrays_hash)
      changed("its samples come in another order (asked for ", format_count(saved.num_samples_asked), ", then ",
              format_count(present.num_samples_asked), ")");
  }
  return lines;
}

}  // namespace

uint64_t hash_of_arrays(const std::vector<const IndexArray*>& arrays) {
  Hasher hasher;
  for (const IndexArray* array : arrays) {
    const int64_t rows = array->rows();
    hasher.update(&rows, sizeof rows);
    hasher.update(array->data(), array->size_bytes());
  }
  return hasher.digest();
}

uint64_t hash_of_tokens(const TokenStore& store, const DocumentRange& sequences) {
  Hasher hasher;
  probe_tokens(store, sequences, [&](const TokenProbe& probe) {
    hasher.update(&probe.sequence, sizeof probe.sequence);
    hasher.update(probe.ids.data(), probe.ids.size_bytes());
  });
  return hasher.digest();
}

OrderFingerprint order_fingerprint(const GptDataset& dataset, const std::string& reading) {
  OrderFingerprint fingerprint{dataset.sequence_length(), dataset.seed(), reading, {}};
  for (const GptDataset::Part& part : dataset.parts()) {
    const EpochPlan& plan = part.index.plan();
    fingerprint.parts.push_back(
        {.prefix = part.store->prefix(),
         .weight = part.weight,
         .documents = part.documents,
         .num_samples_asked = part.num_samples_asked,
         .num_epochs = plan.num_epochs,
         .num_samples = plan.num_samples,
         .sizes_hash = hash64(part.store->sizes().address(part.documents.begin),
                              static_cast<size_t>(part.documents.size()) * sizeof(int32_t)),
         .arrays_hash = hash_of_arrays({&part.index.documents(), &part.index.starts(), &part.index.order()}),
         .tokens_hash = hash_of_tokens(*part.store, part.documents)});
  }
  return fingerprint;
}

std::string to_text(const OrderFingerprint& fingerprint) {
  std::string text = concat(kFirstWords, "\nlength ", fingerprint.sequence_length, " seed ", fingerprint.seed,
                            " reading ", fingerprint.reading, "\n");
  for (const OrderOfPart& part : fingerprint.parts)
    text += concat("weight ", format_shortest(part.weight), " from ", part.documents.begin, " to ", part.documents.end,
                   " asked ", part.num_samples_asked, " epochs ", part.num_epochs, " samples ", part.num_samples,
                   " sizes ", hex64(part.sizes_hash), " arrays ", hex64(part.arrays_hash), " tokens ",
                   hex64(part.tokens_hash), " prefix ", without_controls(part.prefix), "\n");
  return text;
}

bool is_order_text(const std::string& text) { return text.starts_with(kFirstWords); }

OrderFingerprint parse_order(const std::string& text) {
  OrderFingerprint fingerprint;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // is_order_text()
  std::getline(lines, line);
  FingerprintLine head(line);
  head.read("length", fingerprint.sequence_length);
  head.read("seed", fingerprint.seed);
  fingerprint.reading = head.rest("reading");
  while (std::getline(lines, line)) {
    FingerprintLine words(line);
    OrderOfPart part;
    words.read("weight", part.weight);
    words.read("from", part.documents.begin);
    words.read("to", part.documents.end);
    words.read("asked", part.num_samples_asked);
    words.read("epochs", part.num_epochs);
    words.read("samples", part.num_samples);
    words.read("sizes", part.sizes_hash, 16);
    words.read("arrays", part.arrays_hash, 16);
    words.read("tokens", part.tokens_hash, 16);
    part.prefix = words.rest("prefix");
    fingerprint.parts.push_back(part);
  }
  return fingerprint;
}

std::vector<std::string> order_changes(const OrderFingerprint& saved, const OrderFingerprint& present) {
  std::vector<std::string> lines;
  const auto compare = [&](const char* what, const auto& then, const auto& now) {
    if (then != now) lines.push_back(concat(what, " was ", then, " and is ", now));
  };
  compare("the sequence length", saved.sequence_length, present.sequence_length);
  compare("the seed", saved.seed, present.seed);
  compare("the way of reading", saved.reading, present.reading);
  compare("the number of data sets", saved.parts.size(), present.parts.size());
  // With another length or seed every array differs, which says nothing more.
  if (!lines.empty()) return lines;
  for (size_t at = 0; at < present.parts.size(); ++at) {
    const std::vector<std::string> changes = changes_of(saved.parts[at], present.parts[at]);
    if (!changes.empty())
      lines.push_back(concat("data set ", at + 1, " of ", present.parts.size(), ", '", present.parts[at].prefix,
                             "': ", join(changes, "; ")));
  }
  return lines;
}

}  // namespace espalier::data
