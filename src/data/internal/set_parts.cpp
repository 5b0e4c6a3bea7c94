#include "data/internal/set_parts.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::data::internal {
namespace {

bool all_different(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) == names.end();
}

std::string file_name_of_prefix(const DataSource& source) {
  return std::filesystem::path(source.prefix).filename().string();
}

std::string range_text(const DataSource& source) {
  return source.range ? concat(" ", format_shortest(source.range->begin), ":", format_shortest(source.range->end)) : "";
}

// Names for people and for tags of curves: short where that distinguishes the sources.
std::vector<std::string> names_of(const std::vector<DataSource>& sources) {
  std::vector<std::string> names;
  for (const DataSource& source : sources) names.push_back(file_name_of_prefix(source));
  if (all_different(names)) return names;
  for (size_t at = 0; at < sources.size(); ++at) names[at] = sources[at].prefix;
  if (all_different(names)) return names;
  for (size_t at = 0; at < sources.size(); ++at) names[at] = sources[at].prefix + range_text(sources[at]);
  if (all_different(names)) return names;
  for (size_t at = 0; at < sources.size(); ++at) names[at] += concat(" #", at + 1);
  return names;
}

}  // namespace

const std::shared_ptr<const TokenStore>& SetParts::store(const std::string& prefix) {
  std::shared_ptr<const TokenStore>& entry = stores_[prefix];
  if (!entry) entry = std::make_shared<const TokenStore>(prefix + ending_);
  return entry;
}

DocumentRange SetParts::documents_of(const DataSource& source, SetKind kind) {
  const int64_t count = (*store(source.prefix).*count_)();
  return source.range ? documents_in_range(*source.range, count) : split_documents(split_, count)[kind];
}

// Upstream stops with an assertion when one of several sources has no documents for a set. Here such a source is left
// out of the blend, in words, and the weights of the others share its part; training must have all.
std::vector<DataSource> SetParts::with_documents(const DataGroup& group, SetKind kind, int64_t num_samples) {
  std::vector<DataSource> kept;
  for (const DataSource& source : group.sources) {
    const DocumentRange documents = documents_of(source, kind);
    if (documents.size() > 0) {
      kept.push_back(source);
      continue;
    }
    const std::string what =
        concat(group.name, ": the split gives it documents ", documents.begin, " to ", documents.end, " of the ",
               (*store(source.prefix).*count_)(), " of '", source.prefix, "', which are none");
    if (kind == kTrain)
      throw UserError(concat(what, ". Give train a larger share or leave the data set out."), ExitCode::kBadData);
    if (num_samples > 0)
      log_warning(what, group.sources.size() > 1 ? "; it is left out of the blend" : "; the set is left out");
  }
  return kept;
}

std::vector<SetPart> SetParts::make(const DataGroup& group, SetKind kind, int64_t num_samples) {
  const std::vector<DataSource> sources = with_documents(group, kind, num_samples);
  if (sources.empty()) return {};
  std::vector<double> weights;
  for (const DataSource& source : sources) weights.push_back(source.weight);
  weights = normalized_weights(weights);
  const std::vector<int64_t> counts =
      sources.size() == 1 ? std::vector<int64_t>{num_samples} : samples_per_set(weights, num_samples);
  const std::vector<std::string> names = names_of(sources);
  std::vector<SetPart> parts;
  for (size_t at = 0; at < sources.size(); ++at)
    parts.push_back({sources[at].prefix, store(sources[at].prefix), documents_of(sources[at], kind), counts[at],
                     weights[at], names[at], concat(group.name, " of ", file_name_of_prefix(sources[at]))});
  return parts;
}

std::optional<BlendIndex> blend_of(const std::vector<double>& weights, const std::vector<int64_t>& lengths,
                                   const std::string& name, int64_t num_samples) {
  if (lengths.size() == 1) return std::nullopt;
  BlendIndex blend = BlendIndex::build(weights, lengths);
  ESPALIER_CHECK(blend.size() >= num_samples, "the blend of ", name, " ends after ", blend.size(), " of ", num_samples,
                 " samples");
  return blend;
}

}  // namespace espalier::data::internal
