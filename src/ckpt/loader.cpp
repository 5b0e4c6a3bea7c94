#include "ckpt/loader.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/whereabouts.h"
#include "ckpt/dtype.h"
#include "ckpt/internal/inventory.h"
#include "ckpt/internal/shared_read.h"
#include "ckpt/together.h"
#include "plan/reshape.h"
#include "store/run_folder.h"

namespace espalier::ckpt {
namespace {

using store::StoredTensor;

// The tensors of a manifest by name.
using Index = std::map<std::string, const StoredTensor*>;

Index index_of(const store::Manifest& manifest) {
  Index index;
  for (const StoredTensor& tensor : manifest.tensors) index.emplace(tensor.name, &tensor);
  return index;
}

std::string missing_message(const LoadedCheckpoint& checkpoint, const std::string& name) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) names.push_back(tensor.name);
  // Names are long and share most of their letters: a quarter of the length still means "nearly the same".
  const auto nearest = nearest_names(name, names, static_cast<int>(name.size() / 4), 1);
  return concat("checkpoint ", checkpoint.folder().filename().string(), " has no '", name, "'",
                nearest.empty() ? "" : "; nearest is '" + nearest.front() + "'");
}

// A request that fits what is stored.
struct Match {
  const StoredTensor* tensor;
  TensorPart part;
  uint8_t* destination;
};

// What the layout as a whole lacks or leaves.
void check_names(const LoadedCheckpoint& checkpoint, const Index& index, const std::vector<std::string>& names,
                 LoadedCheckpoint::Part part, Problems& problems) {
  for (const std::string& name : names)
    if (!index.contains(name)) problems.add(missing_message(checkpoint, name));
  const std::set<std::string> asked(names.begin(), names.end());
  for (const StoredTensor& tensor : checkpoint.manifest().tensors) {
    const bool must_be_used =
        part == LoadedCheckpoint::Part::kAll || (part == LoadedCheckpoint::Part::kWeights && store::is_weight(tensor));
    if (must_be_used && !asked.contains(tensor.name))
      problems.add("'", tensor.name, "' (", tensor.file, ") is in checkpoint ", checkpoint.folder().filename().string(),
                   " and has no place in this model");
  }
}

// Everything that can be known without reading a tensor.
std::vector<Match> match(const LoadedCheckpoint& checkpoint, const std::vector<TensorRequest>& requests,
                         LoadedCheckpoint::Part part, std::vector<std::string> all_names) {
  const Index index = index_of(checkpoint.manifest());
  if (all_names.empty())
    for (const TensorRequest& request : requests) all_names.push_back(request.name);
  Problems problems;
  std::vector<Match> matches;
  for (const TensorRequest& request : requests) {
    const auto found = index.find(request.name);
    if (found == index.end()) continue;  // check_names reports it
    const StoredTensor& tensor = *found->second;
    const at::Tensor& destination = request.destination;
    ESPALIER_CHECK(destination.is_cpu(), request.name, " is to be read into ", destination.device());
    const TensorPart wanted_part = part_of(request.name, destination, request.part);
    const std::string wanted = store::describe(dtype_of(destination.scalar_type()), wanted_part.global_shape);
    if (const std::string stored = store::describe(tensor); wanted != stored)
      problems.add("tensor '", request.name, "': this run needs ", wanted, ", ", tensor.file, " has ", stored);
    matches.push_back({&tensor, wanted_part, static_cast<uint8_t*>(destination.mutable_data_ptr())});
  }
  check_names(checkpoint, index, all_names, part, problems);
  problems.raise(ExitCode::kBadData);
  return matches;
}

// A block, and where its bytes go.
struct BlockToRead {
  const StoredTensor* tensor;
  size_t block;
  struct Copy {
    int64_t from;  // in the block
    uint8_t* to;
    int64_t bytes;
  };
  std::vector<Copy> copies;

  int64_t bytes() const { return tensor->blocks[block].bytes; }
};

// Each block once, however many requests it serves.
std::vector<BlockToRead> blocks_to_read(const std::vector<Match>& matches) {
  std::map<std::pair<const StoredTensor*, size_t>, size_t> index;
  std::vector<BlockToRead> blocks;
  for (const Match& match : matches) {
    const int64_t size = store::size_bytes(match.tensor->dtype);
    std::vector<spec::Extent> extents = match.part.extents;  // in bytes from here on
    for (spec::Extent& extent : extents) extent.global_begin *= size, extent.local_begin *= size, extent.count *= size;
    std::vector<plan::StoredRange> ranges;
    for (const store::Block& block : match.tensor->blocks) ranges.push_back({block.offset, block.bytes});
    for (const plan::BlockRead& read : plan::plan_load(extents, ranges)) {
      const auto [found, is_new] = index.emplace(std::pair(match.tensor, read.block), blocks.size());
      if (is_new) blocks.push_back({match.tensor, read.block, {}});
      for (const plan::BlockCopy& copy : read.copies)
        blocks[found->second].copies.push_back({copy.from, match.destination + copy.to, copy.count});
    }
  }
  return blocks;
}

void read_block(store::StepReader& reader, const BlockToRead& block) {
  const int64_t bytes = block.bytes();
  if (block.copies.size() == 1 && block.copies[0].bytes == bytes) {
    reader.read_block(*block.tensor, block.block, block.copies[0].to);
    return;
  }
  const std::unique_ptr<uint8_t[]> whole(new uint8_t[static_cast<size_t>(bytes)]);
  reader.read_block(*block.tensor, block.block, whole.get());
  for (const BlockToRead::Copy& copy : block.copies)
    std::memcpy(copy.to, whole.get() + copy.from, static_cast<size_t>(copy.bytes));
}

// All blocks in parallel; every damaged one is reported.
void read_blocks(store::StepReader& reader, const std::vector<BlockToRead>& blocks) {
  Problems problems;
  std::mutex mutex;
  at::parallel_for(0, static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      try {
        read_block(reader, blocks[static_cast<size_t>(index)]);
        note_progress();
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
    const std::string what = error.what();
    throw store::DamagedCheckpoint(concat(what, what.ends_with('.') ? "" : ".", store::other_steps_hint(folder)),
                                   error.code(), folder);
  }
}

}  // namespace

LoadedCheckpoint::LoadedCheckpoint(const std::filesystem::path& step_folder)
    : reader_(with_hint(step_folder, [&] { return store::StepReader(step_folder); })) {}

void LoadedCheckpoint::load(const std::vector<TensorRequest>& requests, Part part,
                            const std::vector<std::string>& all_names) {
  const std::vector<BlockToRead> blocks = blocks_to_read(match(*this, requests, part, all_names));
  std::set<std::string> files;
  for (const BlockToRead& block : blocks) files.insert(block.tensor->file);
  with_hint(folder(), [&] {
    reader_.check_files({files.begin(), files.end()});
    read_blocks(reader_, blocks);
  });
  for (const BlockToRead& block : blocks) bytes_read_ += block.bytes();
}

void LoadedCheckpoint::load_together(const std::vector<TensorRequest>& requests, Part part, const dist::Group& group) {
  if (group.size() == 1) return load(requests, part);
  std::string wants;
  for (const TensorRequest& request : requests)
    wants += describe_part(request.name, /*file=*/"", request.destination, request.part);
  const Inventory inventory(group.gather_texts(wants), group.rank());
  std::vector<std::string> all_names;
  for (const store::TensorFacts& tensor : inventory.facts()) all_names.push_back(tensor.name);
  together(group, [&] { match(*this, requests, part, all_names); });

  const SharedReadPlan plan(inventory, manifest(), group.size());
  std::map<size_t, uint8_t*> destinations;
  for (const auto& [tensor, own] : inventory.own())
    destinations[tensor] = static_cast<uint8_t*>(requests[own].destination.mutable_data_ptr());
  together(group, [&] { with_hint(folder(), [&] { reader_.check_files(plan.files_of(group.rank())); }); });
  Problems problems;
  bytes_read_ += read_shared(reader_, plan, destinations, group, problems);
  together(group, [&] { with_hint(folder(), [&] { problems.raise(ExitCode::kBadData); }); });
}

std::string LoadedCheckpoint::read_extra_file(const std::string& path) const {
  return with_hint(folder(), [&] { return reader_.read_extra_file(path); });
}

void LoadedCheckpoint::check_extra_files(const std::string& prefix) const {
  with_hint(folder(), [&] { reader_.check_extra_files(prefix); });
}

at::Tensor LoadedCheckpoint::read(const std::string& name) {
  const StoredTensor* tensor = manifest().find(name);
  if (tensor == nullptr) throw UserError(missing_message(*this, name), ExitCode::kBadData);
  at::Tensor value = at::empty(tensor->shape, at::TensorOptions().dtype(scalar_type_of(tensor->dtype)));
  load({{name, value}}, Part::kSome);
  return value;
}

at::Tensor LoadedCheckpoint::read(const std::string& name, const std::vector<spec::Extent>& extents) {
  const StoredTensor* tensor = manifest().find(name);
  if (tensor == nullptr) throw UserError(missing_message(*this, name), ExitCode::kBadData);
  int64_t count = 0;
  for (const spec::Extent& extent : extents) count += extent.count;
  at::Tensor values = at::empty({count}, at::TensorOptions().dtype(scalar_type_of(tensor->dtype)));
  load({{name, values, TensorPart{tensor->shape, extents}}}, Part::kSome);
  return values;
}

}  // namespace espalier::ckpt
