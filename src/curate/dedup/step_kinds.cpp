// The steps of this folder, in the order of the help.
#include "curate/dedup/dedup.h"

namespace espalier::curate {

std::vector<StepKind> dedup_step_kinds() {
  return {
      {"exact", "drop documents, URLs, lines or paragraphs that occur again", exact_maker},
      {"minhash", "drop near-duplicates by MinHash signatures", minhash_maker},
      {"simhash", "drop near-duplicates by SimHash", simhash_maker},
      {"substrings", "cut out stretches of text that occurred before", substrings_maker},
      {"ngrams", "cut the texts of evaluations out of documents", ngrams_maker},
      {"urls", "drop documents by the domain, the extension and the form of their URL", urls_maker},
  };
}

}  // namespace espalier::curate
