#include "data/splits.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/support/npy.h"
#include "tests/support/oracle.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Splits, BoundariesEqualMegatrons) {
  const Json oracle = Json::parse(test::read_bytes(test::find_data("megatron-oracle/gpt_index/splits.json")));
  for (const Json& row : oracle["train_valid_test"]) {
    SCOPED_TRACE(row.dump());
    const auto ranges = split_documents(parse_split(row[0]), row[1]);
    for (int set = 0; set < 3; ++set)
      EXPECT_EQ(ranges[set], (DocumentRange{row[2][set], row[2][set + 1]})) << "set " << set;
  }
  for (const Json& row : oracle["by_range"]) {
    SCOPED_TRACE(row.dump());
    EXPECT_EQ(documents_in_range(parse_fraction_range(row[0]), row[1]), (DocumentRange{row[2][0], row[2][1]}));
  }
}

TEST(Splits, OneNumberGivesAllToTrain) {
  const auto ranges = split_documents(parse_split("100"), 33);
  EXPECT_EQ(ranges[0], (DocumentRange{0, 33}));
  EXPECT_EQ(ranges[2].size(), 0);
}

// Two halves of 3 round up to 2 each; the excess of 1 would put the end of train at -1.
TEST(Splits, BoundaryBelowZeroBecomesZero) {
  const auto ranges = split_documents(parse_split("0,1,1"), 3);
  EXPECT_EQ(ranges[0], (DocumentRange{0, 0}));
  EXPECT_EQ(ranges[1], (DocumentRange{0, 1}));
  EXPECT_EQ(ranges[2], (DocumentRange{1, 3}));
}

TEST(Splits, WrongTextIsQuoted) {
  EXPECT_EQ(refusal([] { parse_split("949,x,1"); }), "--split '949,x,1': 'x' is not a number");
  EXPECT_EQ(refusal([] { parse_split("9,-1,1"); }), "--split '9,-1,1': -1 is negative. Use weights of 0 or more.");
  EXPECT_EQ(refusal([] { parse_split("0,0,0"); }),
            "--split '0,0,0' gives no documents to any set. Use for example 949,50,1.");
  EXPECT_EQ(refusal([] { parse_split("90,5,3,2"); }),
            "--split '90,5,3,2' has 4 parts, and there are three sets: train, valid, test. Write 90,5,3.");
  EXPECT_EQ(refusal([] { parse_fraction_range("0.5"); }), "range '0.5' is not of the form a:b, for example 0:0.949");
  EXPECT_EQ(refusal([] { parse_fraction_range("0.5:0.5"); }),
            "range '0.5:0.5' must go up, from 0 to at most 1, for example 0:0.949");
  EXPECT_EQ(refusal([] { parse_fraction_range("0:1.5"); }),
            "range '0:1.5' must go up, from 0 to at most 1, for example 0:0.949");
}

}  // namespace
}  // namespace espalier::data
