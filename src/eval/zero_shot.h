// The zero-shot tasks of Megatron's tasks/main.py: perplexity per word of a whole corpus (WIKITEXT103), and LAMBADA,
// which are other numbers than those of lm_eval's wikitext and lambada.
//
// The corpus is detokenized and tokenized as one stream and read through overlapping windows; every id but the first
// counts once, whatever the windows. Upstream pads its list of windows to a multiple of the ranks, and counts some
// twice.
#pragma once

#include <optional>
#include <string>

#include "eval/prepared_task.h"
#include "text/tokenizer.h"

namespace espalier::eval {

enum class Detokenizer { kWikitext, kPennTreebank, kNone };
const char* name_of(Detokenizer detokenizer);
// By what its path contains, in upstream's order: ptb, wiki, lambada. A UserError where it contains none.
Detokenizer detokenizer_for(const std::string& path);

struct ZeroShotOptions {
  const text::Tokenizer* tokenizer = nullptr;
  int64_t sequence_length = 1024;
  int64_t overlapping_eval = 32;           // by how much a window is after the one before it: 1 to sequence_length
  std::optional<Detokenizer> detokenizer;  // by the path unless given
  bool strict_lambada = false;             // the whole last word, not its last id
};

// The ids of one window of a stream, and which of them count: at most sequence length + 1, the last `num_predicted`.
struct StreamWindow {
  int64_t begin = 0, end = 0, num_predicted = 0;
};
std::vector<StreamWindow> overlapping_windows(int64_t num_ids, int64_t sequence_length, int64_t overlapping_eval);

// The names of the tasks, as upstream's --task takes them.
inline constexpr const char* kWikitext103 = "WIKITEXT103";
inline constexpr const char* kZeroShotLambada = "LAMBADA";
// What they read, for --list-data. They cannot be asked: prepare_zero_shot makes their questions.
std::vector<Task> zero_shot_tasks();

PreparedTask prepare_zero_shot(const std::string& task, const std::string& file, const ZeroShotOptions& options);

// Upstream's line, between lines of dashes.
std::string zero_shot_report(const TaskResult& result);

}  // namespace espalier::eval
