#include "eval/token_requests.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::eval {
namespace token_requests_test {

using Ids = std::vector<int32_t>;

class Encoding : public testing::Test {
 protected:
  std::vector<TokenRow> encode(Tokenization tokenization, const std::string& context, const std::string& continuation,
                               int64_t length = 100) const {
    return RequestEncoder(*tokenizer_, tokenization, kPrefix, length)
        .encode({.context = context, .continuation = continuation});
  }
  Ids ids(const std::string& text) const { return tokenizer_->encode(text); }

  static constexpr int32_t kPrefix = 4999;
  const std::unique_ptr<text::Tokenizer> tokenizer_ = text::open_tokenizer("tests/data/gpt2-tiny");
};

Ids joined(std::initializer_list<Ids> parts) {
  Ids all;
  for (const Ids& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST_F(Encoding, SeparateKeepsContextAndContinuationApart) {
  ASSERT_NE(ids("an other"), joined({ids("an"), ids(" o"), ids("ther")}));  // or the test shows nothing
  const std::vector<TokenRow> encoded = encode(Tokenization::kSeparate, "an o", "ther");
  ASSERT_EQ(encoded.size(), 1u);
  EXPECT_EQ(encoded[0].ids, joined({ids("an o"), ids("ther")}));
  EXPECT_EQ(encoded[0].num_predicted, static_cast<int64_t>(ids("ther").size()));
}

TEST_F(Encoding, JointPartsTheIdsWhereTheContextEnds) {
  const std::vector<TokenRow> encoded = encode(Tokenization::kJoint, "Question: a\nAnswer: ", "the other");
  EXPECT_EQ(encoded[0].ids, ids("Question: a\nAnswer: the other"));  // the blank goes over
  EXPECT_EQ(encoded[0].num_predicted, static_cast<int64_t>(ids(" the other").size()));
}

TEST_F(Encoding, WhatATextIsWrittenAfterLeavesRoomForIt) {
  RequestEncoder encoder(*tokenizer_, Tokenization::kJoint, kPrefix, 9);
  const auto row = [&](const std::string& context, int64_t max_tokens) {
    auto generation = std::make_shared<Generation>();
    generation->max_tokens = max_tokens;
    return encoder.encode({.kind = RequestKind::kGenerate, .context = context, .generation = generation}).at(0);
  };
  const std::string text = "one two three four five six seven eight nine ten ";
  const Ids whole = ids(text);
  ASSERT_GT(whole.size(), 9u);
  EXPECT_EQ(row(text, 5).ids, Ids(whole.end() - 4, whole.end()));
  EXPECT_EQ(row(text, 5).num_predicted, 0);
  EXPECT_EQ(row("the ", 5).ids, ids("the "));  // blanks stay
  EXPECT_EQ(row("", 5).ids, Ids{kPrefix});
  EXPECT_EQ(encoder.num_cut(), 2);
  EXPECT_THROW(row("the", 9), UserError);
}

// As lm_eval's hf model has it of a seq2seq: each part by itself, blanks at the end of the context to the continuation.
TEST_F(Encoding, AnEncoderReadsTheContextAlone) {
  RequestEncoder encoder(*tokenizer_, Tokenization::kJoint, kPrefix, 3, ContextReader::kEncoder);
  const auto row = [&](const std::string& context, const std::string& continuation) {
    return encoder.encode({.context = context, .continuation = continuation}).at(0);
  };
  const Ids whole = ids("one two three four five");
  ASSERT_GT(whole.size(), 3u);
  const TokenRow cut = row("one two three four five ", " the");
  EXPECT_EQ(cut.ids, joined({Ids(whole.end() - 3, whole.end()), ids("  the")}));
  EXPECT_EQ(cut.num_predicted, static_cast<int64_t>(ids("  the").size()));
  EXPECT_EQ(encoder.num_cut(), 1);
  EXPECT_EQ(row("", " the").ids, joined({{kPrefix}, ids(" the")}));
  EXPECT_THROW(row("the", " one two three four five"), UserError);
}

TEST_F(Encoding, AnEmptyContextIsThePrefix) {
  for (const Tokenization tokenization : {Tokenization::kSeparate, Tokenization::kJoint}) {
    const TokenRow row = encode(tokenization, "", " the")[0];
    EXPECT_EQ(row.ids, joined({{kPrefix}, ids(" the")}));
    EXPECT_EQ(row.num_predicted, 1);
  }
}

TEST_F(Encoding, RowsAreCutAtTheLeft) {
  const Ids whole = joined({ids("one two three four five six"), ids(" seven eight")});
  RequestEncoder encoder(*tokenizer_, Tokenization::kSeparate, kPrefix, 4);
  EXPECT_EQ(encoder.encode({.context = "a", .continuation = " b"})[0].ids.size(), 2u);
  EXPECT_EQ(encoder.num_cut(), 0);
  const TokenRow row = encoder.encode({.context = "one two three four five six", .continuation = " seven eight"})[0];
  EXPECT_EQ(row.ids, Ids(whole.end() - 5, whole.end()));
  EXPECT_EQ(encoder.num_cut(), 1);
}

TEST_F(Encoding, AnEmptyTextHasNoWindow) {
  RequestEncoder encoder(*tokenizer_, Tokenization::kJoint, kPrefix, 7);
  EXPECT_TRUE(encoder.encode({.kind = RequestKind::kRolling}).empty());
}

TEST_F(Encoding, AContinuationMustFit) {
  const auto refusal = [&](const std::string& continuation) {
    try {
      encode(Tokenization::kSeparate, "a", continuation, 2);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(refusal(""), "the continuation '' has 0 ids; from 1 to 2, the sequence length, can be scored");
  EXPECT_EQ(refusal(" the and of"),
            "the continuation ' the and of' has 3 ids; from 1 to 2, the sequence length, can be scored");
}

// What lm_eval's get_rolling_token_windows and make_disjoint_window make of ids 0, 1, ... with prefix 99 and length 4.
TEST(RollingWindows, AreTheHarnesses) {
  text::TokenizerOptions options;
  options.type = "NullTokenizer";
  options.vocab_size = 100;
  const std::unique_ptr<text::Tokenizer> tokenizer = text::load_tokenizer(options);
  RequestEncoder encoder(*tokenizer, Tokenization::kJoint, 99, 4);
  using Rows = std::vector<std::pair<Ids, int64_t>>;
  const auto rows = [&](const std::string& text) {
    Rows found;
    for (const TokenRow& row : encoder.encode({.kind = RequestKind::kRolling, .continuation = text}))
      found.emplace_back(row.ids, row.num_predicted);
    return found;
  };
  EXPECT_EQ(rows("0"), (Rows{{{99, 0}, 1}}));
  EXPECT_EQ(rows("0 1 2 3"), (Rows{{{99, 0, 1, 2, 3}, 4}}));
  EXPECT_EQ(rows("0 1 2 3 4"), (Rows{{{99, 0, 1, 2, 3}, 4}, {{0, 1, 2, 3, 4}, 1}}));
  EXPECT_EQ(rows("0 1 2 3 4 5 6 7 8 9"), (Rows{{{99, 0, 1, 2, 3}, 4}, {{3, 4, 5, 6, 7}, 4}, {{5, 6, 7, 8, 9}, 2}}));
}

}  // namespace token_requests_test
}  // namespace espalier::eval
