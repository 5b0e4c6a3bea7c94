#include "apps/plan/mixture.h"

#include <algorithm>

#include "base/log.h"
#include "data/data_plan.h"
#include "data/token_files.h"

namespace espalier {

std::vector<data::MixtureRow> mixture_of(const config::RunConfig& config) {
  if (!config.family->reads_running_text || config.data.sequence_length <= 0) return {};
  const data::DataSetOptions options = config::data_sets(config);
  if (options.train_samples <= 0 || options.endings.size() > 1) return {};
  Problems problems;
  const data::DataPlan plan = data::plan_data(options, problems);
  const std::vector<std::string> files = plan.token_files();
  if (files.empty()) return {};
  // A plan may be made before the data exist.
  const auto missing =
      std::find_if(files.begin(), files.end(), [](const std::string& file) { return !data::find_token_files(file); });
  if (missing != files.end()) {
    log_info("cannot tell what the run reads of each data set: there is no '", *missing, "' here");
    return {};
  }
  problems.raise();
  return data::planned_mixture(options);
}

nlohmann::ordered_json mixture_json(const std::vector<data::MixtureRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const data::MixtureRow& row : rows)
    list.push_back({{"stage", row.stage + 1},
                    {"first_sample", row.first_sample},
                    {"samples_of_stage", row.num_samples},
                    {"source", row.source},
                    {"prefix", row.prefix},
                    {"share", row.share},
                    {"samples", row.samples_read},
                    {"tokens", row.tokens_read},
                    {"epochs", row.epochs},
                    {"epochs_after", row.epochs_after}});
  return list;
}

}  // namespace espalier
