#include "ckpt/internal/shared_read.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <set>
#include <utility>

#include "base/error.h"

namespace espalier::ckpt {
namespace {

constexpr int kLoadTag = 0x6c6f6164;

// With bytes for elements: a stored block may end inside an element.
plan::SavedTensor in_bytes(plan::SavedTensor tensor) {
  const int64_t size = std::exchange(tensor.element_bytes, 1);
  tensor.num_elements *= size;
  for (plan::Holder& holder : tensor.holders)
    for (plan::ExtentRun& run : holder.pattern) run.gap *= size, run.count *= size;
  return tensor;
}

int64_t total(const std::vector<plan::BlockCopy>& copies) {
  int64_t bytes = 0;
  for (const plan::BlockCopy& copy : copies) bytes += copy.count;
  return bytes;
}

uint8_t* bytes_of(const at::Tensor& buffer) { return static_cast<uint8_t*>(buffer.mutable_data_ptr()); }

// One rank's way through the rounds.
class SharedReader {
 public:
  SharedReader(store::StepReader& reader, const SharedReadPlan& plan, const std::map<size_t, uint8_t*>& destinations,
               const dist::Group& group)
      : reader_(reader), plan_(plan), destinations_(destinations), group_(group) {
    for (at::Tensor* buffer : {&block_, &next_block_, &outgoing_, &incoming_})
      *buffer = at::empty({plan.longest_block_bytes()}, at::kByte);
  }

  int64_t run(Problems& problems) {
    int64_t bytes_read = 0;
    std::future<std::string> reading = read_ahead(0);
    for (size_t round = 0; round < plan_.num_rounds(); ++round) {
      if (const std::string problem = reading.get(); !problem.empty()) problems.add(problem);
      std::swap(block_, next_block_);
      reading = read_ahead(round + 1);
      if (const auto* own = plan_.block_of(group_.rank(), round)) bytes_read += own->bytes.count;
      for (int64_t shift = 0; shift < group_.size(); ++shift) share(round, shift);
    }
    reading.get();
    return bytes_read;
  }

 private:
  // Reads this rank's block of a round into next_block_ while the one before is shared. "" or what is wrong.
  std::future<std::string> read_ahead(size_t round) {
    return std::async(std::launch::async, [this, round]() -> std::string {
      const SharedReadPlan::Block* block = plan_.block_of(group_.rank(), round);
      if (block == nullptr) return "";
      try {
        reader_.read_block(*block->tensor, block->block, bytes_of(next_block_));
      } catch (const UserError& error) {
        return error.what();
      }
      return "";
    });
  }

  // Gives to the rank `shift` places on, takes from the one as many places back.
  void share(size_t round, int64_t shift) {
    const int64_t to = (group_.rank() + shift) % group_.size();
    const int64_t from = (group_.rank() - shift + group_.size()) % group_.size();
    const SharedReadPlan::Block* given = plan_.block_of(group_.rank(), round);
    const SharedReadPlan::Block* taken = plan_.block_of(from, round);
    std::vector<plan::BlockCopy> gives, takes;
    if (given != nullptr) gives = plan_.copies_for(*given, to);
    if (taken != nullptr) takes = plan_.copies_for(*taken, group_.rank());
    if (shift == 0) {
      for (const plan::BlockCopy& copy : takes)
        std::memcpy(destinations_.at(taken->number) + copy.to, bytes_of(block_) + copy.from,
                    static_cast<size_t>(copy.count));
      return;
    }
    dist::Pending sending, receiving;
    if (!takes.empty()) receiving = group_.start_receive(incoming_.narrow(0, 0, total(takes)), from, kLoadTag);
    if (!gives.empty()) sending = group_.start_send(pack(gives), to, kLoadTag);
    receiving.wait();
    int64_t place = 0;
    for (const plan::BlockCopy& copy : takes) {
      std::memcpy(destinations_.at(taken->number) + copy.to, bytes_of(incoming_) + place,
                  static_cast<size_t>(copy.count));
      place += copy.count;
    }
    sending.wait();
  }

  at::Tensor pack(const std::vector<plan::BlockCopy>& copies) {
    if (copies.size() == 1) return block_.narrow(0, copies[0].from, copies[0].count);
    int64_t place = 0;
    for (const plan::BlockCopy& copy : copies) {
      std::memcpy(bytes_of(outgoing_) + place, bytes_of(block_) + copy.from, static_cast<size_t>(copy.count));
      place += copy.count;
    }
    return outgoing_.narrow(0, 0, place);
  }

  store::StepReader& reader_;
  const SharedReadPlan& plan_;
  const std::map<size_t, uint8_t*>& destinations_;
  const dist::Group& group_;
  at::Tensor block_, next_block_, outgoing_, incoming_;
};

}  // namespace

SharedReadPlan::SharedReadPlan(const Inventory& wanted, const store::Manifest& manifest, int64_t num_ranks)
    : by_rank_(static_cast<size_t>(num_ranks)) {
  std::map<std::string, const store::StoredTensor*> stored;
  for (const store::StoredTensor& tensor : manifest.tensors) stored.emplace(tensor.name, &tensor);
  std::vector<plan::PlannedBlock> planned;
  std::vector<size_t> numbers;  // of the blocks, in their tensors
  for (const plan::SavedTensor& tensor : wanted.saved()) {
    const std::vector<store::Block>& blocks = stored.at(tensor.name)->blocks;
    for (size_t block = 0; block < blocks.size(); ++block) {
      planned.push_back({static_cast<int64_t>(wanted_.size()), blocks[block].offset, blocks[block].bytes});
      numbers.push_back(block);
    }
    wanted_.push_back(in_bytes(tensor));
  }
  plan::assign_owners(wanted_, num_ranks, planned);
  for (size_t i = 0; i < planned.size(); ++i) {
    const plan::PlannedBlock& block = planned[i];
    if (block.owner < 0) continue;  // nobody wants it
    const auto number = static_cast<size_t>(block.tensor);
    std::vector<Block>& queue = by_rank_[static_cast<size_t>(block.owner)];
    queue.push_back({stored.at(wanted_[number].name), numbers[i], number, {block.begin, block.count}});
    num_rounds_ = std::max(num_rounds_, queue.size());
    longest_block_bytes_ = std::max(longest_block_bytes_, block.count);
  }
}

const SharedReadPlan::Block* SharedReadPlan::block_of(int64_t rank, size_t round) const {
  const std::vector<Block>& queue = by_rank_[static_cast<size_t>(rank)];
  return round < queue.size() ? &queue[round] : nullptr;
}

std::vector<plan::BlockCopy> SharedReadPlan::copies_for(const Block& block, int64_t rank) const {
  const std::vector<plan::Holder>& holders = wanted_[block.number].holders;  // by rank
  const auto holder = std::lower_bound(holders.begin(), holders.end(), rank,
                                       [](const plan::Holder& one, int64_t wanted) { return one.rank < wanted; });
  if (holder == holders.end() || holder->rank != rank) return {};
  const std::vector<plan::BlockRead> reads = plan::plan_load(plan::to_extents(holder->pattern), {block.bytes});
  return reads.empty() ? std::vector<plan::BlockCopy>() : reads[0].copies;
}

std::vector<std::string> SharedReadPlan::files_of(int64_t rank) const {
  std::set<std::string> files;
  for (const Block& block : by_rank_[static_cast<size_t>(rank)]) files.insert(block.tensor->file);
  return {files.begin(), files.end()};
}

int64_t read_shared(store::StepReader& reader, const SharedReadPlan& plan,
                    const std::map<size_t, uint8_t*>& destinations, const dist::Group& group, Problems& problems) {
  return SharedReader(reader, plan, destinations, group).run(problems);
}

}  // namespace espalier::ckpt
