#include "data/mixture_table.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/format.h"
#include "data/gpt_dataset.h"
#include "data/internal/set_parts.h"

namespace espalier::data {
namespace {

// What is known of a source.
struct Source {
  std::string name, prefix;
  int64_t tokens_per_epoch = 0;
  std::function<double(int64_t)> epochs_of;  // that so many of its samples are
};

// `tokens_of_sample`: 0 where samples are not full.
std::vector<MixtureRow> rows_of(const Mixture& mixture, const std::vector<Source>& sources, int64_t tokens_of_sample) {
  std::vector<MixtureRow> rows;
  for (size_t stage = 0; stage < mixture.num_stages(); ++stage) {
    const Mixture::Stage& what = mixture.stage(stage);
    for (size_t at = 0; at < what.sources.size(); ++at) {
      const Source& source = sources[what.sources[at]];
      const int64_t before = mixture.samples_before(stage, what.sources[at]);
      const int64_t after = mixture.samples_before(stage + 1, what.sources[at]);
      MixtureRow row{.stage = static_cast<int64_t>(stage),
                     .first_sample = what.first_sample,
                     .num_samples = mixture.stage_size(stage),
                     .source = source.name,
                     .prefix = source.prefix,
                     .share = what.weights[at]};
      row.samples_read = after - before;
      row.epochs_after = source.epochs_of(after);
      row.epochs = row.epochs_after - source.epochs_of(before);
      row.tokens_read = tokens_of_sample > 0 ? row.samples_read * tokens_of_sample
                                             : std::llround(row.epochs * static_cast<double>(source.tokens_per_epoch));
      rows.push_back(row);
    }
  }
  return rows;
}

int64_t tokens_of(const TokenStore& store, const DocumentRange& documents) {
  int64_t tokens = 0;
  for (int64_t document = documents.begin; document < documents.end; ++document) tokens += store.size(document);
  return tokens;
}

}  // namespace

std::vector<MixtureRow> mixture_rows(const GptDataset& dataset) {
  std::vector<Source> sources;
  for (size_t at = 0; at < dataset.parts().size(); ++at) {
    const GptDataset::Part& part = dataset.parts()[at];
    sources.push_back({dataset.source_names()[at], part.store->prefix(), part.order.tokens_per_epoch(),
                       [&part](int64_t samples) { return part.order.epochs_of(samples); }});
  }
  return rows_of(dataset.mixture(), sources, dataset.packing() == Packing::kNone ? dataset.sequence_length() : 0);
}

std::vector<MixtureRow> planned_mixture(const DataSetOptions& options) {
  Problems problems;
  const DataPlan plan = plan_data(options, problems);
  problems.raise();
  if (options.train_samples == 0) return {};
  internal::SetParts all(plan.split, &TokenStore::num_sequences);
  std::vector<internal::SetPart> parts = all.make(plan.train, internal::kTrain, options.train_samples);
  const std::vector<Mixture::Stage> stages = all.add_stages(plan.train_stages, parts);
  const auto length = static_cast<double>(options.sequence_length);
  std::vector<Source> sources;
  for (const internal::SetPart& part : parts) {
    const int64_t tokens = tokens_of(*part.store, part.documents);
    sources.push_back({part.source_name, part.prefix, tokens, [tokens, length](int64_t samples) {
                         return static_cast<double>(samples) * length / static_cast<double>(tokens);
                       }});
  }
  return rows_of(Mixture::of_stages(stages, parts.size(), options.train_samples), sources, options.sequence_length);
}

std::string mixture_table(const std::vector<MixtureRow>& rows) {
  size_t width = 0;
  for (const MixtureRow& row : rows) width = std::max(width, row.source.size());
  std::string text;
  int64_t stage = -1;
  for (const MixtureRow& row : rows) {
    if (row.stage != stage)
      text += concat(text.empty() ? "" : "\n", "stage ", row.stage + 1, ", ", format_count(row.num_samples),
                     " samples from ", format_count(row.first_sample), " on:");
    stage = row.stage;
    text += concat("\n  ", row.source, std::string(width - row.source.size(), ' '), "  ",
                   format_printf("%6.2f %%  %15s tokens  %s epochs, %s so far", 100 * row.share,
                                 format_count(row.tokens_read).c_str(), format_fixed(row.epochs, 3).c_str(),
                                 format_fixed(row.epochs_after, 3).c_str()));
  }
  return text;
}

}  // namespace espalier::data
