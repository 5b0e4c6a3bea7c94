#include "curate/lm/perplexity.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/format.h"
#include "text/python_text.h"

namespace espalier::curate {

PerplexityScorer::PerplexityScorer(const Files& files)
    : model_(files.model),
      cutter_(files.sentencepiece.empty() ? nullptr : std::make_unique<text::SentencePieceCutter>(files.sentencepiece)),
      setting_(files.setting) {}

std::optional<double> PerplexityScorer::operator()(std::string_view document) const {
  const std::string all = model_text(setting_, document);
  if (setting_ == ModelText::kCcnet && all.empty()) return std::nullopt;
  double log_probability = 0;
  size_t length = 0;
  std::string joined;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    std::string_view line = std::string_view(all).substr(at, end - at);
    if (cutter_ != nullptr) {
      joined = join(cutter_->cut(line), " ");
      line = joined;
    }
    log_probability += static_cast<double>(model_.score(line));
    length += text::python::split_words(line).size() + 1;
    at = end + 1;
  }
  const double perplexity = std::pow(10.0, -log_probability / static_cast<double>(length));
  if (setting_ == ModelText::kPlain) return perplexity;
  return std::strtod(format_fixed(perplexity, 1).c_str(), nullptr);
}

}  // namespace espalier::curate
