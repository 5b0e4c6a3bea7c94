// Mistakes that other trainers have shipped, made here on purpose: the comparison with one process must see each.
//
// A small trainer is put together from the product's parts, with one knob per mistake; the product has none of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "dist/local_ranks.h"
#include "dist/reduce.h"
#include "optim/optimizer.h"
#include "pipeline/runner.h"
#include "plan/partition.h"
#include "plan/stage_params.h"
#include "tests/parallel/small_models.h"

namespace espalier::test {
namespace {

enum class Mistake {
  kNone,
  kNormGradientsNotReduced,  // layer norms under sequence parallelism
  kHeadNormGradientsNotReduced,
  kClipOnFirstTensorRankOnly,
  kTiedEmbeddingNotReduced,
  kTiedEmbeddingReducedTwice,
  kDropoutDiffersOverTensorRanks,
  kDropoutEqualOverReplicas,
  kNormCountedPerReplica,
  kAdamStepLost,
  kLayerMissing,
  kEncoderGradientLost,  // on its way from the decoder's stage to the encoder's
};

constexpr int64_t kBugSteps = 3, kRows = 4;

// A stage whose input gets no gradient.
class LosesGradient : public pipeline::Stage {
 public:
  explicit LosesGradient(std::unique_ptr<pipeline::Stage> stage) : stage_(std::move(stage)) {}
  pipeline::StageOutput forward(const pipeline::StageInput& input) override {
    pipeline::StageInput without = input;
    for (pipeline::NamedTensor& tensor : without.tensors) tensor.tensor = tensor.tensor.detach() + 0 * tensor.tensor;
    return stage_->forward(without);
  }
  std::vector<pipeline::TensorShape> input_shapes(const tensor::Batch& batch) const override {
    return stage_->input_shapes(batch);
  }
  std::vector<pipeline::TensorShape> output_shapes(const tensor::Batch& batch) const override {
    return stage_->output_shapes(batch);
  }
  void visit(tensor::ParamVisitor& visitor) override { stage_->visit(visitor); }

 private:
  std::unique_ptr<pipeline::Stage> stage_;
};

struct Layout {
  spec::GridShape shape;
  bool sequence_parallel = false;
};

// What one rank trains with.
class SmallTrainer {
 public:
  SmallTrainer(SmallFamily family, const dist::Grid& true_grid, bool sequence_parallel, Mistake mistake)
      : mistake_(mistake),
        grid_(true_grid),
        model_(small_model(family)),
        partition_(plan::partition_evenly(kSmallLayers, grid_.shape.pipeline, 1)),
        params_(plan::stage_params(specs(), partition_, grid_.position.pipeline), grid_.tensor_shard(), at::kFloat,
                true),
        stage_(make_stage(sequence_parallel)),
        runner_({stage_.get()}, grid_.pipeline, params_.grad_queue()),
        reducer_(params_, reducer_grid(),
                 {.sequence_parallel = sequence_parallel && mistake != Mistake::kNormGradientsNotReduced}),
        optimizer_(params_, {.settings = {.weight_decay = 0.1}, .clip_grad = clip()}, optimizer_grid(), &reducer_) {
    params_.initialize(5, [&](tensor::Param& param, const at::Tensor& fp32) { optimizer_.set_master(param, fp32); });
  }

  // Loss and norm of a step.
  std::vector<double> step(int64_t number) {
    const int64_t micro_batches = kRows / grid_.shape.data;
    std::vector<tensor::Batch> batches;
    for (int64_t m = 0; m < micro_batches; ++m) {
      batches.push_back(model_.batch(number * kRows + m * grid_.shape.data + grid_.position.data));
      if (mistake_ == Mistake::kDropoutEqualOverReplicas) batches.back().sample_numbers[0] = m;
    }
    reducer_.begin_step(micro_batches);
    const auto schedule = plan::schedule_1f1b(grid_.shape.pipeline, grid_.position.pipeline, micro_batches);
    const auto totals = runner_
                            .train(schedule, batches,
                                   [](const pipeline::LossTerm& term) {
                                     return 1.0 / (static_cast<double>(kRows) * term.count.item<double>());
                                   })
                            .totals();
    reducer_.finish_step();
    if (mistake_ == Mistake::kTiedEmbeddingReducedTwice)
      for (tensor::Param& param : params_.params())
        if (!param.spec->stages.empty()) grid_.shared_by(param.spec->stages).all_reduce(param.grad);
    if (mistake_ == Mistake::kAdamStepLost && number == 1) optimizer_.set_num_steps(0);
    const auto all = pipeline::combine_losses(totals, grid_);
    return {all.at(0).sum / all.at(0).count, *optimizer_.step(1e-2, 1.0).grad_norm};
  }

 private:
  std::vector<spec::ParamSpec> specs() const {
    std::vector<spec::ParamSpec> specs = model_.params;
    if (mistake_ == Mistake::kHeadNormGradientsNotReduced)
      for (spec::ParamSpec& spec : specs) spec.use_is_split = false;
    return specs;
  }
  plan::DepthRange part() const {
    plan::DepthRange part = partition_.part(grid_.position.pipeline, 0);
    if (mistake_ == Mistake::kLayerMissing && part.contains(0)) part.end -= 1;
    return part;
  }
  std::unique_ptr<pipeline::Stage> make_stage(bool sequence_parallel) {
    auto stage = model_.build({params_, grid_, sequence_parallel}, part(), {.recompute = {}, .seed = dropout_seed()});
    if (mistake_ == Mistake::kEncoderGradientLost && grid_.position.pipeline > 0)
      return std::make_unique<LosesGradient>(std::move(stage));
    return stage;
  }
  uint64_t dropout_seed() const {
    return mistake_ == Mistake::kDropoutDiffersOverTensorRanks ? 3 + static_cast<uint64_t>(grid_.position.tensor) : 3;
  }
  double clip() const {
    return mistake_ == Mistake::kClipOnFirstTensorRankOnly && grid_.position.tensor > 0 ? 1e9 : 0.1;
  }
  const dist::Grid& reducer_grid() {
    untied_grid_ = grid_;
    if (mistake_ == Mistake::kTiedEmbeddingNotReduced)
      for (dist::Grid::Shared& shared : untied_grid_.shared) shared.group = dist::Group();
    return untied_grid_;
  }
  const dist::Grid& optimizer_grid() {
    wrong_grid_ = grid_;
    if (mistake_ == Mistake::kNormCountedPerReplica) wrong_grid_.model = wrong_grid_.world;
    return wrong_grid_;
  }

  Mistake mistake_;
  const dist::Grid& grid_;
  dist::Grid wrong_grid_, untied_grid_;
  SmallModel model_;
  plan::Partition partition_;
  tensor::ParamSet params_;
  std::unique_ptr<pipeline::Stage> stage_;
  pipeline::Runner runner_;
  dist::GradReducer reducer_;
  optim::Optimizer optimizer_;
};

// Loss and norm of every step.
std::vector<double> run(SmallFamily family, const Layout& layout, Mistake mistake) {
  const auto train = [&](const dist::Grid& grid) {
    SmallTrainer trainer(family, grid, layout.sequence_parallel, mistake);
    std::vector<double> numbers;
    for (int64_t step = 0; step < kBugSteps; ++step)
      for (const double number : trainer.step(step)) numbers.push_back(number);
    return nlohmann::json(numbers).dump();
  };
  return nlohmann::json::parse(dist::run_ranks(layout.shape, train).at(0));
}

// The promise between layouts: loss within 1e-6, norm within 1e-5, at every one of these few steps.
bool is_same_model(const std::vector<double>& found, const std::vector<double>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(found[i] / wanted[i] - 1) <= (i % 2 == 0 ? 1e-6 : 1e-5))) return false;
  return found.size() == wanted.size();
}

struct BugCase {
  Mistake mistake;
  const char* name;
  Layout layout;
};
void PrintTo(const BugCase& value, std::ostream* out) { *out << value.name; }

using FamilyAndBug = std::tuple<SmallFamily, BugCase>;

class SeededBugs : public ::testing::TestWithParam<FamilyAndBug> {};

TEST_P(SeededBugs, AreSeenByTheComparisonWithOneProcess) {
  const auto& [family, bug] = GetParam();
  const std::vector<double> one = run(family, {}, Mistake::kNone);
  EXPECT_TRUE(is_same_model(run(family, bug.layout, Mistake::kNone), one)) << "without the mistake";
  EXPECT_FALSE(is_same_model(run(family, bug.layout, bug.mistake), one)) << "with the mistake";
}

std::string name_of(const ::testing::TestParamInfo<FamilyAndBug>& info) { return std::get<1>(info.param).name; }

const Layout kTensor{{.tensor = 2}}, kSequenceParallel{{.tensor = 2}, true}, kPipeline{{.pipeline = 2}},
    kData{{.data = 2}};

const auto kOfEveryFamily = ::testing::Values(
    BugCase{Mistake::kNormGradientsNotReduced, "NormGradientsNotReduced", kSequenceParallel},
    BugCase{Mistake::kClipOnFirstTensorRankOnly, "ClipOnFirstTensorRankOnly", kTensor},
    BugCase{Mistake::kTiedEmbeddingNotReduced, "TiedEmbeddingNotReduced", kPipeline},
    BugCase{Mistake::kTiedEmbeddingReducedTwice, "TiedEmbeddingReducedTwice", kPipeline},
    BugCase{Mistake::kDropoutDiffersOverTensorRanks, "DropoutDiffersOverTensorRanks", kTensor},
    BugCase{Mistake::kDropoutEqualOverReplicas, "DropoutEqualOverReplicas", kData},
    BugCase{Mistake::kNormCountedPerReplica, "NormCountedPerReplica", kData},
    BugCase{Mistake::kAdamStepLost, "AdamStepLost", kData}, BugCase{Mistake::kLayerMissing, "LayerMissing", kPipeline});

INSTANTIATE_TEST_SUITE_P(Gpt, SeededBugs, ::testing::Combine(::testing::Values(SmallFamily::kGpt), kOfEveryFamily),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Bert, SeededBugs, ::testing::Combine(::testing::Values(SmallFamily::kBert), kOfEveryFamily),
                         name_of);
INSTANTIATE_TEST_SUITE_P(T5, SeededBugs, ::testing::Combine(::testing::Values(SmallFamily::kT5), kOfEveryFamily),
                         name_of);
INSTANTIATE_TEST_SUITE_P(
    Own, SeededBugs,
    ::testing::Values(FamilyAndBug{SmallFamily::kGpt,
                                   {Mistake::kHeadNormGradientsNotReduced, "HeadNormGradientsNotReduced", kTensor}},
                      FamilyAndBug{SmallFamily::kT5,
                                   {Mistake::kEncoderGradientLost, "EncoderGradientLost", kPipeline}}),
    name_of);

}  // namespace
}  // namespace espalier::test
