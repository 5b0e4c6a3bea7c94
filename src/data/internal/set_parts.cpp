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

std::string file_name_of_prefix(const std::string& prefix) { return std::filesystem::path(prefix).filename().string(); }

// Also where it is named in two ways.
bool is_same_file(const TokenStore& a, const TokenStore& b) {
  std::error_code missing;
  return a.prefix() == b.prefix() || std::filesystem::equivalent(a.files().tokens, b.files().tokens, missing);
}

// Names for people and for tags of curves: short where that tells the sources apart.
void name_sources(std::vector<SetPart>& parts) {
  const auto gave_names = [&](auto name_of) {
    std::vector<std::string> names;
    for (SetPart& part : parts) names.push_back(part.source_name = name_of(part));
    return all_different(names);
  };
  const auto whole_name = [](const SetPart& part) {
    return part.range
               ? concat(part.prefix, " ", format_shortest(part.range->begin), ":", format_shortest(part.range->end))
               : part.prefix;
  };
  if (gave_names([](const SetPart& part) { return file_name_of_prefix(part.prefix); }) ||
      gave_names([](const SetPart& part) { return part.prefix; }) || gave_names(whole_name))
    return;
  for (size_t at = 0; at < parts.size(); ++at) parts[at].source_name += concat(" #", at + 1);
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
  std::vector<SetPart> parts;
  for (size_t at = 0; at < sources.size(); ++at) {
    const std::string& prefix = sources[at].prefix;
    parts.push_back({.prefix = prefix,
                     .range = sources[at].range,
                     .store = store(prefix),
                     .documents = documents_of(sources[at], kind),
                     .num_samples = counts[at],
                     .weight = weights[at],
                     .source_name = "",
                     .title = concat(group.name, " of ", file_name_of_prefix(prefix))});
  }
  name_sources(parts);
  return parts;
}

std::vector<Mixture::Stage> SetParts::add_stages(const std::vector<DataPlan::Stage>& stages,
                                                 std::vector<SetPart>& parts) {
  Mixture::Stage beginning;
  for (size_t part = 0; part < parts.size(); ++part) {
    beginning.sources.push_back(part);
    beginning.weights.push_back(parts[part].weight);
  }
  std::vector<Mixture::Stage> all = {beginning};
  for (const DataPlan::Stage& stage : stages) {
    Mixture::Stage next{stage.first_sample, {}, {}};
    for (const SetPart& part : make({"train", stage.sources}, kTrain, 1)) {
      size_t source = 0;
      const auto is_it = [&](size_t at) {
        return is_same_file(*parts[at].store, *part.store) && parts[at].documents == part.documents &&
               std::find(next.sources.begin(), next.sources.end(), at) == next.sources.end();
      };
      while (source < parts.size() && !is_it(source)) ++source;
      if (source == parts.size()) parts.push_back(part);
      next.sources.push_back(source);
      next.weights.push_back(part.weight);
    }
    all.push_back(next);
  }
  for (size_t part = beginning.sources.size(); part < parts.size(); ++part)
    parts[part].num_samples = 1, parts[part].weight = 0;
  name_sources(parts);
  return all;
}

Mixture mixture_of(const std::vector<SetPart>& parts, const std::vector<int64_t>& lengths, const std::string& name,
                   int64_t num_samples) {
  std::vector<double> weights;
  for (const SetPart& part : parts) weights.push_back(part.weight);
  Mixture mixture = Mixture::of_blend(weights, lengths);
  ESPALIER_CHECK(mixture.size() >= num_samples, "the blend of ", name, " ends after ", mixture.size(), " of ",
                 num_samples, " samples");
  return mixture;
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
