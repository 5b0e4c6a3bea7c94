#include "train/evaluate.h"

#include <ATen/ATen.h>

#include <numbers>
#include <optional>

#include "base/progress.h"
#include "text/token_bytes.h"
#include "train/trainer.h"

namespace espalier::train {
namespace {
// Micro-batches that are read at once: enough to keep every stage busy, few enough for memory and for the progress
// display.
int64_t micro_batches_at_once(const dist::Grid& grid) { return 4 * grid.shape.pipeline; }

std::optional<double> bits_per_byte(const pipeline::LossTotal& loss) {
  if (loss.text_bytes == 0) return std::nullopt;
  return loss.text_sum / std::numbers::ln2 / loss.text_bytes;
}

// [b, s]. The first token of a text, after ids that are none (as [CLS]), is the label of what comes before it; the
// first token of a sample is nobody's.
at::Tensor bytes_of_labels(const EvaluationParts& parts, const tensor::Batch& batch) {
  at::Tensor bytes = parts.label_bytes.within.index({batch.labels});
  for (size_t number = 0; number < batch.sample_numbers.size(); ++number) {
    const auto row = static_cast<int64_t>(number);
    for (const data::SamplePiece& piece : parts.loader.pieces(batch.sample_numbers[number])) {
      if (piece.offset > 0) continue;
      const auto id_at = [&](int64_t at) {
        return (at == 0 ? batch.ids[row][0] : batch.labels[row][at - 1]).item<int64_t>();
      };
      int64_t at = piece.at;
      while (at < piece.at + piece.length && parts.label_bytes.first[id_at(at)].item<int64_t>() == text::kNoText) ++at;
      if (at > 0 && at < piece.at + piece.length) bytes[row][at - 1] = parts.label_bytes.first[id_at(at)];
    }
  }
  return bytes;
}
}  // namespace

std::vector<report::NamedLoss> evaluate(const config::RunConfig& config, const EvaluationParts& parts,
                                        const Evaluation& what, const std::string& title) {
  const dist::Grid& grid = parts.grid;
  const int64_t micro_batch_size = config.training.micro_batch_size;
  const int64_t samples_each = micro_batch_size * grid.shape.data;  // of one micro-batch of all replicas
  const int64_t total = what.num_iterations * what.num_micro_batches;
  Progress progress(title, total * samples_each, Progress::Unit::kItems, "samples");
  std::vector<pipeline::LossTotal> totals;
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(micro_batches_at_once(grid), total - done);
    auto micro_batches = parts.loader.read(what.first_sample + done * samples_each, count, micro_batch_size);
    for (tensor::Batch& batch : micro_batches) {
      if (parts.label_bytes.within.defined()) batch.extra[models::kLabelBytes] = bytes_of_labels(parts, batch);
      batch = batch.to(grid.device);
    }
    const auto schedule = plan::make_forward_schedule(grid.shape.pipeline, count, config.parallel.num_chunks);
    pipeline::add_totals(parts.runner.evaluate(schedule, micro_batches), totals);
    done += count;
    progress.advance(count * samples_each);
  }
  totals = pipeline::combine_losses(totals, grid);
  progress.finish();
  std::vector<report::NamedLoss> losses;
  for (const pipeline::LossTotal& loss : totals) {
    if (totals.size() > 1 && loss.count == 0) continue;  // a term without targets in these samples, as in a step
    losses.push_back({.name = loss.name,
                      .value = mean_loss(loss, config.training.loss_average),
                      .is_measure = loss.is_measure,
                      .by_source = {},
                      .bits_per_byte = bits_per_byte(loss)});
  }
  return losses;
}

}  // namespace espalier::train
