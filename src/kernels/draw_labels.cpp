#include "kernels/draw_labels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "kernels/device_ops.h"
#include "kernels/internal/gumbel.h"
#include "kernels/internal/row_dispatch.h"

namespace espalier::kernels {
namespace {

struct Best {
  int64_t row = 0;
  double score = -std::numeric_limits<double>::infinity();
};

// At least gumbel(word), from its exponent alone: u = 1 - d has -log(u) >= d, and d >= 2^-(1 + leading zeros).
double most_noise(uint32_t word) {
  constexpr double kLog2 = 0.6931471805599454;  // rounded up
  return kLog2 * (1 + std::countl_zero(~word));
}

class Drawing {
 public:
  Drawing(const DrawSite& site, const at::Tensor& logits, int64_t first_row)
      : site_(site),
        keys_(round_keys(site.key)),
        philox_words_(row_kernels().philox_words),
        logits_(logits.const_data_ptr<float>()),
        num_samples_(logits.size(1)),
        num_rows_(logits.size(2)),
        first_row_(first_row) {}

  Best draw(int64_t token) const {
    const auto sample = static_cast<uint64_t>((*site_.sample_numbers)[static_cast<size_t>(token % num_samples_)]);
    const auto position = static_cast<uint32_t>(site_.first_position + token / num_samples_);
    const float* const logits = logits_ + token * num_rows_ - first_row_;  // by row of the whole vocabulary
    Best best{.row = first_row_};
    const int64_t end = first_row_ + num_rows_;
    for (int64_t begin = first_row_ - first_row_ % kPhiloxWords; begin < end; begin += kPhiloxWords) {
      alignas(64) uint32_t words[kPhiloxWords];
      philox_words_(keys_, static_cast<uint32_t>(begin / 4), position, static_cast<uint32_t>(sample >> 32) << 16,
                    static_cast<uint32_t>(sample), words);
      for (int64_t row = std::max(begin, first_row_); row < std::min(begin + kPhiloxWords, end); ++row) {
        const uint32_t word = words[row - begin];
        if (!(logits[row] + most_noise(word) > best.score)) continue;  // nearly always
        const double score = logits[row] + gumbel(word);
        if (score > best.score) best = {row, score};
      }
    }
    return best;
  }

 private:
  const DrawSite& site_;
  PhiloxRoundKeys keys_;
  decltype(RowKernels::philox_words) philox_words_;
  const float* logits_;
  int64_t num_samples_, num_rows_, first_row_;
};

}  // namespace

DrawnLabels draw_labels(const at::Tensor& logits, int64_t first_row, const DrawSite& site) {
  ESPALIER_CHECK(logits.dim() == 3 && logits.is_contiguous() && logits.scalar_type() == at::kFloat, "logits are ",
                 logits.scalar_type(), " ", logits.sizes());
  ESPALIER_CHECK(site.sample_numbers != nullptr && static_cast<int64_t>(site.sample_numbers->size()) == logits.size(1),
                 "one sample number for each of ", logits.size(1), " samples");
  if (const DeviceOps* device = device_ops(logits)) return device->draw_labels(logits, first_row, site);
  const at::IntArrayRef shape = logits.sizes().slice(0, 2);
  DrawnLabels drawn{at::empty(shape, at::kLong), at::empty(shape, at::kDouble)};
  int64_t* const rows = drawn.rows.mutable_data_ptr<int64_t>();
  double* const scores = drawn.scores.mutable_data_ptr<double>();
  const Drawing drawing(site, logits, first_row);
  at::parallel_for(0, drawn.rows.numel(), 1, [&](int64_t first, int64_t last) {
    for (int64_t token = first; token < last; ++token) {
      const Best best = drawing.draw(token);
      rows[token] = best.row, scores[token] = best.score;
    }
  });
  return drawn;
}

}  // namespace espalier::kernels
