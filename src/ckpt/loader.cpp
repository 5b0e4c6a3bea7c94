#include "ckpt/loader.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "ckpt/dtype.h"
#include "store/run_folder.h"

namespace espalier::ckpt {
namespace {

using store::StoredTensor;

std::string missing_message(const LoadedCheckpoint& checkpoint, const std::string& name) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) names.push_back(tensor.name);
  // Names are long and share most of their letters: a quarter of the length still means "nearly the same".
  const auto nearest = nearest_names(name, names, static_cast<int>(name.size() / 4), 1);
  return concat("checkpoint ", checkpoint.folder().filename().string(), " has no '", name, "'",
                nearest.empty() ? "" : "; nearest is '" + nearest.front() + "'");
}

// Everything that can be known without reading a tensor.
std::vector<const StoredTensor*> match(const LoadedCheckpoint& checkpoint, const std::vector<TensorRequest>& requests,
                                       LoadedCheckpoint::Part part) {
  Problems problems;
  std::vector<const StoredTensor*> tensors;
  std::set<std::string> asked;
  for (const TensorRequest& request : requests) {
    asked.insert(request.name);
    const StoredTensor* tensor = checkpoint.manifest().find(request.name);
    if (tensor == nullptr) {
      problems.add(missing_message(checkpoint, request.name));
      continue;
    }
    const at::Tensor& destination = request.destination;
    ESPALIER_CHECK(destination.is_contiguous() && destination.device().is_cpu(), request.name);
    const std::string wanted = store::describe(dtype_of(destination.scalar_type()), destination.sizes().vec());
    const std::string found = store::describe(*tensor);
    if (wanted != found)
      problems.add("tensor '", request.name, "': this run needs ", wanted, ", ", tensor->file, " has ", found);
    tensors.push_back(tensor);
  }
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    const bool must_be_used =
        part == LoadedCheckpoint::Part::kAll || (part == LoadedCheckpoint::Part::kWeights && store::is_weight(tensor));
    if (must_be_used && !asked.count(tensor.name))
      problems.add("'", tensor.name, "' (", tensor.file, ") is in checkpoint ", checkpoint.folder().filename().string(),
                   " and has no place in this model");
  }
  problems.raise(ExitCode::kBadData);
  return tensors;
}

struct BlockToRead {
  const StoredTensor* tensor;
  size_t block;
  uint8_t* destination;
};

// All blocks in parallel; every damaged one is reported.
void read_blocks(store::StepReader& reader, const std::vector<BlockToRead>& blocks) {
  Problems problems;
  std::mutex mutex;
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const BlockToRead& block = blocks[static_cast<size_t>(index)];
      try {
        reader.read_block(*block.tensor, block.block, block.destination);
      } catch (const UserError& error) {
        const std::lock_guard lock(mutex);
        problems.add(error.what());
      }
    }
  });
  problems.raise(ExitCode::kBadData);
}

// Runs what fails only when something on disk is damaged or missing, and then says what else could be loaded.
template <class Read>
auto with_hint(const std::filesystem::path& folder, const Read& read) {
  try {
    return read();
  } catch (const UserError& error) {
    throw UserError(concat(error.what(), ".", store::other_steps_hint(folder)), error.code());
  }
}

}  // namespace

LoadedCheckpoint::LoadedCheckpoint(const std::filesystem::path& step_folder)
    : reader_(with_hint(step_folder, [&] { return store::StepReader(step_folder); })) {}

void LoadedCheckpoint::load(const std::vector<TensorRequest>& requests, Part part) {
  const std::vector<const StoredTensor*> tensors = match(*this, requests, part);
  std::set<std::string> files;
  std::vector<BlockToRead> blocks;
  for (size_t index = 0; index < tensors.size(); ++index) {
    const StoredTensor& tensor = *tensors[index];
    files.insert(tensor.file);
    auto* data = static_cast<uint8_t*>(requests[index].destination.mutable_data_ptr());
    for (size_t block = 0; block < tensor.blocks.size(); ++block)
      blocks.push_back({&tensor, block, data + tensor.blocks[block].offset});
  }
  with_hint(folder(), [&] {
    reader_.check_files({files.begin(), files.end()});
    read_blocks(reader_, blocks);
  });
}

at::Tensor LoadedCheckpoint::read(const std::string& name) {
  const StoredTensor* tensor = manifest().find(name);
  if (tensor == nullptr) throw UserError(missing_message(*this, name), ExitCode::kBadData);
  at::Tensor value = at::empty(tensor->shape, at::TensorOptions().dtype(scalar_type_of(tensor->dtype)));
  load({{name, value}}, Part::kSome);
  return value;
}

}  // namespace espalier::ckpt
