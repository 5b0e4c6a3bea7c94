// Against Megatron-DeepSpeed's tasks/zeroshot_gpt/detokenizer.py (tests/data/eval/detokenizers.json).
#include "eval/detokenizers.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "eval/fields.h"

namespace espalier::eval {
namespace detokenizers_test {

TEST(Detokenizers, AreThoseOfMegatron) {
  const Json golden = Json::parse(read_file("tests/data/eval/detokenizers.json"));
  ASSERT_GE(golden["wiki"].size(), 12u);
  for (const Json& pair : golden["wiki"])
    EXPECT_EQ(detokenize_wikitext(pair[0].get<std::string>()), pair[1].get<std::string>());
  for (const Json& pair : golden["ptb"])
    EXPECT_EQ(detokenize_penn_treebank(pair[0].get<std::string>()), pair[1].get<std::string>());
}

// Python's \s, in upstream's patterns; a pattern consumes the slash that ends it.
TEST(Detokenizers, BlanksInsideMarksAreUnicodes) {
  EXPECT_EQ(detokenize_wikitext("(\u00a0 a \u2003)"), "(a)");
  EXPECT_EQ(detokenize_wikitext("x /' 5/' 6/ /' 7/"), "x /'[0-9]/' 6/ /'[0-9]/");
}

TEST(Detokenizers, GeneralClosesUpMarks) {
  EXPECT_EQ(detokenize_general("do n't ( a ) \" b \" , c . 's  ."), "don't (a)\"b\", c.'s .");
  EXPECT_EQ(detokenize_general(""), "");
}

}  // namespace detokenizers_test
}  // namespace espalier::eval
