// Mistakes that other trainers have shipped, made here on purpose: the comparison with one process must see each.
//
// A small trainer is put together from the product's parts, with one knob per mistake; the product has none of them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "dist/local_ranks.h"
#include "dist/reduce.h"
#include "models/gpt/model.h"
#include "optim/optimizer.h"
#include "pipeline/runner.h"
#include "plan/partition.h"
#include "plan/stage_params.h"

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
};

constexpr int64_t kBugSteps = 3, kSequence = 16, kVocabulary = 61, kLayers = 4, kRows = 4;

families::GptConfig model_config() {
  families::GptConfig config;
  config.num_layers = kLayers;
  config.hidden_size = 24;
  config.ffn_hidden_size = 40;
  config.num_attention_heads = 4;
  config.num_query_groups = 2;
  config.kv_channels = 6;
  config.qk_layernorm = true;
  config.vocab_size = config.padded_vocab_size = kVocabulary;
  config.position_embedding = families::PositionEmbedding::kAlibi;
  config.embed_layernorm = true;
  config.hidden_dropout = 0.1;
  config.attention_dropout = 0;
  return config;
}

// Row `number` of the run: ids that depend on it alone.
tensor::Batch batch_of(int64_t number) {
  std::mt19937 random(static_cast<unsigned>(number) + 99);
  const at::Tensor text = at::empty({1, kSequence + 1}, at::kLong);
  for (int64_t at = 0; at <= kSequence; ++at) text.data_ptr<int64_t>()[at] = random() % kVocabulary;
  tensor::Batch batch;
  batch.sample_numbers = {number};
  batch.ids = text.narrow(1, 0, kSequence).contiguous();
  batch.labels = text.narrow(1, 1, kSequence).contiguous();
  batch.loss_mask = at::ones({1, kSequence});
  batch.positions = at::arange(kSequence, at::kLong).view({1, kSequence});
  return batch;
}

struct Layout {
  spec::GridShape shape;
  bool sequence_parallel = false;
};

// What one rank trains with.
class SmallTrainer {
 public:
  SmallTrainer(const dist::Grid& true_grid, bool sequence_parallel, Mistake mistake)
      : mistake_(mistake),
        grid_(true_grid),
        config_(model_config()),
        partition_(plan::partition_evenly(kLayers, grid_.shape.pipeline, 1)),
        params_(plan::stage_params(specs(), partition_, grid_.position.pipeline), grid_.tensor_shard(), at::kFloat,
                true),
        model_(nn::LayerBuilder{params_, grid_, sequence_parallel}, config_, part(), {{}, dropout_seed()}),
        runner_({&model_}, grid_.pipeline, params_.grad_queue()),
        reducer_(params_, reducer_grid(),
                 {.sequence_parallel = sequence_parallel && mistake != Mistake::kNormGradientsNotReduced}),
        optimizer_(params_, {.weight_decay = 0.1, .clip_grad = clip()}, optimizer_grid(), &reducer_) {
    params_.initialize(5, [&](tensor::Param& param, const at::Tensor& fp32) { optimizer_.set_master(param, fp32); });
  }

  // Loss and norm of a step.
  std::vector<double> step(int64_t number) {
    const int64_t micro_batches = kRows / grid_.shape.data;
    std::vector<tensor::Batch> batches;
    for (int64_t m = 0; m < micro_batches; ++m) {
      batches.push_back(batch_of(number * kRows + m * grid_.shape.data + grid_.position.data));
      if (mistake_ == Mistake::kDropoutEqualOverReplicas) batches.back().sample_numbers[0] = m;
    }
    reducer_.begin_step(micro_batches);
    const auto schedule = plan::schedule_1f1b(grid_.shape.pipeline, grid_.position.pipeline, micro_batches);
    const auto totals = runner_.train(
        schedule, batches, [](const pipeline::LossTerm&) { return 1.0 / static_cast<double>(kRows * kSequence); });
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
    std::vector<spec::ParamSpec> specs = families::gpt_params(config_);
    if (mistake_ == Mistake::kHeadNormGradientsNotReduced)
      for (spec::ParamSpec& spec : specs) spec.use_is_split = false;
    return specs;
  }
  plan::DepthRange part() const {
    plan::DepthRange part = partition_.part(grid_.position.pipeline, 0);
    if (mistake_ == Mistake::kLayerMissing && part.contains(0)) part.end -= 1;
    return part;
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
  families::GptConfig config_;
  plan::Partition partition_;
  tensor::ParamSet params_;
  models::GptModel model_;
  pipeline::Runner runner_;
  dist::GradReducer reducer_;
  optim::Optimizer optimizer_;
};

// Loss and norm of every step.
std::vector<double> run(const Layout& layout, Mistake mistake) {
  const auto train = [&](const dist::Grid& grid) {
    SmallTrainer trainer(grid, layout.sequence_parallel, mistake);
    std::vector<double> numbers;
    for (int64_t step = 0; step < kBugSteps; ++step)
      for (const double number : trainer.step(step)) numbers.push_back(number);
    return nlohmann::json(numbers).dump();
  };
  dist::LocalRanksOptions options;
  return nlohmann::json::parse(dist::run_ranks(layout.shape, train, options).at(0));
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

class SeededBugs : public ::testing::TestWithParam<BugCase> {};

TEST_P(SeededBugs, AreSeenByTheComparisonWithOneProcess) {
  const std::vector<double> one = run({}, Mistake::kNone);
  EXPECT_TRUE(is_same_model(run(GetParam().layout, Mistake::kNone), one)) << "without the mistake";
  EXPECT_FALSE(is_same_model(run(GetParam().layout, GetParam().mistake), one)) << "with the mistake";
}

const Layout kTensor{{.tensor = 2}}, kSequenceParallel{{.tensor = 2}, true}, kPipeline{{.pipeline = 2}},
    kData{{.data = 2}};

INSTANTIATE_TEST_SUITE_P(
    , SeededBugs,
    ::testing::Values(BugCase{Mistake::kNormGradientsNotReduced, "NormGradientsNotReduced", kSequenceParallel},
                      BugCase{Mistake::kHeadNormGradientsNotReduced, "HeadNormGradientsNotReduced", kTensor},
                      BugCase{Mistake::kClipOnFirstTensorRankOnly, "ClipOnFirstTensorRankOnly", kTensor},
                      BugCase{Mistake::kTiedEmbeddingNotReduced, "TiedEmbeddingNotReduced", kPipeline},
                      BugCase{Mistake::kTiedEmbeddingReducedTwice, "TiedEmbeddingReducedTwice", kPipeline},
                      BugCase{Mistake::kDropoutDiffersOverTensorRanks, "DropoutDiffersOverTensorRanks", kTensor},
                      BugCase{Mistake::kDropoutEqualOverReplicas, "DropoutEqualOverReplicas", kData},
                      BugCase{Mistake::kNormCountedPerReplica, "NormCountedPerReplica", kData},
                      BugCase{Mistake::kAdamStepLost, "AdamStepLost", kData},
                      BugCase{Mistake::kLayerMissing, "LayerMissing", kPipeline}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace espalier::test
