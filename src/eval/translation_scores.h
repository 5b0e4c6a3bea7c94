// BLEU, chrF and chrF++ of texts, each against one reference, as sacrebleu 2 computes them with its own defaults (BLEU:
// 13a tokens, exponential smoothing). Counts of several texts add up; a score is of their sum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::eval {

using Counts = std::vector<int64_t>;

Counts bleu_counts(const std::string& text, const std::string& reference);
double bleu_of(const Counts& counts);

Counts chrf_counts(const std::string& text, const std::string& reference);
Counts chrf_plus_counts(const std::string& text, const std::string& reference);  // of chrF++: words too
double chrf_of(const Counts& counts);                                            // of either

std::string tokenize_13a(const std::string& text);  // with a blank between two tokens

}  // namespace espalier::eval
