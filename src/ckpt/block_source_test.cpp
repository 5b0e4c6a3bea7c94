// What is saved is what the tensors held when the save began, whenever they change and wherever the bytes are read.
#include "ckpt/block_source.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "store/manifest.h"

namespace espalier::ckpt {
namespace block_source_test {

using Bytes = std::vector<uint8_t>;

TensorToSave tensor(const std::string& name, const at::Tensor& value) {
  return {.name = name, .file = store::weights_file("00000"), .value = value, .part = {}};
}

at::Tensor random_bytes(int64_t count, uint64_t seed) {
  const at::Tensor values = at::empty({count}, at::kByte);
  std::mt19937_64 random(seed);
  auto* const data = values.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < count; ++i) data[i] = static_cast<uint8_t>(random());
  return values;
}

// Takes all blocks of the plan in order, in pieces; `between` sees how many have been taken.
std::vector<Bytes> take_all(
    const SavePlan& plan, BlockSource& source, int64_t piece_bytes,
    const std::function<void(int64_t)>& between = [](int64_t) {}) {
  std::vector<Bytes> found(plan.blocks.size());
  int64_t num_taken = 0;
  for (size_t number = 0; number < plan.blocks.size(); ++number) {
    const BlockToWrite& block = plan.blocks[number];
    found[number].resize(static_cast<size_t>(block.bytes));
    for (int64_t done = 0; done < block.bytes; done += piece_bytes) {
      between(num_taken++);
      source.take(block.tensor, block.offset + done, std::min(piece_bytes, block.bytes - done),
                  found[number].data() + done);
    }
  }
  return found;
}

// Two ranks hold columns of a matrix, one behind the other; the first holds a vector too. Of the first.
struct DividedState {
  static constexpr int64_t kRows = 33, kColumns = 70, kOwnColumns = 31;
  at::Tensor whole = random_bytes(kRows * kColumns, 5), vector = random_bytes(1000, 6);

  at::Tensor columns(int64_t begin, int64_t end) const {
    return whole.view({kRows, kColumns}).narrow(1, begin, end - begin).contiguous();
  }
  static TensorPart part(int64_t begin, int64_t end) {
    TensorPart part{.global_shape = {kRows, kColumns}, .extents = {}};
    for (int64_t row = 0; row < kRows; ++row)
      part.extents.push_back(
          {.global_begin = row * kColumns + begin, .local_begin = row * (end - begin), .count = end - begin});
    return part;
  }
  std::vector<TensorToSave> of_first() const {
    TensorToSave matrix = tensor("matrix", columns(0, kOwnColumns));
    matrix.part = part(0, kOwnColumns);
    return {matrix, tensor("vector", vector.clone())};
  }
  std::vector<TensorToSave> of_second() const {
    TensorToSave matrix = tensor("matrix", columns(kOwnColumns, kColumns));
    matrix.part = part(kOwnColumns, kColumns);
    return {matrix};
  }
  Bytes expected(const BlockToWrite& block, const SavePlan& plan) const {
    const at::Tensor& values = plan.tensors[block.tensor].name == "matrix" ? whole : vector;
    const auto* const data = values.const_data_ptr<uint8_t>() + block.offset;
    return {data, data + block.bytes};
  }
};

void fill(const std::vector<TensorToSave>& tensors, int value) {
  for (const TensorToSave& one : tensors) one.value.fill_(value);
}

TEST(BlockSource, GivesWhatWasThereHoweverMuchIsTakenBeforeTheChange) {
  const DividedState state;
  const std::vector<TensorToSave> own = state.of_first(), others = state.of_second();
  for (const OwnBytes own_bytes : {OwnBytes::kInPlace, OwnBytes::kInBuffer}) {
    const std::vector<std::string> parts = {describe_parts(own), describe_parts(others)};
    const SavePlan plan = make_save_plan(parts, 0, 300, own_bytes),
                   plan_of_second = make_save_plan(parts, 1, 300, own_bytes);
    ASSERT_GT(plan.blocks.size(), 3u);
    ASSERT_FALSE(plan.takes.empty());
    ASSERT_EQ(plan.own.empty(), own_bytes == OwnBytes::kInPlace);
    Bytes buffer(static_cast<size_t>(plan.buffer_bytes));
    for (size_t at = 0; at < plan.takes.at(1).size(); ++at) {
      const LocalBytes& from = plan_of_second.gives.at(0)[at];
      ASSERT_EQ(from.count, plan.takes.at(1)[at].count);
      std::memcpy(buffer.data() + plan.takes.at(1)[at].begin,
                  others[from.tensor].value.const_data_ptr<uint8_t>() + from.begin, static_cast<size_t>(from.count));
    }
    for (const OwnCopy& copy : plan.own)
      std::memcpy(buffer.data() + copy.to, own[copy.from.tensor].value.const_data_ptr<uint8_t>() + copy.from.begin,
                  static_cast<size_t>(copy.from.count));
    for (int64_t change_after = 0; change_after < 25; ++change_after) {
      const std::vector<TensorToSave> tensors = state.of_first();
      BlockSource source(plan, tensors, buffer.data());
      const auto found = take_all(plan, source, 97, [&](int64_t num_taken) {
        if (num_taken != change_after && num_taken != change_after + 5) return;
        source.before_change();
        fill(tensors, 1);
      });
      for (size_t number = 0; number < found.size(); ++number)
        EXPECT_EQ(found[number], state.expected(plan.blocks[number], plan))
            << "block " << number << ", changed after " << change_after << " pieces";
    }
  }
}

TEST(BlockSource, GivesWhatWasThereWhileAnotherThreadTakes) {
  const at::Tensor before = random_bytes(6 << 20, 1);
  for (int round = 0; round < 30; ++round) {
    const std::vector<TensorToSave> tensors = {tensor("a", before.clone()), tensor("b", before.clone())};
    const SavePlan plan = make_save_plan({describe_parts(tensors)}, 0, 1 << 20);
    ASSERT_EQ(plan.buffer_bytes, 0);
    BlockSource source(plan, tensors, nullptr);
    std::atomic<int64_t> num_taken = 0;
    std::vector<Bytes> found;
    std::thread writer([&] { found = take_all(plan, source, 50'000, [&](int64_t number) { num_taken = number; }); });
    while (num_taken < round * 8) std::this_thread::yield();
    source.before_change();
    fill(tensors, round);
    writer.join();
    for (size_t number = 0; number < found.size(); ++number) {
      const auto* const expected = before.const_data_ptr<uint8_t>() + plan.blocks[number].offset;
      ASSERT_EQ(std::memcmp(found[number].data(), expected, found[number].size()), 0) << number << ", round " << round;
    }
  }
}

// Counts the memory of tensors, and refuses it.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this); }
  ~CountingAllocator() override { c10::SetCPUAllocator(before_); }

  c10::DataPtr allocate(size_t bytes) override {
    if (refuses) throw std::bad_alloc();
    auto* const block = new Block{before_->allocate(bytes), bytes, in_use_};
    *in_use_ += static_cast<int64_t>(bytes);
    return {block->memory.get(), block, [](void* one) { delete static_cast<Block*>(one); },
            c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t count) const override { default_copy_data(to, from, count); }
  int64_t in_use() const { return *in_use_; }

  std::atomic<bool> refuses = false;

 private:
  using Count = std::shared_ptr<std::atomic<int64_t>>;
  struct Block {
    c10::DataPtr memory;
    size_t bytes;
    Count in_use;
    ~Block() { *in_use -= static_cast<int64_t>(bytes); }
  };
  c10::Allocator* const before_;
  const Count in_use_ = std::make_shared<std::atomic<int64_t>>(0);
};

// Of 64 MiB half are written before the change.
TEST(BlockSource, TakesMemoryForWhatIsLeftAndFreesItAsItIsWritten) {
  constexpr int64_t kBlockBytes = int64_t{8} << 20, kBlocks = 8;
  const std::vector<TensorToSave> tensors = {tensor("a", random_bytes(kBlocks * kBlockBytes, 1))};
  const SavePlan plan = make_save_plan({describe_parts(tensors)}, 0, kBlockBytes);
  ASSERT_EQ(static_cast<int64_t>(plan.blocks.size()), kBlocks);
  const CountingAllocator memory;
  BlockSource source(plan, tensors, nullptr);
  Bytes to(static_cast<size_t>(kBlockBytes));
  const auto take = [&](size_t number) {
    source.take(0, plan.blocks[number].offset, plan.blocks[number].bytes, to.data());
  };
  for (size_t number = 0; number < kBlocks / 2; ++number) take(number);
  EXPECT_EQ(memory.in_use(), 0);
  source.before_change();
  EXPECT_EQ(memory.in_use(), 4 * kBlockBytes);
  take(4), take(5);
  EXPECT_EQ(memory.in_use(), 2 * kBlockBytes);
  take(6), take(7);
  EXPECT_EQ(memory.in_use(), 0);
}

TEST(BlockSource, KeepsTheTensorsAsLongAsTheyAreRead) {
  at::Tensor value = random_bytes(1000, 1);
  const SavePlan plan = make_save_plan({describe_parts({tensor("a", value)})}, 0, 600);
  const auto source_of = [&] { return std::make_unique<BlockSource>(plan, std::vector{tensor("a", value)}, nullptr); };
  const auto written = source_of();
  EXPECT_EQ(value.use_count(), 2u);
  take_all(plan, *written, 1000);
  EXPECT_EQ(value.use_count(), 1u);
  const auto copied = source_of();
  copied->before_change();
  EXPECT_EQ(value.use_count(), 1u);
  const auto failed = source_of();
  failed->end();
  EXPECT_EQ(value.use_count(), 1u);
}

class WithoutMemory : public testing::Test {
 protected:
  // Changes the tensors while another thread does `meanwhile`, which begins when the change has been waiting.
  void change_while(const std::function<void()>& meanwhile) {
    std::atomic<bool> may_begin = false;
    std::thread other([&] {
      while (!may_begin) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_FALSE(has_changed_) << "without memory there was no copy";
      meanwhile();
    });
    {
      CountingAllocator memory;
      memory.refuses = true;
      may_begin = true;
      source_.before_change();
      has_changed_ = true;
    }
    fill(tensors_, 1);
    other.join();
  }

  const at::Tensor before_ = random_bytes(64 << 20, 1);
  const std::vector<TensorToSave> tensors_ = {tensor("a", before_.clone())};
  const SavePlan plan_ = make_save_plan({describe_parts(tensors_)}, 0, 64 << 20);
  BlockSource source_{plan_, tensors_, nullptr};
  Bytes found_ = Bytes(64 << 20);
  std::atomic<bool> has_changed_ = false;
};

TEST_F(WithoutMemory, AChangeWaitsUntilAllIsWritten) {
  change_while([&] {
    for (int64_t done = 0; done < 64 << 20; done += 1 << 20) source_.take(0, done, 1 << 20, found_.data() + done);
  });
  EXPECT_EQ(std::memcmp(found_.data(), before_.const_data_ptr(), found_.size()), 0);
}

TEST_F(WithoutMemory, AChangeWaitsNoLongerThanAWriteThatFails) {
  change_while([&] { source_.end(); });
}

}  // namespace block_source_test
}  // namespace espalier::ckpt
