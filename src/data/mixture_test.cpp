// Mixtures in stages, against plain loops over the same rules.
#include "data/mixture.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "base/format.h"
#include "data/gpt_dataset.h"
#include "data/internal/test_folder.h"
#include "data/mixture_table.h"
#include "data/sampler.h"

namespace espalier::data {
namespace mixture_test {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_numbered;

constexpr int64_t kLength = 6;

struct StagedRun {
  std::vector<std::string> path;
  std::vector<std::string> stages;
  int64_t num_samples = 0;
  Packing packing = Packing::kNone;

  std::unique_ptr<const GptDataset> open() const {
    DataSetOptions options;
    options.data_path = path;
    options.data_stages = stages;
    options.split = "100,0,0";
    options.sequence_length = kLength;
    options.train_samples = num_samples;
    options.seed = 5;
    options.packing = packing;
    options.pad_id = 7;
    return GptDataSets::open_train(options);
  }
};

using Where = std::tuple<std::string, int64_t, int64_t>;  // file, document, offset

// What the samples of a run from `first` to `end` are made of.
std::map<Where, int> pieces_of(const GptDataset& dataset, int64_t first, int64_t end) {
  std::map<Where, int> counts;
  for (int64_t sample = first; sample < end; ++sample)
    for (const SamplePiece& piece : dataset.pieces(sample))
      ++counts[{piece.store->prefix(), piece.sequence, piece.offset}];
  return counts;
}

struct PlainStage {
  int64_t first = 0;
  std::vector<std::string> names;
  std::vector<double> weights;
};

// The sources of each sample of a run and the numbers that they have there, by the definition: of those of the stage
// the one furthest after its share comes next, and takes its own next sample.
std::vector<std::pair<std::string, int64_t>> plain_mixture(const std::vector<PlainStage>& stages, int64_t num_samples) {
  std::vector<std::pair<std::string, int64_t>> all;
  std::map<std::string, int64_t> next;
  for (size_t at = 0; at < stages.size(); ++at) {
    const int64_t end = at + 1 < stages.size() ? stages[at + 1].first : num_samples;
    double sum = 0;
    for (const double weight : stages[at].weights) sum += weight;
    std::vector<double> counts(stages[at].names.size());
    for (int64_t in_stage = 0; in_stage < end - stages[at].first; ++in_stage) {
      size_t best = 0;
      const double so_far = in_stage == 0 ? 1 : static_cast<double>(in_stage);
      const auto lag = [&](size_t set) { return stages[at].weights[set] / sum * so_far - counts[set]; };
      for (size_t set = 1; set < counts.size(); ++set)
        if (lag(set) > lag(best)) best = set;
      counts[best] += 1;
      all.emplace_back(stages[at].names[best], next[stages[at].names[best]]++);
    }
  }
  return all;
}

class MixtureOfFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    write_numbered(folder_ / "web", 200, 0);
    write_numbered(folder_ / "code", 90, 100000);
    write_numbered(folder_ / "maths", 33, 200000);
  }
  std::string web() const { return folder_ / "web"; }
  std::string code() const { return folder_ / "code"; }
  std::string maths() const { return folder_ / "maths"; }
  StagedRun run() const {
    return {{"0.75", web(), "0.25", code()},
            {concat("97 samples: 0.5 ", code(), ", 0.25 ", maths(), ", 0.25 ", web()), concat("131 samples: ", maths()),
             concat("1200 tokens: 0.125 ", maths(), ", 0.875 ", web())},
            260};
  }
  std::vector<PlainStage> plain() const {
    return {{0, {web(), code()}, {0.75, 0.25}},
            {97, {code(), maths(), web()}, {0.5, 0.25, 0.25}},
            {131, {maths()}, {1}},
            {200, {maths(), web()}, {0.125, 0.875}}};
  }
  TestFolder folder_;
};

TEST_F(MixtureOfFiles, EverySampleIsTheNextOfItsSource) {
  const auto dataset = run().open();
  const auto expected = plain_mixture(plain(), 260);
  ASSERT_EQ(dataset->size(), 260);
  for (int64_t sample = 0; sample < 260; ++sample) {
    const BlendIndex::Place place = dataset->place(sample);
    const auto& [name, number] = expected[static_cast<size_t>(sample)];
    EXPECT_EQ(dataset->parts()[static_cast<size_t>(place.set)].store->prefix(), name) << sample;
    EXPECT_EQ(place.sample, number) << sample;
    EXPECT_EQ(dataset->mixture().sample_at(place), sample);
  }
}

// The oracle: each source alone, as a run without stages reads it, as far as the plain mixture has come in it. Every
// source is read less than once, so that one epoch of it alone says it all.
TEST_F(MixtureOfFiles, PiecesAreThoseOfEachSourceAlone) {
  const auto expected_places = plain_mixture(plain(), 260);
  std::map<std::string, int64_t> read;
  std::map<Where, int> expected;
  for (const auto& [name, number] : expected_places) ++read[name];
  for (const auto& [name, count] : read) {
    const auto alone = StagedRun{{name}, {}, 1}.open();
    ASSERT_GE(alone->size(), name == maths() ? 0 : count) << name;
    for (const auto& [where, times] : pieces_of(*alone, 0, std::min(count, alone->size()))) expected[where] += times;
  }
  std::map<Where, int> found = pieces_of(*run().open(), 0, 260);
  // Of maths more than an epoch is read; what comes after the first is checked below.
  for (auto* counts : {&found, &expected})
    std::erase_if(*counts, [&](const auto& entry) { return std::get<0>(entry.first) == maths(); });
  EXPECT_EQ(found, expected);
}

// Epochs after the first cover the source as often as they are many: every token but the few that fill no sample.
TEST_F(MixtureOfFiles, FurtherEpochsReadEveryDocumentAgain) {
  const auto dataset = StagedRun{{web()}, {concat("10 samples: ", maths())}, 10 + 3 * 38}.open();
  const int64_t source = dataset->place(10).set;
  const GptDataset::Part& part = dataset->parts()[static_cast<size_t>(source)];
  const auto& orders = part.order.orders();
  ASSERT_GE(orders.size(), 3u);
  for (const auto& order : orders) {
    std::map<int64_t, int64_t> seen;  // tokens of each document
    std::vector<DocumentSpan> spans;
    int64_t tokens = 0;
    for (int64_t sample = 0; sample < order->size(); ++sample) {
      order->spans(sample, spans);
      for (const DocumentSpan& span : spans) seen[span.document] += span.length, tokens += span.length;
    }
    EXPECT_EQ(order->num_epochs(), 1);
    EXPECT_GE(tokens, order->tokens_per_epoch() - kLength);
    EXPECT_GE(seen.size(), 27u);
  }
  std::vector<DocumentSpan> first, second;
  orders[0]->spans(0, first), orders[1]->spans(0, second);
  EXPECT_NE(first, second);
}

// Stages that are added, dropped or changed later move nothing before them, whatever that does to the epochs.
TEST_F(MixtureOfFiles, WhatALaterStageSaysChangesNothingBeforeIt) {
  std::mt19937 random(3);
  std::vector<int64_t> ids(kLength + 1), other(kLength + 1);
  for (const Packing packing : {Packing::kNone, Packing::kBestFit}) {
    StagedRun plain_run{{"0.75", web(), "0.25", code()}, {}, 400, packing};
    const auto without = plain_run.open();
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t first = 1 + static_cast<int64_t>(random() % 300), second = first + 1 + random() % 99;
      StagedRun staged = plain_run;
      staged.stages = {
          concat(first, " samples: ", 1 + random() % 9, " ", maths(), ", ", 1 + random() % 9, " ", code())};
      const auto with_one = staged.open();
      staged.stages.push_back(concat(second, " samples: ", web()));
      const auto with_two = staged.open();
      for (int64_t sample = 0; sample < second; ++sample) {
        with_one->sample(sample, ids), with_two->sample(sample, other);
        ASSERT_EQ(ids, other) << sample << " of " << second;
        if (sample >= first) continue;
        without->sample(sample, other);
        ASSERT_EQ(ids, other) << sample << " of " << first;
      }
    }
  }
}

// Twenty runs that stop at a random step and go on with another number of replicas read together what one run reads.
TEST_F(MixtureOfFiles, AnyStepAndAnyReplicasReadTheSameSamples) {
  std::mt19937 random(11);
  const auto dataset = run().open();
  const int64_t batch = 12;
  const std::map<Where, int> straight = pieces_of(*dataset, 0, 252);
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t stop = 1 + static_cast<int64_t>(random() % 20);
    const int64_t before = std::array{1, 2, 3, 4, 6, 12}[random() % 6],
                  after = std::array{1, 2, 3, 4, 6, 12}[random() % 6];
    std::map<Where, int> found;
    for (int64_t step = 0; step < 21; ++step) {
      const auto resumed = step == stop ? run().open() : nullptr;  // a new process opens the data again
      const GptDataset& source = resumed ? *resumed : *dataset;
      const int64_t replicas = step < stop ? before : after;
      for (int64_t replica = 0; replica < replicas; ++replica)
        for (int64_t row = 0; row < batch / replicas; ++row) {
          const int64_t sample = step * batch + row * replicas + replica;  // micro-batches of one sample
          for (const auto& [where, times] : pieces_of(source, sample, sample + 1)) found[where] += times;
        }
    }
    EXPECT_EQ(found, straight) << "stopped at " << stop << ", " << before << " replicas, then " << after;
  }
}

TEST_F(MixtureOfFiles, ASourceThatComesBackGoesOnWhereItWas) {
  const auto dataset = StagedRun{{web()}, {concat("50 samples: ", code()), concat("80 samples: ", web())}, 120}.open();
  const auto alone = StagedRun{{web()}, {}, 120}.open();
  for (const auto& [sample, of_web] : {std::pair<int64_t, int64_t>{49, 49}, {80, 50}, {119, 89}})
    EXPECT_EQ(pieces_of(*dataset, sample, sample + 1), pieces_of(*alone, of_web, of_web + 1)) << sample;
}

TEST_F(MixtureOfFiles, DocumentsAreFoundInTheirStages) {
  const auto dataset = run().open();
  const int64_t source = 2;  // maths
  for (const int64_t document : {0, 7, 32}) {
    std::vector<std::pair<int64_t, SamplePiece>> expected;
    for (int64_t sample = 0; sample < dataset->size(); ++sample)
      for (const SamplePiece& piece : dataset->pieces(sample))
        if (piece.store->prefix() == maths() && piece.sequence == document) expected.emplace_back(sample, piece);
    std::vector<std::pair<int64_t, SamplePiece>> found;
    for (const FoundPiece& one :
         dataset->find(dataset->traced_files()[static_cast<size_t>(source)], {document, document + 1}))
      found.emplace_back(one.number, one.piece);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first, a.second.at) < std::pair(b.first, b.second.at);
    });
    EXPECT_EQ(found, expected) << document;
  }
}

TEST_F(MixtureOfFiles, TheTableSaysTokensAndEpochsOfEverySourceAndStage) {
  DataSetOptions options;
  options.data_path = run().path, options.data_stages = run().stages, options.split = "100,0,0";
  options.sequence_length = kLength, options.train_samples = 260, options.seed = 5;
  const std::vector<MixtureRow> rows = planned_mixture(options);
  const auto places = plain_mixture(plain(), 260);
  const std::map<std::string, int64_t> tokens = {{web(), 0}, {code(), 0}, {maths(), 0}};
  std::map<std::string, double> per_epoch;
  for (const auto& [name, zero] : tokens) {
    const TokenStore store(name);
    for (int64_t document = 0; document < store.num_sequences(); ++document)
      per_epoch[name] += static_cast<double>(store.size(document));
  }
  ASSERT_EQ(rows.size(), 8u);
  for (const MixtureRow& row : rows) {
    int64_t in_stage = 0, until = 0;
    for (int64_t sample = 0; sample < row.first_sample + row.num_samples; ++sample)
      if (places[static_cast<size_t>(sample)].first == row.prefix) ++until, in_stage += sample >= row.first_sample;
    EXPECT_EQ(row.samples_read, in_stage) << row.source;
    EXPECT_EQ(row.tokens_read, in_stage * kLength);
    EXPECT_DOUBLE_EQ(row.epochs_after, static_cast<double>(until * kLength) / per_epoch[row.prefix]);
  }
  const std::string table = mixture_table(rows);
  EXPECT_NE(table.find("stage 3, 69 samples from 131 on:\n  maths  100.00 %"), std::string::npos) << table;
}

TEST_F(MixtureOfFiles, WhatIsWrongWithAStageIsSaid) {
  const auto refusal = [&](const std::vector<std::string>& stages) {
    StagedRun staged{{web()}, stages, 100};
    return error_of([&] { staged.open(); });
  };
  EXPECT_NE(refusal({"40: " + code()}).find("a stage that begins after 40 steps: how many samples they read is not"),
            std::string::npos);
  EXPECT_NE(refusal({code()}).find("does not say where the stage begins"), std::string::npos);
  EXPECT_NE(refusal({"-3 samples: " + code()}).find("'-3 samples' does not say where a stage begins"),
            std::string::npos);
  EXPECT_NE(refusal({"3 epochs: " + code()}).find("'3 epochs' does not say where a stage begins"), std::string::npos);
  EXPECT_NE(refusal({"9 samples: " + code() + ", " + web()}).find("has no weight, and the stage has 2 data sets"),
            std::string::npos);
  EXPECT_NE(refusal({"9 samples: 0 " + code() + ", 1 " + web()}).find("weight 0 is not above 0"), std::string::npos);
  EXPECT_NE(refusal({"9 samples: " + code(), "9 samples: " + web()}).find("two stages begin at sample 9"),
            std::string::npos);
  EXPECT_NE(refusal({"9 samples: " + code(), "8 samples: " + web()})
                .find("the stage from sample 8 on comes after the one from sample 9 on"),
            std::string::npos);
  EXPECT_NE(refusal({"9 samples: " + (folder_ / "none")}).find("--data-stages: "), std::string::npos);
}

// A change of what has been read is told with its stage and place; of what has not, nothing is.
TEST_F(MixtureOfFiles, FingerprintsTellTheStageThatChanged) {
  const auto order_of = [&](const std::vector<std::string>& stages, int64_t num_samples = 300) {
    return parse_order(
        to_text(order_fingerprint(*StagedRun{{"0.75", web(), "0.25", code()}, stages, num_samples}.open(), "single")));
  };
  const std::string first = concat("100 samples: 0.5 ", code(), ", 0.5 ", maths()), second = "200 samples: " + web();
  const OrderFingerprint none = order_of({}), one = order_of({first}), two = order_of({first, second});
  using Lines = std::vector<std::string>;
  EXPECT_EQ(order_changes(none, one, 100), Lines{});
  EXPECT_EQ(order_changes(one, two, 200), Lines{});
  EXPECT_EQ(order_changes(two, none, 100), Lines{});
  EXPECT_EQ(order_changes(none, one, 101),
            Lines{concat("stage 2: there was none, and now there is one from sample 100 on: 0.5 ", code(), ", 0.5 ",
                         maths())});
  EXPECT_EQ(order_changes(two, one, 201), Lines{concat("stage 3: it is gone; it was from sample 200 on: 1 ", web())});
  const OrderFingerprint later = order_of({concat("110 samples: 0.5 ", code(), ", 0.5 ", maths())});
  EXPECT_EQ(order_changes(one, later, 105)[0],
            concat("stage 2: it is gone; it was from sample 100 on: 0.5 ", code(), ", 0.5 ", maths()));
  EXPECT_EQ(order_changes(one, later, 150), Lines{"stage 2: it began at sample 100 and begins at sample 110"});
  const OrderFingerprint weights = order_of({concat("100 samples: 0.75 ", code(), ", 0.25 ", maths())});
  EXPECT_EQ(order_changes(one, weights, 150),
            (Lines{concat("stage 2: data set 1 of 2, '", code(), "': its share of the blend was 0.5 and is 0.75"),
                   concat("stage 2: data set 2 of 2, '", maths(), "': its share of the blend was 0.5 and is 0.25")}));
  const OrderFingerprint other = order_of({concat("100 samples: 0.5 ", code(), ", 0.5 ", web())});
  EXPECT_NE(order_changes(one, other, 150).at(0).find("stage 2: data set 2 of 2, '"), std::string::npos);
  write_numbered(folder_ / "maths", 34, 200000);
  EXPECT_NE(order_changes(one, order_of({first}), 150).at(0).find("': its documents were 0 to 33 and are 0 to 34"),
            std::string::npos);
  EXPECT_EQ(order_changes(one, order_of({first}), 90), Lines{});
}

TEST(LengthStages, AreComparedAsFarAsTheRunHasCome) {
  OrderFingerprint saved, present;
  saved.lengths = {{0, 512}, {1000, 1024}};
  present.lengths = {{0, 512}, {1200, 2048}};
  EXPECT_EQ(order_changes(saved, parse_order(to_text(present)), 1000), std::vector<std::string>{});
  EXPECT_EQ(order_changes(saved, parse_order(to_text(present)), 1001),
            std::vector<std::string>{"the length of sequences was 512 from sample 0 on, 1024 from sample 1,000 on and "
                                     "is 512 from sample 0 on"});
}

}  // namespace mixture_test
}  // namespace espalier::data
