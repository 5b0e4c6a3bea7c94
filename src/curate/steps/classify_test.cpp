#include <fasttext/fasttext.h>

#include <random>
#include <sstream>

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

// What a model says must be what fastText's own predictLine() says, whatever is in the line.
TEST(TextClassifier, EqualsFastTextItself) {
  test::TestFolder folder;
  test::write_text(
      folder / "train",
      concat("__label__en the river was high\n__label__de der fluss stand hoch\n__label__en the ferry </s>\n",
             "__label__de die f\xc3\xa4hre fuhr\n"));
  struct Shape {
    int minn, maxn, runs_of_words;
  };
  const std::vector<std::string> words = {"the",  "river",       "f\xc3\xa4hre",       "unknown",
                                          "</s>", "__label__en", "__label__no",        "a",
                                          "\t",   "\v",          std::string(1, '\0'), std::string(300, 'x')};
  for (const Shape shape : {Shape{2, 4, 1}, Shape{0, 0, 1}, Shape{2, 3, 2}}) {
    fasttext::Args args;
    args.input = folder / "train";
    args.model = fasttext::model_name::sup;
    args.loss = fasttext::loss_name::softmax;
    args.dim = 5, args.minn = shape.minn, args.maxn = shape.maxn, args.wordNgrams = shape.runs_of_words;
    args.minCount = 1, args.bucket = 500, args.epoch = 5, args.lr = 0.5, args.thread = 1, args.verbose = 0;
    fasttext::FastText trained;
    trained.train(args);
    trained.saveModel(folder / "model.bin");
    Problems problems;
    const std::unique_ptr<TextClassifier> classifier = load_classifier(folder / "model.bin", "--model", problems);
    ASSERT_NE(classifier, nullptr);
    fasttext::FastText reference;
    reference.loadModel(folder / "model.bin");
    std::mt19937 draw(4);
    for (const int count : {0, 1, 7, 33, 7, 7, 7, 7, 7, 7}) {
      std::string line;
      for (int word = 0; word < count; ++word) line += words[draw() % words.size()] + (draw() % 3 == 0 ? "  " : " ");
      for (int again = 0; again < 2; ++again) {  // with the words known
        std::istringstream stream(line + "\n");
        std::vector<std::pair<fasttext::real, std::string>> expected;
        reference.predictLine(stream, expected, 2, 0);
        const std::vector<TextClassifier::Label> found = classifier->classify(line, 2);
        ASSERT_EQ(found.size(), expected.size()) << line;
        for (size_t at = 0; at < found.size(); ++at) {
          EXPECT_EQ("__label__" + found[at].name, expected[at].second) << line;
          EXPECT_EQ(found[at].probability, static_cast<double>(expected[at].first)) << line;
        }
      }
    }
  }
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
