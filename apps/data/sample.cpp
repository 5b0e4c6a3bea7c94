// espalier data sample: what the model will see, sample by sample, in the order of training.
#include <cstdio>
#include <string>

#include "apps/commands.h"
#include "apps/data/commands.h"
#include "apps/data/sample_options.h"

namespace espalier {

const std::vector<Command>& sample_families() {
  static const std::vector<Command> list = {{"bert", "halves of sentences with masked tokens", nullptr},
                                            {"t5", "text with runs left out, and those runs", nullptr},
                                            {"ict", "a sentence, and the block of text it is from", nullptr}};
  return list;
}

int data_sample_main(const std::vector<std::string>& arguments) {
  const bool completes = !arguments.empty() && arguments[0] == "--complete-words";
  const size_t place = completes ? 1 : 0;
  if (completes && arguments.size() == 2) {
    for (const Command& family : sample_families())
      if (std::string(family.name).starts_with(arguments[1])) std::printf("%s\t%s\n", family.name, family.summary);
  } else if (place < arguments.size()) {
    std::vector<std::string> rest = arguments;
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(place));
    if (arguments[place] == "bert") return data_sample_bert_main(rest);
    if (arguments[place] == "t5") return data_sample_t5_main(rest);
    if (arguments[place] == "ict") return data_sample_ict_main(rest);
    if (arguments[place] == "gpt") return data_sample_gpt_main(rest);
  }
  return data_sample_gpt_main(arguments);  // GPT's needs no word
}

}  // namespace espalier
