#include "pipeline/loss_total.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace espalier::pipeline {
namespace {

// What is read of a term: scalars first, then two numbers for each row.
std::vector<at::Tensor> tensors_of(const LossTerm& term) {
  std::vector<at::Tensor> tensors = {term.sum, term.count};
  if (term.text_sum.defined()) tensors.insert(tensors.end(), {term.text_sum, term.text_bytes});
  tensors.insert(tensors.end(), {term.row_sums, term.row_counts});
  return tensors;
}

// `numbers`: the elements of tensors_of(term). Returns what comes after them.
const double* add_term(const LossTerm& term, const std::vector<int32_t>& sources, const double* numbers,
                       LossTotal& total) {
  const double sum = *numbers++, count = *numbers++;
  total.name = term.name;
  total.is_measure = term.is_measure;
  total.sum += sum;
  total.count += count;
  if (count > 0) {
    total.num_means += 1;
    total.sum_of_means += sum / count;
  }
  if (term.text_sum.defined()) {
    total.text_sum += *numbers++;
    total.text_bytes += *numbers++;
  }
  const int64_t rows = term.row_sums.size(0);
  for (int64_t row = 0; row < rows; ++row) {
    const size_t source = sources.empty() ? 0 : static_cast<size_t>(sources[static_cast<size_t>(row)]);
    if (total.by_source.size() <= source) total.by_source.resize(source + 1);
    total.by_source[source].sum += numbers[row];
    total.by_source[source].count += numbers[rows + row];
  }
  return numbers + 2 * rows;
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

void LossRecord::add(int64_t micro_batch, const Loss& loss, const tensor::Batch& batch) {
  Entry entry{micro_batch, loss, batch.sources};
  for (LossTerm& term : entry.loss) {
    ESPALIER_CHECK(term.row_sums.sizes() == term.row_counts.sizes(), term.row_sums.sizes(), ", ",
                   term.row_counts.sizes());
    term.sum = term.sum.detach();
  }
  entries_.push_back(std::move(entry));
}

// Visits each entry with where its totals' numbers begin, in double.
template <class Visit>
void LossRecord::read(const Visit& visit) const {
  std::vector<at::Tensor> tensors;
  for (const Entry& entry : entries_)
    for (const LossTerm& term : entry.loss)
      for (const at::Tensor& tensor : tensors_of(term)) tensors.push_back(tensor.reshape({-1}));
  if (tensors.empty()) return;
  const at::Tensor numbers = at::cat(tensors).to(at::kDouble).cpu();
  const double* next = numbers.const_data_ptr<double>();
  for (const Entry& entry : entries_) next = visit(entry, next);
}

namespace {

const double* add_terms(const Loss& loss, const std::vector<int32_t>& sources, const double* numbers,
                        std::vector<LossTotal>& totals) {
  if (totals.empty()) totals.resize(loss.size());
  ESPALIER_CHECK(totals.size() == loss.size(), "the number of loss terms changed between micro-batches");
  for (size_t term = 0; term < loss.size(); ++term) numbers = add_term(loss[term], sources, numbers, totals[term]);
  return numbers;
}

}  // namespace

std::vector<LossTotal> LossRecord::totals() const {
  std::vector<LossTotal> totals;
  read(
      [&](const Entry& entry, const double* numbers) { return add_terms(entry.loss, entry.sources, numbers, totals); });
  return totals;
}

std::vector<std::vector<LossTotal>> LossRecord::by_micro_batch(int64_t count) const {
  std::vector<std::vector<LossTotal>> totals(static_cast<size_t>(count));
  read([&](const Entry& entry, const double* numbers) {
    return add_terms(entry.loss, entry.sources, numbers, totals.at(static_cast<size_t>(entry.micro_batch)));
  });
  return totals;
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
