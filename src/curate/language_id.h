// Which language a text is in: by a fastText model, or by cld2, which brings its own tables.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace espalier::curate {

struct LanguageGuess {
  std::string code = "unknown";  // "en", or as the model's label says
  double score = 0;              // fastText: the probability; cld2: the language's share of the text
};

class LanguageIdentifier {
 public:
  virtual ~LanguageIdentifier() = default;
  virtual LanguageGuess guess(std::string_view text) const = 0;  // any thread
};

// A fastText model with labels, of any use.
class TextClassifier {
 public:
  virtual ~TextClassifier() = default;
  struct Label {
    std::string name;  // without "__label__"
    double probability = 0;
  };
  // The likeliest `count` labels, the likeliest first; none for a text without words of the model. Line ends are
  // blanks. Any thread.
  virtual std::vector<Label> classify(std::string_view text, int count) const = 0;
  virtual std::vector<std::string> labels() const = 0;
};

// Null, with a problem that names `option`, where the file is not such a model.
std::unique_ptr<TextClassifier> load_classifier(const std::string& file, const std::string& option, Problems& problems);

std::unique_ptr<LanguageIdentifier> cld2_identifier();
// Asks the model about the text in lower case, as BigScience did.
std::unique_ptr<LanguageIdentifier> model_identifier(std::unique_ptr<TextClassifier> model);

}  // namespace espalier::curate
