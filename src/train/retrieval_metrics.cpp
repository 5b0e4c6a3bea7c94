#include "train/retrieval_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "base/format.h"
#include "base/log.h"
#include "models/build.h"

namespace espalier::train {
namespace {

// By replicas in turns, each of which makes as many passes as the others: parameters may be divided among them.
std::vector<report::NamedLoss> rank_set(Job& job, const Loader& loader, const models::Ranking& ranking) {
  const dist::Grid& grid = job.grid();
  const int64_t size = loader.source().size(), at_once = ranking.micro_batch_size;
  std::vector<double> sums(2 + ranking.topk.size());  // questions, ranks, hits among the first k in percent
  for (int64_t first = 0; first < size; first += at_once * grid.shape.data) {
    const int64_t mine = first + grid.position.data * at_once;
    const int64_t count = std::clamp<int64_t>(size - mine, 0, at_once);  // the batch begins the set again
    const tensor::Batch batch = loader.read(first, 1, at_once)[0].to(grid.device);
    const at::Tensor places = ranking.own_places(*job.parts().front(), batch, count).cpu();
    for (int64_t at = 0; at < count; ++at) {
      const int64_t place = places.const_data_ptr<int64_t>()[at];
      sums[0] += 1;
      sums[1] += static_cast<double>(place);
      for (size_t k = 0; k < ranking.topk.size(); ++k) sums[2 + k] += place < ranking.topk[k] ? 100 : 0;
    }
  }
  sums = grid.data.sum(sums);
  std::vector<report::NamedLoss> figures;
  const auto add = [&](const std::string& name, double sum) {
    figures.push_back({.name = name, .value = sum / std::max(1.0, sums[0]), .is_measure = true, .by_source = {}});
  };
  add("rank", sums[1]);
  for (size_t k = 0; k < ranking.topk.size(); ++k) add(concat("top", ranking.topk[k], "_acc"), sums[2 + k]);
  return figures;
}

}  // namespace

bool RetrievalMetrics::is_on() const { return models::runtime_of(*job_.config().family).ranking != nullptr; }

void RetrievalMetrics::after_step(const report::StepReport& report) {
  const int64_t of_epoch = job_.config().training.steps_per_epoch;
  if (is_on() && of_epoch > 0 && report.step % of_epoch == 0) score(report.step / of_epoch);
}

bool RetrievalMetrics::alone() {
  if (is_on()) score(0);
  return is_on();
}

// The figures and their names are upstream's, the rank counted from 0; so is the line, but for the name of the file.
void RetrievalMetrics::score(int64_t epoch) {
  const models::Ranking ranking = models::runtime_of(*job_.config().family).ranking(job_.config());
  job_.optimizer().use_mean(true);
  std::vector<report::MetricsFile::SetLosses> sets;
  for (const Loader& loader : job_.valid_loaders()) {
    const auto start = std::chrono::steady_clock::now();
    sets.push_back({loader.source().name(), rank_set(job_, loader, ranking)});
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::string line = concat("epoch:", epoch, "|", loader.source().name());
    for (const report::NamedLoss& figure : sets.back().losses)
      line += format_printf("|%s = %.2f", figure.name.c_str(), figure.value);
    log_info(line, format_printf(", elapsed time (sec): %.3f", seconds));
  }
  job_.optimizer().use_mean(false);
  if (!sets.empty()) log_.epoch(job_.trainer().position().step, sets);
}

}  // namespace espalier::train
