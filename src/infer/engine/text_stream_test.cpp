#include "infer/engine/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "infer/engine/toy_model_test.h"

namespace espalier::infer {
namespace text_stream_test {

using Ids = std::vector<int32_t>;
const toy::ToyTokenizer kTokenizer = toy::tokenizer();

struct Streamed {
  std::vector<std::string> pieces;
  std::string text;
  std::optional<size_t> stop;
};

Streamed streamed(const Ids& context, const Ids& ids, const std::vector<std::string>& stops = {}) {
  TextStream stream(kTokenizer, context, stops);
  Streamed result;
  const auto take = [&](const TextPiece& piece) {
    result.pieces.push_back(piece.text);
    result.text += piece.text;
    result.stop = piece.stop;
  };
  for (size_t at = 0; at < ids.size() && !result.stop; ++at) take(stream.push(ids[at]));
  if (!result.stop) take(stream.finish());
  return result;
}

TEST(TextStream, ACharacterComesWhole) {
  EXPECT_EQ(streamed({0}, {1, 6, 7, 8, 0}).pieces, std::vector<std::string>({"b", "", "", "\u20AC", "a", ""}));
  EXPECT_EQ(streamed({}, {9, 10}).pieces, std::vector<std::string>({"", "\U0001F600", ""}));
  // "x" and the first byte are one id.
  EXPECT_EQ(streamed({}, {14, 7, 8}).pieces, std::vector<std::string>({"x", "", "\u20AC", ""}));
}

TEST(TextStream, ACharacterThatTheContextBeginsBelongsToTheText) {
  EXPECT_EQ(streamed({0, 6, 7}, {8, 1}).text, "\u20ACb");
  EXPECT_EQ(streamed({0, 6, 7}, {0, 1}).text, "ab");
}

TEST(TextStream, BytesThatNeverFormACharacterAreReplacedInTime) {
  EXPECT_EQ(streamed({}, {0, 6}).text, "a\uFFFD");
  const Streamed broken = streamed({}, Ids(33, 11));
  std::string expected;
  for (int n = 0; n < 33; ++n) expected += "\uFFFD";
  EXPECT_EQ(broken.text, expected);
  EXPECT_EQ(broken.pieces[20], "\uFFFD");  // not held until the end
}

TEST(TextStream, PiecesMakeTheTextOfAllIds) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    Ids context(random() % 4), ids(random() % 12);
    for (int32_t& id : context) id = static_cast<int32_t>(random() % 6);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % toy::kVocabulary);
    ASSERT_EQ(streamed(context, ids).text, kTokenizer.decode(ids, true)) << ::testing::PrintToString(ids);
  }
}

TEST(TextStream, AStopStringIsFoundOverTheBordersOfTokens) {
  const Streamed result = streamed({}, {0, 4, 1, 0, 0, 4}, {"baa"});
  EXPECT_EQ(result.text, "ac");
  EXPECT_EQ(result.stop, 0u);
  // "b" and "ba" are held back while they may begin it, and come when they do not.
  EXPECT_EQ(streamed({}, {1, 0, 4}, {"baa"}).pieces, std::vector<std::string>({"", "", "bac", ""}));
  EXPECT_EQ(streamed({}, {1, 0}, {"baa"}).pieces, std::vector<std::string>({"", "", "ba"}));
  // Text of the context is not part of it.
  EXPECT_EQ(streamed({1}, {0, 0}, {"baa"}).text, "aa");
}

// The text up to the stop string that is complete first, the longest of equals; whatever the tokens.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops)
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(TextStream, StopsWhereACharacterWiseReaderWould) {
  std::mt19937 random(8);
  const std::vector<std::string> words = {"a", "ab", "bab", "abca", "\u20AC", "c the", "ba\u20ACa", " th", "caab"};
  int num_stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    Ids ids(1 + random() % 15);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 10);
    std::vector<std::string> stops;
    for (size_t count = 1 + random() % 3; count > 0; --count) stops.push_back(words[random() % words.size()]);
    const Streamed result = streamed({5}, ids, stops);
    ASSERT_EQ(result.text, cut(kTokenizer.decode(ids, true), stops)) << ::testing::PrintToString(ids);
    num_stopped += result.stop ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 2000);
  EXPECT_LT(num_stopped, 19000);
}

// Byte-level pieces, pieces of bytes where there is no other, blanks that a first piece loses, parts of words.
TEST(TextStream, PiecesOfRealTokenizersMakeTheirText) {
  const std::string text =
      "Prix\u00A0: 12 \u20AC, \u5317\u4EAC\u5E02 \u0928\u092E\u0938\u094D\u0924\u0947 "
      "\U0001F600\U0001F468\u200D\U0001F469!\n\n  "
      "The cats, hello world; (it is) 1234  \u0645\u0631\u062D\u0628\u0627";
  for (const std::string name :
       {"gpt2-tiny", "tokenizers/bloom", "tokenizers/llama2", "tokenizers/llama3", "tokenizers/qwen2",
        "tokenizers/metaspace_first", "megatron_tokenizers/hf_unigram_bytes", "megatron_tokenizers/hf_bert",
        "tokenizers/words_prefix"}) {
    const auto tokenizer = text::open_tokenizer("tests/data/" + name);
    const Ids ids = tokenizer->encode(text);
    for (size_t cut = 0; cut < ids.size(); ++cut) {
      const Ids context(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
      const Ids rest(ids.begin() + static_cast<std::ptrdiff_t>(cut), ids.end());
      if (tokenizer->decode(context, true).ends_with("\uFFFD")) continue;  // within a character
      TextStream stream(*tokenizer, context, {});
      std::string joined;
      for (const int32_t id : rest) {
        const std::string piece = stream.push(id).text;
        EXPECT_EQ(text::valid_utf8_prefix(piece), piece.size());
        joined += piece;
      }
      joined += stream.finish().text;
      ASSERT_EQ(joined, text::decode_continuation(*tokenizer, context, rest)) << name << ", cut at " << cut;
    }
  }
}

TEST(TextStream, TextThatMayNotStopGoesThrough) {
  TextStream stream(kTokenizer, {}, {"ab", "c"});
  EXPECT_EQ(stream.push(2, /*may_stop=*/false).text, "ab");
  EXPECT_EQ(stream.push(0, /*may_stop=*/true).text, "");
  EXPECT_TRUE(stream.push(1, /*may_stop=*/true).stop.has_value());
}

}  // namespace text_stream_test
}  // namespace espalier::infer
