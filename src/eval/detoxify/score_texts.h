// Adds scores to the texts of a JSONL file, by a scorer (scorer.h): what perspective_api_annotate.py of
// Megatron-DeepSpeed does with one service.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::eval {

struct ScoringPlan {
  std::filesystem::path input, output;
  std::string scorer;             // command for /bin/sh
  int64_t processes = 1;          // of it, at once
  int64_t batch_size = 25;        // lines that a process has at once
  double answer_seconds = 60;     // without an answer, after which a process is killed
  int64_t num_restarts = 5;       // in a row, without an answer between them
  double first_wait_seconds = 1;  // before a restart; doubled for each in a row, up to a minute
  bool overwrite = false;
};

struct ScoringSummary {
  int64_t num_texts = 0;    // lines of the file
  int64_t num_kept = 0;     // that a process before had scored
  int64_t num_blank = 0;    // of the others, not asked for
  int64_t num_without = 0;  // for which the scorer had no score
  int64_t num_restarts = 0;
};

// What is left of a text to be scored: without "<|endoftext|>".
std::string text_to_score(const std::string& text);
// At most 20,480 bytes, cut between two characters.
std::string cut_for_scorer(const std::string& text);

// Every line, in its order, with "text" as text_to_score() gives it, and with "score": the scorer's object, or null
// where the text is blank or the scorer has none. Killed, the same plan goes on after the last whole line.
ScoringSummary score_texts(const ScoringPlan& plan);

}  // namespace espalier::eval
