#include "pipeline/loss_total.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace espalier::pipeline {
namespace {

void add_loss(const LossTerm& term, const tensor::Batch& batch, LossTotal& total) {
  const double sum = term.sum.item<double>(), count = term.count.item<double>();
  total.name = term.name;
  total.is_measure = term.is_measure;
  total.sum += sum;
  total.count += count;
  if (count > 0) {
    total.num_means += 1;
    total.sum_of_means += sum / count;
  }
  if (term.text_sum.defined()) {
    total.text_sum += term.text_sum.item<double>();
    total.text_bytes += term.text_bytes.item<double>();
  }
  const at::Tensor row_sums = term.row_sums.to(at::kDouble).cpu(), row_counts = term.row_counts.to(at::kDouble).cpu();
  for (int64_t row = 0; row < row_sums.size(0); ++row) {
    const size_t source = batch.sources.empty() ? 0 : static_cast<size_t>(batch.sources[static_cast<size_t>(row)]);
    if (total.by_source.size() <= source) total.by_source.resize(source + 1);
    total.by_source[source].sum += row_sums[row].item<double>();
    total.by_source[source].count += row_counts[row].item<double>();
  }
}

// Totals as bytes, to travel between processes of one machine type: per total a name, the number of its doubles, and
// the doubles.
constexpr size_t kFixedNumbers = 7;

std::vector<double> numbers_of(const LossTotal& total) {
  std::vector<double> numbers = {total.sum,
                                 total.count,
                                 total.num_means,
                                 total.sum_of_means,
                                 total.text_sum,
                                 total.text_bytes,
                                 total.is_measure ? 1.0 : 0.0};
  for (const LossTotal::Source& source : total.by_source) numbers.insert(numbers.end(), {source.sum, source.count});
  return numbers;
}

void append_bytes(std::string& text, const void* data, size_t size) {
  text.append(static_cast<const char*>(data), size);
}

std::string to_bytes(const std::vector<LossTotal>& totals) {
  std::string text;
  for (const LossTotal& total : totals) {
    const std::vector<double> numbers = numbers_of(total);
    const size_t sizes[2] = {total.name.size(), numbers.size()};
    append_bytes(text, sizes, sizeof sizes);
    text += total.name;
    append_bytes(text, numbers.data(), numbers.size() * sizeof(double));
  }
  return text;
}

std::vector<LossTotal> from_bytes(const std::string& text) {
  std::vector<LossTotal> totals;
  for (size_t at = 0; at < text.size();) {
    size_t sizes[2];
    std::memcpy(sizes, text.data() + at, sizeof sizes);
    LossTotal total;
    total.name = text.substr(at + sizeof sizes, sizes[0]);
    std::vector<double> numbers(sizes[1]);
    std::memcpy(numbers.data(), text.data() + at + sizeof sizes + sizes[0], sizes[1] * sizeof(double));
    total.sum = numbers.at(0);
    total.count = numbers.at(1);
    total.num_means = numbers.at(2);
    total.sum_of_means = numbers.at(3);
    total.text_sum = numbers.at(4);
    total.text_bytes = numbers.at(5);
    total.is_measure = numbers.at(6) != 0;
    for (size_t i = kFixedNumbers; i + 1 < numbers.size(); i += 2)
      total.by_source.push_back({numbers[i], numbers[i + 1]});
    totals.push_back(std::move(total));
    at += sizeof sizes + sizes[0] + sizes[1] * sizeof(double);
  }
  return totals;
}

void add(const LossTotal& from, LossTotal& to) {
  to.sum += from.sum;
  to.count += from.count;
  to.num_means += from.num_means;
  to.sum_of_means += from.sum_of_means;
  to.text_sum += from.text_sum;
  to.text_bytes += from.text_bytes;
  to.by_source.resize(std::max(to.by_source.size(), from.by_source.size()));
  for (size_t source = 0; source < from.by_source.size(); ++source) {
    to.by_source[source].sum += from.by_source[source].sum;
    to.by_source[source].count += from.by_source[source].count;
  }
}

}  // namespace

void add_losses(const Loss& loss, const tensor::Batch& batch, std::vector<LossTotal>& totals) {
  if (totals.empty()) totals.resize(loss.size());
  ESPALIER_CHECK(totals.size() == loss.size(), "the number of loss terms changed between micro-batches");
  for (size_t term = 0; term < loss.size(); ++term) add_loss(loss[term], batch, totals[term]);
}

void add_totals(const std::vector<LossTotal>& from, std::vector<LossTotal>& to) {
  if (to.empty()) to.resize(from.size());
  ESPALIER_CHECK(from.size() == to.size(), from.size(), " loss terms and ", to.size());
  for (size_t term = 0; term < from.size(); ++term) {
    to[term].name = from[term].name;
    to[term].is_measure = from[term].is_measure;
    add(from[term], to[term]);
  }
}

namespace {

// Of all stages, by name: any of them may have given losses. In the order of ranks: the same bits everywhere.
std::vector<LossTotal> combine_stages(const std::vector<LossTotal>& of_stage, const dist::Grid& grid) {
  std::vector<LossTotal> all;
  for (const std::string& text : grid.pipeline.gather_texts(to_bytes(of_stage)))
    for (const LossTotal& total : from_bytes(text)) {
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const LossTotal& one) { return one.name == total.name; });
      if (same == all.end())
        all.push_back(total);
      else
        add(total, *same);
    }
  return all;
}

}  // namespace

std::vector<LossTotal> combine_losses(const std::vector<LossTotal>& totals, const dist::Grid& grid) {
  // First over the replicas of each stage, in the order of ranks.
  std::vector<LossTotal> of_stage;
  for (const std::string& text : grid.data.gather_texts(to_bytes(totals))) add_totals(from_bytes(text), of_stage);
  return combine_stages(of_stage, grid);
}

std::vector<LossTotal> combine_losses_in_order(const std::vector<std::vector<LossTotal>>& by_micro_batch,
                                               bool take_turns, const dist::Grid& grid) {
  // Every micro-batch has the same terms, but on stages that have none.
  const size_t count = by_micro_batch.size();
  std::string own;
  for (const std::vector<LossTotal>& totals : by_micro_batch) own += to_bytes(totals);
  std::vector<std::vector<LossTotal>> of_replicas;
  for (const std::string& text : grid.data.gather_texts(own)) of_replicas.push_back(from_bytes(text));
  const size_t num_terms = of_replicas[0].size() / count;
  std::vector<LossTotal> of_stage;
  const auto add_micro_batch = [&](size_t replica, size_t number) {
    const auto first = of_replicas[replica].begin() + static_cast<std::ptrdiff_t>(number * num_terms);
    add_totals({first, first + static_cast<std::ptrdiff_t>(num_terms)}, of_stage);
  };
  for (size_t at = 0; at < count * of_replicas.size(); ++at)
    if (take_turns)
      add_micro_batch(at % of_replicas.size(), at / of_replicas.size());
    else
      add_micro_batch(at / count, at % count);
  return combine_stages(of_stage, grid);
}

}  // namespace espalier::pipeline
