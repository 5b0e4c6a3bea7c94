#include "train/task_metrics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "models/build.h"

namespace espalier::train {
namespace {

// Of one file.
struct Scored {
  double correct = 0, total = 0, loss = 0;
  std::string predictions;  // of this replica's examples: a JSON object a line
};

// The rows of a batch that are examples of the file, and not those that it begins again with.
struct ScoredBatch {
  const tensor::Batch& batch;
  const at::Tensor logits;  // [samples, classes]
  int64_t first = 0, size = 0;
};

void add_scored(const ScoredBatch& from, Scored& to) {
  const at::Tensor log_probabilities = at::log_softmax(from.logits.cpu().to(at::kDouble), 1);
  const at::Tensor probabilities = log_probabilities.exp();
  const at::Tensor labels = from.batch.extra.at(models::kClassLabels).cpu();
  const at::Tensor uids = from.batch.extra.at(models::kSampleUids).cpu();
  for (int64_t at = 0; at < from.logits.size(0) && from.first + at < from.size; ++at) {
    const int64_t label = labels[at].item<int64_t>(), choice = probabilities[at].argmax().item<int64_t>();
    to.total += 1;
    to.correct += choice == label;
    to.loss -= log_probabilities[at][label].item<double>();
    std::vector<double> row;
    for (int64_t number = 0; number < probabilities.size(1); ++number)
      row.push_back(probabilities[at][number].item<double>());
    const nlohmann::ordered_json line = {
        {"number", from.first + at}, {"uid", uids[at].item<int64_t>()}, {"class", choice}, {"probabilities", row}};
    to.predictions += line.dump() + "\n";
  }
}

// By replicas in turns, each of which makes as many passes as the others: parameters may be divided among them.
Scored score_set(Job& job, const Loader& loader) {
  const models::FamilyRuntime& family = models::runtime_of(*job.config().family);
  const dist::Grid& grid = job.grid();
  const int64_t size = loader.source().size(), at_once = job.config().training.micro_batch_size;
  Scored scored;
  for (int64_t first = 0; first < size; first += at_once * grid.shape.data) {
    const tensor::Batch batch = loader.read(first, 1, at_once)[0].to(grid.device);
    const at::Tensor logits = family.class_logits(*job.parts().front(), batch);
    add_scored({batch, logits, first + grid.position.data * at_once, size}, scored);
  }
  const std::vector<double> sums = grid.data.sum({scored.correct, scored.total, scored.loss});
  scored.correct = sums[0];
  scored.total = sums[1];
  scored.loss = sums[2];
  return scored;
}

// The lines of all replicas in the order of the file.
std::string in_order(const std::vector<std::string>& parts) {
  std::vector<std::pair<int64_t, std::string>> lines;
  for (const std::string& part : parts)
    for (size_t at = 0; at < part.size();) {
      const size_t end = part.find('\n', at);
      const std::string line = part.substr(at, end - at);
      lines.emplace_back(nlohmann::json::parse(line)["number"].get<int64_t>(), line);
      at = end + 1;
    }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const auto& [number, line] : lines) text += line + "\n";
  return text;
}

std::string counts_text(double correct, double total) {
  return format_printf("correct / total = %lld / %lld = %.4f %%", static_cast<long long>(correct),
                       static_cast<long long>(total), 100 * correct / std::max(1.0, total));
}

// Training continues where they cannot be written.
void write_predictions(const std::string& folder, const std::string& name, const std::string& lines, bool is_all) {
  try {
    std::filesystem::create_directories(folder);
    write_file_atomically(folder + "/predictions-" + name + ".jsonl", lines);
  } catch (const std::exception& error) {
    if (is_all)
      throw UserError(concat("the predictions of ", name, " were not written: ", error.what()), ExitCode::kInputOutput);
    log_warning("the predictions of ", name, " were not written: ", error.what());
  }
}

}  // namespace

bool TaskMetrics::is_on() const { return models::runtime_of(*job_.config().family).class_logits != nullptr; }

void TaskMetrics::after_step(const report::StepReport& report) {
  const int64_t of_epoch = job_.config().training.steps_per_epoch;
  if (is_on() && of_epoch > 0 && report.step % of_epoch == 0) score(report.step / of_epoch);
}

bool TaskMetrics::alone() {
  if (is_on()) score(0);
  return is_on();
}

// The lines are upstream's.
void TaskMetrics::score(int64_t epoch) {
  const std::string& folder = job_.config().checkpoint.predictions;
  double correct = 0, total = 0;
  job_.optimizer().use_mean(true);
  std::vector<report::MetricsFile::SetLosses> sets;
  for (const Loader& loader : job_.valid_loaders()) {
    const std::string& name = loader.source().name();
    const auto start = std::chrono::steady_clock::now();
    const Scored scored = score_set(job_, loader);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const std::string all = in_order(job_.grid().data.gather_texts(scored.predictions));
    if (!folder.empty() && job_.grid().rank == 0) write_predictions(folder, name, all, epoch == 0);
    if (!loader.source().has_labels()) {
      log_info(" > |epoch: ", epoch, "| ", name, " has no labels: ", static_cast<int64_t>(scored.total),
               " predictions");
      continue;
    }
    log_info(" > |epoch: ", epoch, "| metrics for ", name, ": ", counts_text(scored.correct, scored.total),
             format_printf(", elapsed time (sec): %.3f", seconds));
    correct += scored.correct;
    total += scored.total;
    sets.push_back({name,
                    {{.name = "lm loss", .value = scored.loss / scored.total, .by_source = {}},
                     {.name = "accuracy", .value = scored.correct / scored.total, .by_source = {}}}});
  }
  job_.optimizer().use_mean(false);
  if (total == 0) return;
  log_info(" >> |epoch: ", epoch, "| overall: ", counts_text(correct, total));
  log_.epoch(job_.trainer().position().step, sets);
}

}  // namespace espalier::train
