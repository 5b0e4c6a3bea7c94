#include "retro_scripts.h"

#include "base/format.h"
#include "base/log.h"
#include "tasks_main.h"

namespace espalier {

std::vector<std::string> words_of_retro_main(const std::vector<std::string>& words) {
  const std::string of_gpt = "--retro-gpt-";
  std::vector<std::string> result = words, names;
  for (const std::string& word : words)
    if (const std::string name = word.substr(0, word.find('=')); name.starts_with(of_gpt)) names.push_back(name);
  if (!names.empty()) {
    std::vector<std::string> gpt;
    for (const std::string& name : names) {
      const auto values = take_out(result, name);
      if (!values) continue;  // given twice: the first turn has taken both
      const std::string plain = "--" + name.substr(of_gpt.size());
      if (plain == "--chunk-length") {
        gpt.push_back("--retro-chunk-length");
      } else {
        gpt.push_back(plain);
        take_out(result, plain);
      }
      gpt.insert(gpt.end(), values->begin(), values->end());
      if (plain == "--seq-length" && values->size() == 1)
        gpt.insert(gpt.end(), {"--max-position-embeddings", values->front()});
    }
    std::vector<std::string> gone;
    for (const char* name : {"--load", "--tokenizer-type", "--tokenizer-model", "--vocab-file", "--merge-file",
                             "--data-path", "--max-position-embeddings", "--micro-batch-size"})
      if (take_out(result, name)) gone.push_back(name);
    if (!gone.empty()) log_info("no effect, as they are of the BERT of tools/retro/main.py: ", join(gone, " "));
    result.insert(result.end(), gpt.begin(), gpt.end());
    result.insert(result.end(), {"--micro-batch-size", "1", "--retro-add-retriever"});
  }
  result.insert(result.begin(), {"retro", "build"});
  return result;
}

}  // namespace espalier
