// What one step of a run has computed, operation by operation, as digests: to find the first tensor that differs from
// another recording (of another build, device or layout), and the first value that is not finite.
//
//   Recorder recorder(job);                     // from here on, on every rank
//   job.trainer().step();
//   const std::vector<Observation> mine = recorder.take();
//   const Recording whole = in_order(all ranks' observations)
//   const RecordingComparison found = compare(whole, other);
//
// An activation is identified by the samples of its micro-batch and its place along the sequence and tensor axes, not
// by its rank: recordings of layouts that differ in replicas, pipeline stages or micro-batches on a rank compare as
// well.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "tensor/observe.h"
#include "train/job.h"

namespace espalier::train {

struct Observation {
  std::string pass;       // "forward", "recomputed", "backward", "gradient"
  std::string operation;  // "layers.3.mlp.dense_h_to_4h"; of a gradient the parameter
  int64_t rank = 0, tensor_rank = 0, context_rank = 0, micro_batch = 0;
  int64_t first_sample = 0, num_samples = 0;  // of the run; 0 samples of a gradient, which is of all
  int64_t part = 0, order = 0;                // of the model; within the pass of a micro-batch through that part
  std::string type;                           // "Float", "BFloat16"
  std::vector<int64_t> shape;
  uint64_t digest = 0;                                // XXH3 of the values in row-major order
  double norm = 0;                                    // of the finite values, as is the largest
  double largest = 0;                                 // by magnitude
  int64_t num_not_finite = 0, first_not_finite = -1;  // by its index in row-major order
  std::string first_value;                            // of that: "nan", "inf", "-inf"
};

// Sees all operations of this process while it lives; who observed before does again after it.
class Recorder : public tensor::TensorObserver {
 public:
  // `kFirstNotFinite`: only the first with NaN or infinity, as `sort` counts; the others cost one sum each.
  enum class Keeps { kAll, kFirstNotFinite };
  explicit Recorder(Job& job, Keeps keeps = Keeps::kAll);  // before the step
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void see(const std::string& operation, const at::Tensor& values, const tensor::ObservedPlace& place) override;
  std::vector<Observation> take() { return std::move(observations_); }

 private:
  Job& job_;
  const Keeps keeps_;
  tensor::TensorObserver* const before_;
  const int64_t first_sample_, num_micro_batches_;  // of the step; of a replica in it
  int64_t num_seen_ = 0;
  std::map<std::string, int64_t> counts_;
  std::vector<Observation> observations_;
};

std::string to_json(const Observation& observation);
// UserError (kBadData) that names `origin`.
Observation observation_from_json(const std::string& line, const std::string& origin);

// In which order they count as first: forward passes by sample, each through the model, the backward passes, gradients
// from the last depth on.
void sort(std::vector<Observation>& observations);

// "forward of samples 48 to 49 (micro-batch 1, rank 0): layers.0.mlp.activation"
std::string describe(const Observation& observation);
// Of one with a value that is not finite: ": element [3, 1, 7] of [33, 2, 24] is nan; so are 4 others".
std::string describe_not_finite(const Observation& observation);
// The sample that holds it, and its token where the tensor has the whole sequence; nothing of gradients.
struct BadToken {
  int64_t sample = 0;
  std::optional<int64_t> token;
};
std::optional<BadToken> bad_token(const Observation& observation, int64_t sequence_length);
// Whether that token is in this piece of a sample of that source; false where the source does not say in which piece a
// token is (data::SampleSource::shows_places).
bool holds(const data::SampleSource& source, const data::SamplePiece& piece, const BadToken& bad);

struct RecordingComparison {
  int64_t num_compared = 0, num_equal = 0;
  int64_t num_other_shape = 0;  // split otherwise, or only in one of them
  struct Pair {
    Observation mine, other;
  };
  std::optional<Pair> first_different;  // to the bit
  double largest_difference = 0;        // of norms, relative
  std::optional<Pair> largest;
};
RecordingComparison compare(const std::vector<Observation>& mine, const std::vector<Observation>& other);

}  // namespace espalier::train
