#include "data/order_fingerprint.h"

#include <gtest/gtest.h>

#include "base/format.h"
#include "data/gpt_dataset.h"
#include "data/internal/test_folder.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::TestFolder;
using test_files::write_numbered;

std::unique_ptr<const GptDataset> open_train(const std::vector<std::string>& path, int64_t num_samples,
                                             int64_t seed = 5, const std::string& split = "100,0,0") {
  DataSetOptions options;
  options.data_path = path;
  options.split = split;
  options.sequence_length = 6;
  options.train_samples = num_samples;
  options.seed = seed;
  return std::move(GptDataSets::open(options).train);
}

OrderFingerprint fingerprint(const GptDataset& dataset) { return order_fingerprint(dataset, "single"); }

// The places of the run, of those that both hold, at which the two read other ids.
std::vector<int64_t> places_that_differ(const GptDataset& a, const GptDataset& b) {
  std::vector<int64_t> places, ids_a(7), ids_b(7);
  for (int64_t place = 0; place < std::min(a.size(), b.size()); ++place) {
    a.sample(place, ids_a), b.sample(place, ids_b);
    if (ids_a != ids_b) places.push_back(place);
  }
  return places;
}

// A small set next to a large one: at some lengths of the run it takes another epoch and its samples change, which the
// fingerprint says exactly when reading all of both runs says it.
TEST(OrderFingerprint, DiffersExactlyWhenALongerRunReadsOtherSamples) {
  TestFolder folder;
  const std::vector<std::string> path = {"0.97", write_numbered(folder / "large", 800, 0), "0.03",
                                         write_numbered(folder / "small", 7, 90000)};
  int num_equal = 0, num_other = 0;
  const auto before = open_train(path, 150);
  for (int64_t num_samples = 151; num_samples < 700; num_samples += 11) {
    const auto after = open_train(path, num_samples);
    const std::vector<std::string> changes = order_changes(fingerprint(*before), fingerprint(*after));
    const std::vector<int64_t> places = places_that_differ(*before, *after);
    EXPECT_EQ(changes.empty(), places.empty()) << num_samples << ": " << join(changes, "\n");
    (places.empty() ? num_equal : num_other) += 1;
    if (changes.empty()) continue;
    EXPECT_EQ(changes.size(), 1u);
    EXPECT_EQ(changes[0].find(concat("data set 2 of 2, '", folder / "small",
                                     "': it was asked for 5 samples, which took "
                                     "1 epoch, and is asked for ")),
              0u)
        << changes[0];
  }
  EXPECT_GT(num_equal, 0);
  EXPECT_GT(num_other, 0);
}

TEST(OrderFingerprint, SixteenProbesOfTheBlendWouldNotHaveSeenIt) {
  TestFolder folder;
  const std::vector<std::string> path = {"0.97", write_numbered(folder / "large", 800, 0), "0.03",
                                         write_numbered(folder / "small", 7, 90000)};
  const auto before = open_train(path, 150);
  write_numbered(folder / "small", 7, 50000);
  const auto after = open_train(path, 150);
  EXPECT_LT(places_that_differ(*before, *after).size(), 10u) << "of " << before->size();
  EXPECT_EQ(order_changes(fingerprint(*before), fingerprint(*after)),
            std::vector<std::string>{concat("data set 2 of 2, '", folder / "small",
                                            "': it holds other tokens: the files were regenerated or replaced")});
  write_numbered(folder / "small", 8, 90000);
  const auto longer = open_train(path, 150);
  EXPECT_NE(
      order_changes(fingerprint(*before), fingerprint(*longer))[0].find("its documents were 0 to 7 and are 0 to 8"),
      std::string::npos);
}

TEST(OrderFingerprint, NamesEveryPartThatDiffers) {
  TestFolder folder;
  const std::string a = write_numbered(folder / "a", 50, 0), b = write_numbered(folder / "b", 40, 9000);
  const auto first = open_train({"0.5", a, "0.5", b}, 30);
  const OrderFingerprint saved = fingerprint(*first);
  const auto changes = [&](const std::unique_ptr<const GptDataset>& present) {
    return order_changes(saved, fingerprint(*present));
  };
  EXPECT_EQ(changes(open_train({"5", a, "5", b}, 30)), std::vector<std::string>{}) << "weights count as shares";
  EXPECT_EQ(changes(open_train({"0.5", a, "0.5", b}, 30, 6)), std::vector<std::string>{"the seed was 5 and is 6"});
  EXPECT_EQ(changes(open_train({"1", a}, 30)), std::vector<std::string>{"the number of data sets was 2 and is 1"});
  const std::vector<std::string> weights = changes(open_train({"0.25", a, "0.75", b}, 30));
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_NE(weights[0].find("its share of the blend was 0.5 and is 0.25"), std::string::npos) << weights[0];
  EXPECT_NE(weights[1].find("its share of the blend was 0.5 and is 0.75"), std::string::npos) << weights[1];
  const std::vector<std::string> swapped = changes(open_train({"0.5", b, "0.5", a}, 30));
  EXPECT_EQ(swapped.size(), 2u);
  const std::vector<std::string> split = changes(open_train({"0.5", a, "0.5", b}, 30, 5, "90,10,0"));
  EXPECT_NE(split[0].find("its documents were 0 to 50 and are 0 to 45"), std::string::npos) << split[0];
  OrderFingerprint cyclic = saved;
  cyclic.reading = "cyclic 1 x 1 of 31 samples";
  EXPECT_EQ(order_changes(saved, cyclic),
            std::vector<std::string>{"the way of reading was single and is cyclic 1 x 1 of 31 samples"});
  EXPECT_EQ(order_changes(cyclic, cyclic), std::vector<std::string>{});
}

// A longer run asks a validation set for more samples; that changes nothing of what the set is.
TEST(OrderFingerprint, TheContentOfASetIsComparedWithoutItsOrder) {
  TestFolder folder;
  const std::string a = write_numbered(folder / "a", 50, 0), b = write_numbered(folder / "b", 40, 9000);
  const OrderFingerprint saved = fingerprint(*open_train({"0.5", a, "0.5", b}, 30));
  const OrderFingerprint longer = fingerprint(*open_train({"0.5", a, "0.5", b}, 300));
  EXPECT_NE(order_changes(saved, longer), std::vector<std::string>{});
  EXPECT_EQ(content_changes(saved, longer), std::vector<std::string>{});
  EXPECT_EQ(content_changes(saved, fingerprint(*open_train({"1", a}, 30))),
            std::vector<std::string>{"the number of data sets was 2 and is 1"});
  const auto split = content_changes(saved, fingerprint(*open_train({"0.5", a, "0.5", b}, 30, 5, "90,10,0")));
  ASSERT_EQ(split.size(), 2U);
  EXPECT_EQ(split[0], concat("'", a, "': its documents were 0 to 50 and are 0 to 45"));
  write_numbered(folder / "b", 40, 5000);
  EXPECT_EQ(
      content_changes(saved, fingerprint(*open_train({"0.5", a, "0.5", b}, 30))),
      std::vector<std::string>{concat("'", b, "': it holds other tokens: the files were regenerated or replaced")});
}

TEST(OrderFingerprint, FilesMayMove) {
  TestFolder folder;
  const auto before = open_train({write_numbered(folder / "here", 30, 0)}, 30);
  std::filesystem::create_directories(folder / "there");
  const auto after = open_train({write_numbered(folder / "there/under another name", 30, 0)}, 30);
  EXPECT_EQ(order_changes(fingerprint(*before), fingerprint(*after)), std::vector<std::string>{});
}

TEST(OrderFingerprint, SurvivesAsText) {
  const OrderFingerprint fingerprint{
      33,
      4294967295,
      "cyclic 4 x 8 of 99 samples",
      {{"data/a set", 0.1 + 0.2, {3, 17}, 5, 2, 9, 0xfedcba9876543210u, 1, 0x8000000000000000u},
       {"data/line\nbreak", 1e-17, {0, 1}, 0, 1, 1, 0, 0, 0}},
      {},
      {}};
  const std::string text = to_text(fingerprint);
  EXPECT_TRUE(is_order_text(text));
  EXPECT_FALSE(is_order_text("0123456789abcdef"));
  const OrderFingerprint read = parse_order(text);
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(order_changes(fingerprint, read), std::vector<std::string>{});
  EXPECT_EQ(read.parts[0].weight, 0.1 + 0.2);
  EXPECT_EQ(read.parts[0].sizes_hash, 0xfedcba9876543210u);
  EXPECT_EQ(read.parts[0].prefix, "data/a set");
  EXPECT_EQ(read.seed, 4294967295);
}

TEST(OrderFingerprint, RefusesALineThatIsNotItsOwn) {
  const std::string head = "sample order, format 2\nlength 6 seed 5 reading single\n";
  EXPECT_EQ(parse_order(head).parts.size(), 0u);
  for (const std::string line : {"weight", "weight x", "weight 1 from 0 to 9 asked", "weight 1 from 0x to 9", "0"})
    EXPECT_NE(error_of([&] { parse_order(head + line + "\n"); }).find(concat("found the line '", line, "'")),
              std::string::npos);
  EXPECT_NE(error_of([] { parse_order("sample order, format 2\n"); }).find("expected 'length' and its value"),
            std::string::npos);
}

}  // namespace
}  // namespace espalier::data
