// The steps of this folder, in the order of the help.
#include "curate/steps/steps.h"

namespace espalier::curate {

std::vector<StepKind> text_step_kinds() {
  return {
      {"language", "tell the language of documents, and keep some of them", language_maker},
      {"oscar", "OSCAR's modification and filters, as BigScience used them for BLOOM", oscar_maker},
      {"pii", "mask e-mail addresses, IP addresses, keys and user names, as for BLOOM", pii_maker},
      {"quality", "keep what a fastText classifier calls good", quality_maker},
      {"perplexity", "measure documents by a KenLM model, and drop or sort them by it, as CCNet", perplexity_maker},
      {"ftfy", "repair mojibake and other glitches, as ftfy does", ftfy_maker},
      {"gopher", "Gopher's rules for quality and repetition", gopher_maker},
      {"c4", "C4's rules for lines and pages", c4_maker},
      {"catalogue", "the functions that cleaned BLOOM's catalogue, by their names", catalogue_maker},
      {"sentences", "put every sentence on a line of its own, by English rules", sentences_maker},
      {"length", "drop documents that are too short or too long", length_maker},
  };
}

}  // namespace espalier::curate
