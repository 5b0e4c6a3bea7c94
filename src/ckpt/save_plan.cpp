#include "ckpt/save_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/error.h"
#include "ckpt/dtype.h"
#include "plan/reshape.h"

namespace espalier::ckpt {
namespace {

// Blocks begin at cache lines in the buffer.
constexpr int64_t kAlignment = 64;

// The tensors of a checkpoint, and who holds what of them: the parts of all ranks laid over each other.
class Inventory {
 public:
  Inventory(const std::vector<std::string>& parts, int64_t own_rank) {
    for (size_t rank = 0; rank < parts.size(); ++rank) {
      std::istringstream lines(parts[rank]);
      size_t number = 0;
      for (std::string line; std::getline(lines, line); ++number) {
        const size_t tensor = add(line, static_cast<int64_t>(rank));
        if (static_cast<int64_t>(rank) == own_rank) own_.emplace(tensor, number);
      }
    }
  }

  const std::vector<store::TensorFacts>& facts() const { return facts_; }
  const std::vector<plan::SavedTensor>& saved() const { return saved_; }
  // Number of a tensor in this rank's own list, for those that it has.
  const std::map<size_t, size_t>& own() const { return own_; }

 private:
  static std::vector<int64_t> numbers(const std::string& text) {
    std::vector<int64_t> values;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) values.push_back(std::strtoll(part.c_str(), nullptr, 10));
    return values;
  }

  static plan::ExtentPattern pattern_of(const std::string& text) {
    plan::ExtentPattern pattern;
    const std::vector<int64_t> values = numbers(text);
    for (size_t i = 0; i + 2 < values.size(); i += 3) pattern.push_back({values[i], values[i + 1], values[i + 2]});
    return pattern;
  }

  size_t add(const std::string& line, int64_t rank) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
    fields.resize(5);  // an empty last field is not seen
    const auto dtype = store::dtype_from_string(fields[2]);
    ESPALIER_CHECK(dtype, line);
    const store::TensorFacts facts{fields[0], fields[1], *dtype, numbers(fields[3])};
    const auto [found, is_new] = index_.emplace(facts.name, facts_.size());
    if (is_new) {
      facts_.push_back(facts);
      saved_.push_back({facts.name, facts.num_elements(), store::size_bytes(facts.dtype), {}});
    }
    const store::TensorFacts& known = facts_[found->second];
    ESPALIER_CHECK(known.file == facts.file && known.dtype == facts.dtype && known.shape == facts.shape, facts.name,
                   " is ", store::describe(facts.dtype, facts.shape), " for ", facts.file, " on rank ", rank, ", ",
                   store::describe(known.dtype, known.shape), " for ", known.file, " before");
    std::vector<plan::Holder>& holders = saved_[found->second].holders;
    ESPALIER_CHECK(holders.empty() || holders.back().rank != rank, facts.name, " twice on rank ", rank);
    holders.push_back({rank, pattern_of(fields[4])});
    return found->second;
  }

  std::vector<store::TensorFacts> facts_;
  std::vector<plan::SavedTensor> saved_;
  std::map<std::string, size_t> index_;
  std::map<size_t, size_t> own_;
};

// Local offset of elements of a tensor of which this rank holds `extents`.
class LocalOffsets {
 public:
  explicit LocalOffsets(std::vector<spec::Extent> extents) : extents_(std::move(extents)) {
    std::sort(extents_.begin(), extents_.end(),
              [](const auto& a, const auto& b) { return a.global_begin < b.global_begin; });
  }
  int64_t of(int64_t global) const {
    const auto behind = std::upper_bound(extents_.begin(), extents_.end(), global,
                                         [](int64_t at, const auto& extent) { return at < extent.global_begin; });
    ESPALIER_CHECK(behind != extents_.begin(), "element ", global);
    const spec::Extent& extent = *std::prev(behind);
    return extent.local_begin + global - extent.global_begin;
  }

 private:
  std::vector<spec::Extent> extents_;
};

// Adds what this rank has to do for one block to its plan.
void add_block(const plan::PlannedBlock& block, const std::vector<plan::Piece>& pieces, int64_t rank,
               int64_t element_bytes, const LocalOffsets& offsets, size_t own_number, SavePlan& plan) {
  const bool writes = block.writer == rank;
  const int64_t buffer_begin = plan.buffer_bytes;
  if (writes) {
    const int64_t bytes = block.count * element_bytes;
    plan.blocks.push_back({static_cast<size_t>(block.tensor), block.begin * element_bytes, bytes, buffer_begin});
    plan.buffer_bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  for (const plan::Piece& piece : pieces) {
    const int64_t bytes = piece.count * element_bytes;
    const int64_t to = buffer_begin + (piece.begin - block.begin) * element_bytes;
    const bool gives = piece.source == rank;
    if (!gives && writes) plan.takes[piece.source].push_back({to, bytes});
    if (!gives) continue;
    const LocalBytes from{own_number, offsets.of(piece.begin) * element_bytes, bytes};
    if (writes)
      plan.own.push_back({from, to});
    else
      plan.gives[block.writer].push_back(from);
  }
}

}  // namespace

int64_t SavePlan::checkpoint_bytes() const {
  int64_t bytes = 0;
  for (const store::TensorFacts& tensor : tensors) bytes += tensor.num_bytes();
  return bytes;
}

int64_t SavePlan::written_bytes() const {
  int64_t bytes = 0;
  for (const BlockToWrite& block : blocks) bytes += block.bytes;
  return bytes;
}

int64_t SavePlan::given_bytes() const {
  int64_t bytes = 0;
  for (const auto& [rank, pieces] : gives)
    for (const LocalBytes& piece : pieces) bytes += piece.count;
  return bytes;
}

std::string describe_parts(const std::vector<TensorToSave>& tensors) {
  std::ostringstream text;
  for (const TensorToSave& tensor : tensors) {
    ESPALIER_CHECK(tensor.name.find_first_of("\t\n") == std::string::npos, tensor.name);
    const TensorPart part = part_of(tensor.name, tensor.value, tensor.part);
    text << tensor.name << '\t' << tensor.file << '\t' << store::to_string(dtype_of(tensor.value.scalar_type()));
    char separator = '\t';
    for (const int64_t size : part.global_shape) text << std::exchange(separator, ',') << size;
    if (part.global_shape.empty()) text << '\t';
    separator = '\t';
    for (const plan::ExtentRun& run : plan::to_pattern(part.extents))
      text << std::exchange(separator, ',') << run.gap << ',' << run.count << ',' << run.repeat;
    text << '\n';
  }
  return text.str();
}

SavePlan make_save_plan(const std::vector<std::string>& parts, int64_t rank, int64_t block_bytes) {
  SavePlan plan;
  plan.own_parts = parts.at(static_cast<size_t>(rank));
  const Inventory inventory(parts, rank);
  plan.tensors = inventory.facts();
  const std::vector<plan::SavedTensor>& saved = inventory.saved();
  const std::vector<plan::PlannedBlock> blocks =
      plan::plan_save(saved, static_cast<int64_t>(parts.size()), block_bytes);
  for (size_t first = 0; first < blocks.size();) {
    const auto number = static_cast<size_t>(blocks[first].tensor);
    size_t end = first;
    bool writes = false;
    for (; end < blocks.size() && blocks[end].tensor == blocks[first].tensor; ++end)
      writes |= blocks[end].writer == rank;
    const auto own = inventory.own().find(number);
    if (writes || own != inventory.own().end()) {
      const std::vector<plan::Replicas> replicas = plan::replicas_of(saved[number]);
      std::vector<spec::Extent> extents;
      for (const plan::Holder& holder : saved[number].holders)
        if (holder.rank == rank) extents = plan::to_extents(holder.pattern);
      const LocalOffsets offsets(std::move(extents));
      for (size_t block = first; block < end; ++block)
        add_block(blocks[block], plan::pieces_of(blocks[block], replicas), rank, saved[number].element_bytes, offsets,
                  own == inventory.own().end() ? 0 : own->second, plan);
    }
    first = end;
  }
  return plan;
}

}  // namespace espalier::ckpt
