#include "ckpt/snapshots.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace espalier::ckpt {
namespace snapshots_test {

class SnapshotsOfOneRank : public ::testing::Test {
 protected:
  SnapshotsOfOneRank() : memory_(1), slots_(memory_.descriptor(), 0) {}

  // Of a state whose numbers all follow from the step; sizes that share no factor with those of pieces.
  static std::vector<TensorToSave> state_of(int64_t step, int64_t rows = 33) {
    const at::Tensor large = at::arange(rows * 7001, at::kFloat).add_(static_cast<double>(step)).view({rows, 7001});
    return {{"w", "weights-00000.safetensors", large},
            {"b", "weights-00000.safetensors", at::full({7}, static_cast<double>(step), at::kBFloat16)},
            {"none", "weights-00000.safetensors", at::empty({0}, at::kFloat)}};
  }
  static store::TrainingState numbers_of(int64_t step) {
    store::TrainingState numbers;
    numbers.step = step;
    numbers.loss_scale = 1.0 / 3.0;
    numbers.step_statistics = "0 0x1.8p+1";
    return numbers;
  }
  static void keep(Snapshots& snapshots, int64_t step) { snapshots.keep(numbers_of(step), state_of(step)); }
  void flip_a_bit(int64_t step, int64_t byte) {
    for (const launch::SnapshotHead& head : slots_.heads())
      if (head.step == step) const_cast<uint8_t*>(slots_.data(head.slot))[byte] ^= 4;
  }

  static void expect_loads(Snapshots& snapshots, int64_t step) {
    std::vector<TensorRequest> requests;
    for (const TensorToSave& tensor : state_of(0)) requests.push_back({tensor.name, at::zeros_like(tensor.value)});
    const store::TrainingState numbers = snapshots.load(step, requests);
    EXPECT_EQ(numbers.step, step);
    EXPECT_EQ(numbers.loss_scale, 1.0 / 3.0);
    EXPECT_EQ(numbers.step_statistics, "0 0x1.8p+1");
    const std::vector<TensorToSave> expected = state_of(step);
    for (size_t at = 0; at < expected.size(); ++at)
      EXPECT_TRUE(at::equal(requests[at].destination, expected[at].value)) << expected[at].name;
  }

  launch::SnapshotMemory memory_;
  launch::SnapshotSlots slots_;
};

TEST_F(SnapshotsOfOneRank, AreThereForWhoComesAfter) {
  {
    Snapshots snapshots({.own = slots_}, {}, state_of(0));
    EXPECT_EQ(snapshots.newest(), std::nullopt);
    for (int64_t step = 1; step <= 3; ++step) keep(snapshots, step);
  }
  Snapshots snapshots({.own = slots_}, {}, state_of(0));
  ASSERT_EQ(snapshots.newest(), 3);
  expect_loads(snapshots, 3);
}

TEST_F(SnapshotsOfOneRank, ADamagedOneIsNotTaken) {
  Snapshots snapshots({.own = slots_}, {}, state_of(0));
  for (int64_t step = 1; step <= 3; ++step) keep(snapshots, step);
  flip_a_bit(3, int64_t{33} * 7001 * 4 - 1);
  ASSERT_EQ(snapshots.newest(), 2);
  flip_a_bit(2, 0);
  EXPECT_EQ(snapshots.newest(), std::nullopt);
  flip_a_bit(3, int64_t{33} * 7001 * 4 - 1);
  ASSERT_EQ(snapshots.newest(), 3);
  expect_loads(snapshots, 3);
}

TEST_F(SnapshotsOfOneRank, OneOfOtherTensorsIsNotTaken) {
  {
    Snapshots snapshots({.own = slots_}, {}, state_of(0));
    keep(snapshots, 1);
  }
  EXPECT_EQ(Snapshots({.own = slots_}, {}, state_of(0, 32)).newest(), std::nullopt);
}

TEST_F(SnapshotsOfOneRank, DoNotCountOnceTrainingGoesOnFromElsewhere) {
  Snapshots snapshots({.own = slots_}, {}, state_of(0));
  keep(snapshots, 1), keep(snapshots, 2);
  snapshots.clear();
  EXPECT_EQ(snapshots.newest(), std::nullopt);
  keep(snapshots, 1);
  EXPECT_EQ(snapshots.newest(), 1);
}

}  // namespace snapshots_test
}  // namespace espalier::ckpt
