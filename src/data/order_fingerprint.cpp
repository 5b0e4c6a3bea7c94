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

constexpr const char* kFirstWords = "sample order, format ";  // 2, or 3 with stages

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
  [[noreturn]] void refuse(const char* name) const {
    throw UserError(concat("the checkpoint's sample order: expected '", name, "' and its value, found the line '",
                           line_.substr(0, 120), "'. The manifest is damaged or of a later release."),
                    ExitCode::kBadData);
  }

 private:
  const std::string line_;
  std::istringstream stream_;
};

std::string documents_text(const DocumentRange& range) { return concat(range.begin, " to ", range.end); }

// Why the samples of a part are others than they were; empty when they are the same.
std::vector<std::string> changes_of(const OrderOfPart& saved, double saved_weight, const OrderOfPart& present,
                                    double present_weight) {
  std::vector<std::string> lines;
  const auto changed = [&](const auto&... parts) { lines.push_back(concat(parts...)); };
  if (saved_weight != present_weight)
    changed("its share of the blend was ", format_shortest(saved_weight), " and is ", format_shortest(present_weight));
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

bool has_stages(const OrderFingerprint& order) { return !order.stages.empty() || !order.lengths.empty(); }

OrderOfStage parse_stage(FingerprintLine& words, size_t num_parts) {
  OrderOfStage stage;
  size_t count = 0;
  words.read("stage", stage.first_sample);
  words.read("sets", count);
  for (size_t at = 0; at < count; ++at) {
    size_t part = 0;
    double weight = 0;
    words.read("set", part);
    words.read("weight", weight);
    if (part >= num_parts) words.refuse("set");
    stage.parts.push_back(part);
    stage.weights.push_back(weight);
  }
  return stage;
}

// The stages that have begun before `num_consumed` samples; of a run without any, the one that it is.
std::vector<OrderOfStage> stages_begun(const OrderFingerprint& order, const std::optional<int64_t>& num_consumed) {
  std::vector<OrderOfStage> stages = order.stages;
  if (stages.empty()) {
    stages.emplace_back();
    for (size_t part = 0; part < order.parts.size(); ++part) {
      stages.front().parts.push_back(part);
      stages.front().weights.push_back(order.parts[part].weight);
    }
  }
  while (num_consumed && stages.size() > 1 && stages.back().first_sample >= *num_consumed) stages.pop_back();
  return stages;
}

// What differs between two stages at the same place, in a line for each part.
std::vector<std::string> stage_changes(const OrderFingerprint& saved, const OrderOfStage& then,
                                       const OrderFingerprint& present, const OrderOfStage& now) {
  if (then.parts.size() != now.parts.size())
    return {concat("the number of data sets was ", then.parts.size(), " and is ", now.parts.size())};
  std::vector<std::string> lines;
  for (size_t at = 0; at < now.parts.size(); ++at) {
    const OrderOfPart& part = present.parts[now.parts[at]];
    const std::vector<std::string> changes =
        changes_of(saved.parts[then.parts[at]], then.weights[at], part, now.weights[at]);
    if (!changes.empty())
      lines.push_back(
          concat("data set ", at + 1, " of ", now.parts.size(), ", '", part.prefix, "': ", join(changes, "; ")));
  }
  return lines;
}

// "512 from sample 0 on, 1024 from sample 8,000 on": what has begun.
std::string lengths_text(const OrderFingerprint& order, const std::optional<int64_t>& num_consumed) {
  std::vector<std::string> stages;
  for (const LengthStage& stage : order.lengths)
    if (!num_consumed || stage.first_sample < *num_consumed)
      stages.push_back(concat(stage.length, stage.truncates ? " (truncated)" : "", " from sample ",
                              format_count(stage.first_sample), " on"));
  return stages.empty() ? "that of all samples" : join(stages, ", ");
}

std::string stage_text(const OrderFingerprint& order, const OrderOfStage& stage) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < stage.parts.size(); ++at)
    parts.push_back(concat(format_shortest(stage.weights[at]), " ", order.parts[stage.parts[at]].prefix));
  return concat("from sample ", format_count(stage.first_sample), " on: ", join(parts, ", "));
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

namespace {

// An implicit order follows from where documents begin; that is probed as the tokens are, so that opening a corpus
// costs the same however large it is. The arrays of the others follow from every size.
uint64_t hash_of_sizes(const GptDataset::Part& part, OrderKind kind) {
  const TokenIndex& index = part.store->index();
  const DocumentRange& documents = part.documents;
  constexpr int64_t kProbes = 4096;
  if (kind == OrderKind::kMegatron || documents.size() <= kProbes)
    return hash64(index.sizes().address(documents.begin), static_cast<size_t>(documents.size()) * sizeof(int32_t));
  Hasher hasher;
  for (int64_t probe = 0; probe < kProbes; ++probe) {
    // The ends among them.
    const int64_t document = documents.begin + static_cast<int64_t>(static_cast<double>(documents.size() - 1) *
                                                                    static_cast<double>(probe) / (kProbes - 1));
    const int64_t values[] = {document, index.start_bytes(document) - index.start_bytes(documents.begin),
                              index.size(document)};
    hasher.update(values, sizeof values);
  }
  return hasher.digest();
}

std::string full_reading(const GptDataset& dataset, const std::string& reading) {
  if (dataset.packing() == Packing::kBestFit) return concat(reading, "; best-fit");
  return dataset.order_kind() == OrderKind::kImplicit ? concat(reading, "; implicit") : reading;
}

}  // namespace

OrderFingerprint order_fingerprint(const GptDataset& dataset, const std::string& reading) {
  OrderFingerprint fingerprint{dataset.sequence_length(), dataset.seed(), full_reading(dataset, reading), {}, {}, {}};
  for (const GptDataset::Part& part : dataset.parts()) {
    // What comes after the first order follows from it.
    const SampleOrder& order = *part.order.orders().front();
    fingerprint.parts.push_back({.prefix = part.store->prefix(),
                                 .weight = part.weight,
                                 .documents = part.documents,
                                 .num_samples_asked = part.num_samples_asked,
                                 .num_epochs = order.num_epochs(),
                                 .num_samples = order.size(),
                                 .sizes_hash = hash_of_sizes(part, dataset.order_kind()),
                                 .arrays_hash = hash_of_arrays(order.arrays()),
                                 .tokens_hash = hash_of_tokens(*part.store, part.documents)});
  }
  const Mixture& mixture = dataset.mixture();
  // Sources of stages beyond the end of the run are parts that the only stage does not read.
  const bool in_stages = mixture.num_stages() > 1 || mixture.stage(0).sources.size() < dataset.parts().size();
  for (size_t stage = 0; in_stages && stage < mixture.num_stages(); ++stage)
    fingerprint.stages.push_back(
        {mixture.stage(stage).first_sample, mixture.stage(stage).sources, mixture.stage(stage).weights});
  return fingerprint;
}

std::string to_text(const OrderFingerprint& fingerprint) {
  std::string text = concat(kFirstWords, has_stages(fingerprint) ? 3 : 2, "\nlength ", fingerprint.sequence_length,
                            " seed ", fingerprint.seed, " reading ", fingerprint.reading, "\n");
  for (const OrderOfPart& part : fingerprint.parts)
    text += concat("weight ", format_shortest(part.weight), " from ", part.documents.begin, " to ", part.documents.end,
                   " asked ", part.num_samples_asked, " epochs ", part.num_epochs, " samples ", part.num_samples,
                   " sizes ", hex64(part.sizes_hash), " arrays ", hex64(part.arrays_hash), " tokens ",
                   hex64(part.tokens_hash), " prefix ", without_controls(part.prefix), "\n");
  for (const LengthStage& stage : fingerprint.lengths)
    text += concat("sequences ", stage.length, " from ", stage.first_sample, " truncates ", int{stage.truncates}, "\n");
  for (const OrderOfStage& stage : fingerprint.stages) {
    text += concat("stage ", stage.first_sample, " sets ", stage.parts.size());
    for (size_t at = 0; at < stage.parts.size(); ++at)
      text += concat(" set ", stage.parts[at], " weight ", format_shortest(stage.weights[at]));
    text += "\n";
  }
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
    if (line.starts_with("stage ")) {
      fingerprint.stages.push_back(parse_stage(words, fingerprint.parts.size()));
      continue;
    }
    if (line.starts_with("sequences ")) {
      LengthStage& stage = fingerprint.lengths.emplace_back();
      words.read("sequences", stage.length);
      words.read("from", stage.first_sample);
      int truncates = 0;
      words.read("truncates", truncates);
      stage.truncates = truncates != 0;
      continue;
    }
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

std::vector<std::string> order_changes(const OrderFingerprint& saved, const OrderFingerprint& present,
                                       std::optional<int64_t> num_consumed) {
  std::vector<std::string> lines;
  const auto compare = [&](const char* what, const auto& then, const auto& now) {
    if (then != now) lines.push_back(concat(what, " was ", then, " and is ", now));
  };
  compare("the sequence length", saved.sequence_length, present.sequence_length);
  compare("the seed", saved.seed, present.seed);
  compare("the way of reading", saved.reading, present.reading);
  // With another length or seed every array differs, which says nothing more.
  if (!lines.empty()) return lines;
  compare("the length of sequences", lengths_text(saved, num_consumed), lengths_text(present, num_consumed));
  const std::vector<OrderOfStage> then = stages_begun(saved, num_consumed), now = stages_begun(present, num_consumed);
  const bool is_staged = then.size() > 1 || now.size() > 1;
  for (size_t at = 0; at < std::max(then.size(), now.size()); ++at) {
    const std::string name = is_staged ? concat("stage ", at + 1, ": ") : "";
    if (at >= then.size()) {
      lines.push_back(concat(name, "there was none, and now there is one ", stage_text(present, now[at])));
    } else if (at >= now.size()) {
      lines.push_back(concat(name, "it is gone; it was ", stage_text(saved, then[at])));
    } else if (then[at].first_sample != now[at].first_sample) {
      lines.push_back(concat(name, "it began at sample ", format_count(then[at].first_sample), " and begins at sample ",
                             format_count(now[at].first_sample)));
    } else {
      for (const std::string& line : stage_changes(saved, then[at], present, now[at])) lines.push_back(name + line);
    }
  }
  return lines;
}

std::vector<std::string> content_changes(const OrderFingerprint& saved, const OrderFingerprint& present) {
  if (saved.parts.size() != present.parts.size())
    return {concat("the number of data sets was ", saved.parts.size(), " and is ", present.parts.size())};
  std::vector<std::string> lines;
  for (size_t at = 0; at < present.parts.size(); ++at) {
    const OrderOfPart &then = saved.parts[at], &now = present.parts[at];
    if (then.documents != now.documents)
      lines.push_back(concat("'", now.prefix, "': its documents were ", then.documents.begin, " to ",
                             then.documents.end, " and are ", now.documents.begin, " to ", now.documents.end));
    else if (then.sizes_hash != now.sizes_hash || then.tokens_hash != now.tokens_hash)
      lines.push_back(concat("'", now.prefix, "': it holds other tokens: the files were regenerated or replaced"));
  }
  return lines;
}

}  // namespace espalier::data
