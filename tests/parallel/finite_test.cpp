// NaN and infinity, planted where a run computes: none of them gets into the newest checkpoint, and a run that ends
// with one says so by its exit code.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>

#include "base/error.h"
#include "data/token_store.h"
#include "store/step_reader.h"
#include "tests/parallel/parity_runs.h"
#include "tests/support/long_version.h"
#include "train/finite_check.h"
#include "train/run.h"

namespace espalier::test {
namespace parallel_finite_test {

constexpr int64_t kSteps = 4;

enum class Where { kActivation, kGradient, kMomentBefore, kMomentAfter, kWeightBefore, kWeightAfter, kTokenBefore };
constexpr std::array kEverywhere = {Where::kActivation,  Where::kGradient,     Where::kMomentBefore,
                                    Where::kMomentAfter, Where::kWeightBefore, Where::kWeightAfter};

struct Plant {
  Where where = Where::kActivation;
  std::string param;
  float value = 0;
  int64_t first = kSteps, last = kSteps;
  int64_t token = 0;  // kTokenBefore: whose row of the words' embeddings it is
};

// Of what an activation passes through first, by the weight that spoils it.
const std::map<std::string, std::string> kOperations = {
    {"layers.0.self_attention.query_key_value.weight", "layers.0.self_attention.query_key_value"},
    {"layers.1.mlp.dense_4h_to_h.bias", "layers.1.mlp"},
    {"layers.1.post_attention_layernorm.weight", "layers.1.post_attention_layernorm"}};

// The last element: of query_key_value.weight it belongs to a value, which softmax cannot hide.
void put(const at::Tensor& values, float value) { values.reshape({-1}).narrow(0, values.numel() - 1, 1).fill_(value); }

class Planter : public train::Observer {
 public:
  Planter(train::Job& job, const Plant& plant) : job_(job), plant_(plant) {
    if (plant.where != Where::kGradient) return;
    at::addThreadLocalCallback(at::RecordFunctionCallback(at_scope).scopes({at::RecordScope::USER_SCOPE}));
    in_scope_ = this;
  }
  ~Planter() override {
    if (in_scope_ != this) return;
    in_scope_ = nullptr;
    at::clearThreadLocalCallbacks();
  }
  void before_step(int64_t step) override {
    now_ = step >= plant_.first && step <= plant_.last;
    if (!now_) return;
    job_.before_change();                      // a save of the step before may still read them
    if (plant_.where == Where::kActivation) {  // by a weight that is right again after the step
      each_weight([&](const at::Tensor& value) { before_.push_back(value.clone()), put(value, plant_.value); });
    }
    if (plant_.where == Where::kWeightBefore) plant_weight();
    if (plant_.where == Where::kMomentBefore) plant_moment();
    if (plant_.where == Where::kTokenBefore) plant_row();
  }
  void after_step(const report::StepReport&) override {
    if (!now_) return;
    job_.before_change();
    size_t number = 0;
    if (plant_.where == Where::kActivation) {
      each_weight([&](const at::Tensor& value) { value.copy_(before_[number++]); });
      before_.clear();
    }
    if (plant_.where == Where::kWeightAfter) plant_weight();
    if (plant_.where == Where::kMomentAfter) plant_moment();
  }

 private:
  // Between the backward passes and the update.
  static std::unique_ptr<at::ObserverContext> at_scope(const at::RecordFunction& scope) {
    if (in_scope_ == nullptr || !in_scope_->now_ || std::string(scope.name()) != "optimizer") return nullptr;
    for (const dist::OwnedPiece& piece : in_scope_->job_.reducer().pieces())
      if (piece.param->spec->name == in_scope_->plant_.param) put(piece.grad, in_scope_->plant_.value);
    return nullptr;
  }
  template <class Do>
  void each_weight(const Do& act) {
    for (const dist::OwnedPiece& piece : job_.reducer().pieces())
      if (piece.param->spec->name == plant_.param) act(piece.value.detach());
  }
  // In all copies: what one replica alone holds is found by the comparison of replicas before.
  void plant_weight() {
    for (tensor::Param& param : job_.params().params())
      if (param.spec->name == plant_.param && param.value.numel() > 0) put(param.value.detach(), plant_.value);
  }
  // In the rank that has the row.
  void plant_row() {
    for (tensor::Param& param : job_.params().params()) {
      if (param.spec->name != plant_.param || param.value.numel() == 0) continue;
      const int64_t rows = param.value.size(0), row = plant_.token - job_.grid().position.tensor * rows;
      if (row >= 0 && row < rows) param.value.detach()[row].fill_(plant_.value);
    }
  }
  void plant_moment() {
    job_.optimizer().visit_state([&](const optim::StatePiece& piece) {
      if (piece.param->spec->name == plant_.param && piece.kind == "exp_avg") put(piece.values, plant_.value);
    });
  }

  static thread_local Planter* in_scope_;
  train::Job& job_;
  const Plant plant_;
  bool now_ = false;
  std::vector<at::Tensor> before_;
};
thread_local Planter* Planter::in_scope_ = nullptr;

class Finite : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_token_files(*folder_ / "data", 200, 5);
  }
  static void TearDownTestSuite() { delete folder_; }

  // "0", or the exit code and the message.
  static std::string run(const std::string& save, const Plant& plant, const std::string& more,
                         const std::string& layout_text = "tp1") {
    const plan::Layout layout = plan::parse_layout(layout_text);
    const Words words = tiny_run(*folder_ / "data") +
                        split_blanks(concat("--hidden-size 32 --num-attention-heads 4 --num-threads 1 --eval-iters 0"
                                            " --seq-length 16 --max-position-embeddings 16 --train-samples ",
                                            8 * kSteps)) +
                        plan::layout_flags(layout, 2) + Words{"--save", *folder_ / save} + split_blanks(more);
    return dist::run_ranks(layout.grid, [&](const dist::Grid& grid) -> std::string {
      set_log_level(LogLevel::kQuiet);
      ParsedRun parsed(words, grid);
      try {
        train::run(parsed.config, parsed.table, "", grid,
                   [&](train::Job& job) { return std::make_unique<Planter>(job, plant); });
      } catch (const UserError& error) {
        return concat(static_cast<int>(error.code()), " ", error.what());
      }
      return "0";
    })[0];
  }
  static std::vector<int64_t> saved(const std::string& save) { return saved_steps(*folder_ / save); }
  static void expect_finite(const std::string& save, int64_t step) {
    store::StepReader reader(*folder_ / concat(save, "/step_0000000", step));
    size_t num_read = 0;
    for (const store::StoredTensor& tensor : reader.manifest().tensors) {
      ASSERT_EQ(store::to_string(tensor.dtype), "F32") << tensor.name;
      for (size_t block = 0; block < tensor.blocks.size(); ++block) {
        std::vector<float> values(tensor.blocks[block].bytes / sizeof(float));
        reader.read_block(tensor, block, values.data());
        num_read += values.size();
        for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << tensor.name;
      }
    }
    EXPECT_GT(num_read, 1000u);
  }
  static Words events(const std::string& save, const std::string& name) {
    Words details;
    std::ifstream file(*folder_ / (save + "/events.jsonl"));
    for (std::string line; std::getline(file, line);)
      if (const auto event = nlohmann::json::parse(line); event.at("event") == name)
        details.push_back(event.at("detail"));
    return details;
  }

  // Of a run whose last step has the plant and that saves each step.
  static void expect_older_newest(const Plant& plant, const std::string& more, const std::string& layout,
                                  const std::string& save) {
    SCOPED_TRACE(concat(layout, ", ", plant.param, ", ", static_cast<int>(plant.where), ", ", plant.value, " ", more));
    const std::string end = run(save, plant, "--save-interval 1 " + more, layout);
    EXPECT_EQ(end.find(concat(static_cast<int>(train::kNotFinite), " ")), 0u) << end;
    EXPECT_NE(end.find(concat("step ", kSteps)), std::string::npos) << end;
    if (plant.where == Where::kActivation) {
      EXPECT_NE(end.find(concat("first in the forward pass of sample")), std::string::npos) << end;
      EXPECT_NE(end.find(concat(": ", kOperations.at(plant.param), ", where element [")), std::string::npos) << end;
      EXPECT_NE(end.find(concat(" document ")), std::string::npos) << end;
      EXPECT_NE(end.find("(their documents are in spikes/step_00000004.txt)"), std::string::npos) << end;
    }
    // What was planted before a step that was made has spread to all weights. A gradient has a name only where the norm
    // is measured.
    const bool measured = plant.where == Where::kGradient && more != "--clip-grad 0";
    const bool names = measured || plant.where == Where::kMomentAfter || plant.where == Where::kWeightAfter;
    if (names) {
      EXPECT_NE(end.find(concat("'", plant.param)), std::string::npos) << end;
    }
    ASSERT_FALSE(saved(save).empty());
    EXPECT_EQ(saved(save).back(), kSteps - 1);
    expect_finite(save, kSteps - 1);
    std::filesystem::remove_all(*folder_ / save);
  }

  static TemporaryFolder* folder_;
};
TemporaryFolder* Finite::folder_ = nullptr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const char* const kParam = "layers.1.mlp.dense_4h_to_h.bias";

TEST_F(Finite, NoPlantGetsIntoTheNewestCheckpoint) {
  int number = 0;
  const auto values = in_suite_or_all<std::vector<float>>({kNan, -kInfinity}, {kNan, kInfinity, -kInfinity});
  for (const Where where : kEverywhere)
    for (const std::string param :
         {"layers.0.self_attention.query_key_value.weight", kParam, "layers.1.post_attention_layernorm.weight"})
      for (const float value : values)
        for (const std::string more : {"--clip-grad 1", "--clip-grad 0"}) {
          expect_older_newest({.where = where, .param = param, .value = value}, more, "tp1", "one");
          ++number;
        }
  EXPECT_EQ(number, in_suite_or_all(72, 108));
}

TEST_F(Finite, NorInAnyLayout) {
  for (const std::string layout : {"tp2sp", "pp2", "dp2zero1", "dp2zero2", "dp2zero3", "cp2"})
    for (const Where where : kEverywhere)
      expect_older_newest({.where = where, .param = kParam, .value = kNan}, "", layout, "many");
}

// A word that one document has, and no other: it is named, in the step that reads it, whatever the layout.
TEST_F(Finite, TheDocumentOfABadActivationIsNamed) {
  constexpr int kDocument = 13, kWord = 4113;
  {
    std::mt19937 random(3);
    data::TokenStoreWriter writer(*folder_ / "words", data::TokenType::kUint16);
    for (int document = 0; document < 20; ++document) {
      std::vector<int32_t> ids(21);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % 4000);
      if (document == kDocument) ids[9] = kWord;
      writer.add_sequence(ids);
      writer.end_document();
    }
    writer.finish();
  }
  for (const std::string layout : {"tp1", "tp2sp", "pp2", "dp2zero1", "cp2"}) {
    SCOPED_TRACE(layout);
    const Plant plant{
        .where = Where::kTokenBefore, .param = "word_embeddings.weight", .value = kNan, .first = 1, .token = kWord};
    const std::string end = run("word", plant,
                                concat("--untie-embeddings-and-output-weights --split 100,0,0 --clip-grad 0 "
                                       "--save-interval 100 --data-path ",
                                       *folder_ / "words"),
                                layout);
    EXPECT_EQ(end.find("17 "), 0u) << end;
    EXPECT_NE(end.find("'word_embeddings.weight' was not finite before this step; first in the forward pass"),
              std::string::npos)
        << end;
    EXPECT_NE(end.find(concat("document ", kDocument, " of ", *folder_ / "words: ")), std::string::npos) << end;
    if (layout == "tp1" || layout == "pp2") {
      EXPECT_NE(end.find(concat(" is from document ", kDocument, " of ")), std::string::npos) << end;
    }
    std::filesystem::remove_all(*folder_ / "word");
  }
}

// With clipping no step changes anything from there on, and none would end the run.
TEST_F(Finite, AWeightEndsTheRunAtTheFirstStepThatItSpoils) {
  for (const std::string layout : {"tp1", "dp2zero1", "pp2"}) {
    SCOPED_TRACE(layout);
    const Plant plant{.where = Where::kWeightBefore, .param = kParam, .value = kInfinity, .first = 2, .last = 2};
    const std::string end = run("spoilt", plant, "--save-interval 1", layout);
    EXPECT_EQ(end.find(concat("17 after step 2 '", kParam, "' holds NaN or infinity")), 0u) << end;
    EXPECT_EQ(saved("spoilt"), std::vector<int64_t>{1});
    std::filesystem::remove_all(*folder_ / "spoilt");
  }
}

TEST_F(Finite, ASaveWaitsForASoundStep) {
  const Plant plant{.where = Where::kActivation, .param = kParam, .value = kInfinity, .first = 2, .last = 2};
  EXPECT_EQ(run("waits", plant, "--save-interval 2"), "0");
  EXPECT_EQ(saved("waits"), (std::vector<int64_t>{3, 4}));
  for (const int64_t step : saved("waits")) expect_finite("waits", step);
  EXPECT_EQ(events("waits", "save put off"),
            Words{"the checkpoint of step 2 waits for a step with finite loss and norm"});
}

TEST_F(Finite, ARunThatEndsInNansSaysSinceWhen) {
  const Plant plant{.where = Where::kActivation, .param = kParam, .value = kNan, .first = 2, .last = kSteps};
  for (const std::string more : {"--save-interval 1", "--save-interval 1 --exit-interval 3"}) {
    const std::string end = run("since", plant, more);
    EXPECT_EQ(end.find("17 "), 0u) << end;
    EXPECT_NE(end.find("since step 2 (lm loss is not a number (NaN); "), std::string::npos) << end;
    EXPECT_NE(end.find("; samples 8 to 15 of the run (their documents are in spikes/step_00000002.txt)"),
              std::string::npos)
        << end;
    EXPECT_EQ(saved("since"), std::vector<int64_t>{1});
    EXPECT_EQ(events("since", "save put off").size(), 1u);
    std::filesystem::remove_all(*folder_ / "since");
  }
}

}  // namespace parallel_finite_test
}  // namespace espalier::test
