#include "store/average.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/progress.h"
#include "store/run_folder.h"
#include "store/step_reader.h"
#include "store/step_writer.h"

namespace espalier::store {
namespace {

constexpr const char* kMaster = ".master";

float float_of(DType type, const uint8_t* from) {
  if (type == DType::kFloat32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  if (type == DType::kBFloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const uint32_t sign = static_cast<uint32_t>(bits >> 15) << 31;
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  float magnitude = 0;
  if (exponent == 31)
    magnitude = std::bit_cast<float>(0x7f800000u | static_cast<uint32_t>(mantissa) << 13);
  else if (exponent == 0)
    magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  else
    magnitude =
        std::bit_cast<float>(static_cast<uint32_t>(exponent + 112) << 23 | static_cast<uint32_t>(mantissa) << 13);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

bool is_real(DType type) { return type == DType::kFloat32 || type == DType::kBFloat16 || type == DType::kFloat16; }

// Weights of one checkpoint as fp32, read block by block.
class Weights {
 public:
  explicit Weights(const std::filesystem::path& folder) : reader_(folder) {}

  const Manifest& manifest() const { return reader_.manifest(); }
  const std::filesystem::path& folder() const { return reader_.folder(); }
  const StoredTensor* best_of(const std::string& name) const {
    const StoredTensor* const master = manifest().find(name + kMaster);
    return master != nullptr ? master : manifest().find(name);
  }

  // Elements [first, first + count) into `to`. Several threads may read different tensors.
  void read(const StoredTensor& tensor, int64_t first, int64_t count, float* to) {
    const int64_t size = size_bytes(tensor.dtype);
    for (size_t block = 0; block < tensor.blocks.size(); ++block) {
      const Block& place = tensor.blocks[block];
      const int64_t begin = place.offset / size, end = begin + place.bytes / size;
      const int64_t from = std::max(first, begin), until = std::min(first + count, end);
      if (from >= until) continue;
      const std::shared_ptr<const std::vector<uint8_t>> bytes = whole_block(tensor, block);
      for (int64_t at = from; at < until; ++at)
        to[at - first] = float_of(tensor.dtype, bytes->data() + (at - begin) * size);
    }
  }

 private:
  // The last block of each tensor file is kept: ranges come in order.
  std::shared_ptr<const std::vector<uint8_t>> whole_block(const StoredTensor& tensor, size_t block) {
    const auto key = std::pair(&tensor, block);
    {
      const std::lock_guard lock(mutex_);
      if (const auto kept = kept_.find(tensor.file); kept != kept_.end() && kept->second.key == key)
        return kept->second.bytes;
    }
    auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(tensor.blocks[block].bytes));
    reader_.read_block(tensor, block, bytes->data());
    const std::lock_guard lock(mutex_);
    kept_[tensor.file] = {key, bytes};
    return bytes;
  }

  struct Kept {
    std::pair<const StoredTensor*, size_t> key;
    std::shared_ptr<const std::vector<uint8_t>> bytes;
  };
  StepReader reader_;
  std::mutex mutex_;
  std::map<std::string, Kept> kept_;
};

class Averaging {
 public:
  explicit Averaging(const AverageRequest& request) : request_(request) {
    ESPALIER_CHECK(request.step_folders.size() >= 2, "an average of ", request.step_folders.size());
    for (const auto& folder : request.step_folders) checkpoints_.emplace_back(folder);
    furthest_ = &*std::max_element(checkpoints_.begin(), checkpoints_.end(), [](const Weights& a, const Weights& b) {
      return a.manifest().state.step < b.manifest().state.step;
    });
    const double sum = std::accumulate(request.weights.begin(), request.weights.end(), 0.0);
    for (const double weight : request.weights) shares_.push_back(weight / sum);
    list_tensors();
  }

  std::filesystem::path write() {
    Manifest manifest;
    manifest.model = furthest_->manifest().model;
    manifest.model.compute_type = "fp32";
    manifest.state = furthest_->manifest().state;
    manifest.config = furthest_->manifest().config;
    std::vector<ExtraFile> extra;
    for (const StoredFile& file : furthest_->manifest().files)
      if (!file.path.ends_with(".safetensors"))
        extra.push_back({file.path, StepReader(furthest_->folder()).read_extra_file(file.path)});
    int64_t bytes = 0;
    for (const TensorFacts& tensor : tensors_) bytes += tensor.num_bytes();
    Progress progress("average", bytes, Progress::Unit::kBytes);
    std::error_code ignored;
    const bool was_there = std::filesystem::exists(request_.run_folder, ignored);
    try {
      write_step(
          request_.run_folder, manifest, tensors_,
          [&](size_t tensor, int64_t offset, int64_t count, void* to) {
            make(tensors_[tensor].name, offset, count, static_cast<float*>(to));
            progress.advance(count);
          },
          extra);
    } catch (...) {
      if (!was_there) std::filesystem::remove(request_.run_folder, ignored);  // empty
      throw;
    }
    progress.finish();
    return request_.run_folder / step_folder_name(manifest.state.step);
  }

 private:
  // Of the weights files of the furthest one; the others must have the same.
  void list_tensors() {
    Problems problems;
    const Manifest& model = furthest_->manifest();
    for (const StoredTensor& tensor : model.tensors)
      if (tensor.file.starts_with("weights-"))
        tensors_.push_back({.name = tensor.name, .file = tensor.file, .dtype = DType::kFloat32, .shape = tensor.shape});
    for (const Weights& one : checkpoints_) {
      const std::string where = "'" + one.folder().string() + "'";
      const ModelFacts& facts = one.manifest().model;
      if (facts.family != model.model.family || facts.padded_vocab_size != model.model.padded_vocab_size) {
        problems.add(where, " is another model (family '", facts.family, "', ", facts.padded_vocab_size,
                     " rows of words) than '", furthest_->folder().string(), "' ('", model.model.family, "', ",
                     model.model.padded_vocab_size, ")");
        continue;
      }
      size_t num_weights = 0;
      for (const StoredTensor& tensor : one.manifest().tensors) num_weights += tensor.file.starts_with("weights-");
      if (num_weights != tensors_.size())
        problems.add(where, " has ", num_weights, " weights, '", furthest_->folder().string(), "' ", tensors_.size());
      for (const TensorFacts& tensor : tensors_) {
        const StoredTensor* const found = one.best_of(tensor.name);
        if (found == nullptr)
          problems.add(where, " has no ", tensor.name);
        else if (found->shape != tensor.shape)
          problems.add(where, ": ", tensor.name, " has another shape than in '", furthest_->folder().string(), "'");
        else if (!is_real(found->dtype))
          problems.add(where, ": ", found->name, " is not a tensor of fp32, bf16 or fp16");
      }
    }
    problems.raise(ExitCode::kBadData);
  }

  void make(const std::string& name, int64_t offset, int64_t bytes, float* to) {
    const int64_t first = offset / static_cast<int64_t>(sizeof(float)),
                  count = bytes / static_cast<int64_t>(sizeof(float));
    const auto size = static_cast<size_t>(count);
    std::vector<float> values(size), sums(size);
    std::vector<double> weighted(shares_.empty() ? 0 : size);
    for (size_t one = 0; one < checkpoints_.size(); ++one) {
      Weights& weights = checkpoints_[one];
      weights.read(*weights.best_of(name), first, count, values.data());
      for (size_t i = 0; i < size; ++i) {
        if (!shares_.empty())
          weighted[i] += shares_[one] * static_cast<double>(values[i]);
        else
          sums[i] = one == 0 ? values[i] : sums[i] + values[i];
      }
    }
    for (size_t i = 0; i < size; ++i)
      to[i] = shares_.empty() ? sums[i] / static_cast<float>(checkpoints_.size()) : static_cast<float>(weighted[i]);
  }

  const AverageRequest& request_;
  std::deque<Weights> checkpoints_;
  const Weights* furthest_ = nullptr;
  std::vector<double> shares_;
  std::vector<TensorFacts> tensors_;
};

}  // namespace

std::filesystem::path write_average(const AverageRequest& request) { return Averaging(request).write(); }

}  // namespace espalier::store
