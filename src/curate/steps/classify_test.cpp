#include "curate/internal/run_fixture.h"
#include "curate/language_id.h"

namespace espalier::curate {
namespace {

const char kEnglish[] = "The river was high that spring, and the ferry did not run until the end of May.";
const char kGerman[] = "Der Fluss stand in jenem Frühjahr hoch, und die Fähre fuhr erst Ende Mai wieder.";

TEST(LanguageStep, TellsLanguagesWithoutAModel) {
  EXPECT_EQ(test::apply("language", "", kEnglish).document.metadata.json("language"), "\"en\"");
  EXPECT_EQ(test::apply("language", "key = \"lang\"", kGerman).document.metadata.json("lang"), "\"de\"");
  EXPECT_EQ(test::apply("language", "keep = [\"en\", \"fr\"]", kGerman).fate.reason, "language");
  EXPECT_EQ(test::apply("language", "keep = [\"de\"]", kGerman).fate.reason, "");
  EXPECT_EQ(test::apply("language", "", "").document.metadata.json("language"), "\"unknown\"");
  EXPECT_EQ(test::apply("language", "least_score = 0.5", "123").fate.reason, "language_score");
}

TEST(LanguageStep, NamesWhatIsNoModel) {
  test::TestFolder folder;
  test::write_text(folder / "a.bin", "no model");
  EXPECT_NE(test::problems_of("language", concat("model = \"", folder / "a.bin", "\"")).find("not a fastText model"),
            std::string::npos);
  EXPECT_NE(test::problems_of("language", "model = \"none.bin\"").find("no such file"), std::string::npos);
  EXPECT_NE(
      test::problems_of("quality", concat("model = \"", folder / "a.bin", "\"\nlabel = \"hq\"")).find("not a fastText"),
      std::string::npos);
}

}  // namespace
}  // namespace espalier::curate
