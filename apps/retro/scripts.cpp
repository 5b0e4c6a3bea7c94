#include "apps/retro/scripts.h"

#include "apps/tasks_main.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier {

std::vector<std::string> words_of_retro_main(const std::vector<std::string>& words) {
  const std::string of_gpt = "--retro-gpt-";
  std::vector<std::string> result = words, gpt;
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.starts_with(of_gpt)) continue;
    const auto values = take_out(result, name);
    if (!values) continue;  // given twice, and taken out already
    const std::string plain = "--" + name.substr(of_gpt.size());
    take_out(result, plain);
    gpt.push_back(plain == "--chunk-length" ? "--retro-chunk-length" : plain);
    gpt.insert(gpt.end(), values->begin(), values->end());
    if (plain == "--seq-length" && values->size() == 1)
      gpt.insert(gpt.end(), {"--max-position-embeddings", values->front()});
  }
  std::vector<std::string> gone;
  if (!gpt.empty()) {
    for (const char* name : {"--load", "--no-load-optim", "--no-load-rng", "--exit-on-missing-checkpoint",
                             "--tokenizer-type", "--tokenizer-model", "--vocab-file", "--merge-file", "--data-path",
                             "--no-data-sharding", "--max-position-embeddings", "--micro-batch-size"})
      if (take_out(result, name)) gone.push_back(name);
    gpt.insert(gpt.end(), {"--micro-batch-size", "1", "--retro-add-retriever"});
  }
  if (!gone.empty()) log_info("no effect, as they are of the BERT of tools/retro/main.py: ", join(gone, " "));
  result.insert(result.end(), gpt.begin(), gpt.end());
  result.insert(result.begin(), {"retro", "build"});
  return result;
}

}  // namespace espalier
