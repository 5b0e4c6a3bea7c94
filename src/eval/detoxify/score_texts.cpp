#include "eval/detoxify/score_texts.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/console.h"
#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/growing_file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "data/line_reader.h"
#include "eval/detoxify/scorer.h"
#include "eval/fields.h"
#include "text/python_text.h"

namespace espalier::eval {
namespace {

constexpr size_t kMostBytes = 20480;  // of a text, that Perspective API takes
constexpr double kLongestWaitSeconds = 60;

struct Line {
  int64_t number = 0;  // from 0
  Json content;        // with its cleaned text
  std::string text;    // to be scored; empty: it is blank
  Json score;
};
using Batch = std::vector<Line>;

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Processes of the scorer that wait for work. Any thread.
class Scorers {
 public:
  Scorers(const ScoringPlan& plan, std::atomic<int64_t>& num_restarts)
      : plan_(plan),
        name_(concat("'", fit_columns(split(plan.scorer, '\n').front(), 80), "'")),
        num_restarts_(num_restarts) {}

  ~Scorers() {
    for (const std::unique_ptr<ScorerProcess>& process : idle_) process->end_input();
  }
  Scorers(const Scorers&) = delete;
  Scorers& operator=(const Scorers&) = delete;

  void stop() { stopping_ = true; }

  // Scores those of the batch that have a text.
  Batch score(Batch batch) {
    std::vector<Line*> asked;
    for (Line& line : batch)
      if (!line.text.empty()) asked.push_back(&line);
    for (int64_t failures = 0; !asked.empty() && !stopping_;) {
      std::unique_ptr<ScorerProcess> process = take();
      std::vector<std::string> lines;
      for (const Line* line : asked) lines.push_back(dumped({{"id", line->number}, {"text", line->text}}));
      const ScorerProcess::Exchange exchange = process->exchange(lines, plan_.answer_seconds);
      for (size_t at = 0; at < exchange.answers.size(); ++at)
        asked[at]->score = score_of(exchange.answers[at], asked[at]->number);
      asked.erase(asked.begin(), asked.begin() + static_cast<std::ptrdiff_t>(exchange.answers.size()));
      if (exchange.failure.empty()) {
        give_back(std::move(process));
        continue;
      }
      if (exchange.cannot_run)
        throw UserError(
            concat(name_, " ", exchange.failure, ": the shell cannot run it; --scorer takes a command line"));
      failures = exchange.answers.empty() ? failures + 1 : 1;
      wait_after(failures, exchange.failure);
    }
    return batch;
  }

 private:
  std::unique_ptr<ScorerProcess> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto process = std::move(idle_.back());
        idle_.pop_back();
        return process;
      }
    }
    return std::make_unique<ScorerProcess>(plan_.scorer);
  }
  void give_back(std::unique_ptr<ScorerProcess> process) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(process));
  }

  // An answer that is wrong would be wrong again.
  Json score_of(const std::string& answer, int64_t number) const {
    const std::string place = concat(name_, ", to line ", number + 1);
    const auto refuse = [&](const char* what) {
      throw UserError(concat(place, ": expected ", what, ", it answered ", answer.substr(0, 200)), ExitCode::kBadData);
    };
    Json json = parse_json<Json>(answer, place);
    if (!json.is_object() || !json.contains("id") || json["id"] != number)
      refuse(concat("an object with \"id\": ", number, ", answers in the order of the lines").c_str());
    if (!json.contains("score")) refuse("\"score\": an object of numbers, or null");
    Json score = std::move(json["score"]);
    if (score.is_null()) return score;
    if (!score.is_object() || score.empty()) refuse("\"score\": an object of numbers, or null");
    for (const auto& [name, value] : score.items())
      if (!value.is_number()) refuse(concat("a number as \"", name, "\"").c_str());
    return score;
  }

  void wait_after(int64_t failures, const std::string& failure) {
    if (failures > plan_.num_restarts)
      throw UserError(concat(name_, " ", failure, failures == 1 ? "" : concat(", ", failures, " times in a row"),
                             ". What it has scored is kept: the same command resumes."));
    const double seconds =
        std::min(kLongestWaitSeconds, plan_.first_wait_seconds * std::exp2(static_cast<double>(failures - 1)));
    log_warning(name_, " ", failure, ": starting it again in ", format_shortest(seconds), " s (", failures, " of ",
                plan_.num_restarts, ")");
    ++num_restarts_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!stopping_ && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  const ScoringPlan& plan_;
  const std::string name_;  // in messages
  std::atomic<int64_t>& num_restarts_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ScorerProcess>> idle_;
};

// The lines of the file in batches, but for those before `first`.
class Batches {
 public:
  Batches(const std::filesystem::path& file, int64_t first) : name_(file.string()), lines_({name_}), first_(first) {}

  Batch next(int64_t size) {
    Batch batch;
    for (std::string_view line; static_cast<int64_t>(batch.size()) < size && lines_.next(line); ++number_)
      if (number_ >= first_) batch.push_back(line_of(line));
    return batch;
  }

 private:
  Line line_of(std::string_view line) const {
    const std::string place = concat(name_, ":", number_ + 1);
    Line result{.number = number_, .content = parse_json<Json>(line, place), .text = {}, .score = nullptr};
    const std::string text = text_to_score(Fields(result.content, place).text("text"));
    result.content["text"] = text;
    if (!text::python::strip(text).empty()) result.text = cut_for_scorer(text);
    return result;
  }

  std::string name_;
  data::LineReader lines_;
  int64_t first_, number_ = 0;
};

int64_t num_lines_of(const std::filesystem::path& file) {
  data::LineReader lines({file.string()});
  int64_t count = 0;
  for (std::string_view line; lines.next(line);) ++count;
  return count;
}

nlohmann::ordered_json facts_of(const ScoringPlan& plan) {
  return {{"input", std::filesystem::weakly_canonical(plan.input).string()},
          {"input_bytes", file_size_bytes(plan.input)},
          {"scorer", plan.scorer}};
}

}  // namespace

std::string text_to_score(const std::string& text) { return text::python::replace_all(text, "<|endoftext|>", ""); }

std::string cut_for_scorer(const std::string& text) {
  if (text.size() <= kMostBytes) return text;
  size_t end = kMostBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

ScoringSummary score_texts(const ScoringPlan& plan) {
  GrowingFile output(plan.output, facts_of(plan), {.overwrite = plan.overwrite});
  ScoringSummary summary{.num_texts = num_lines_of(plan.input), .num_kept = output.num_kept()};
  if (summary.num_texts < summary.num_kept)
    throw UserError(concat(plan.input.string(), " has ", format_counted(summary.num_texts, "line"), ", but ",
                           summary.num_kept, " have been scored. Start over with --overwrite."),
                    ExitCode::kBadData);
  Batches batches(plan.input, summary.num_kept);
  Progress progress("score", summary.num_texts - summary.num_kept, Progress::Unit::kItems, "texts");
  std::atomic<int64_t> num_restarts = 0;
  Scorers scorers(plan, num_restarts);
  std::deque<std::future<Batch>> begun;
  ThreadPool pool(static_cast<int>(plan.processes));
  const auto write_oldest = [&] {
    for (Line& line : begun.front().get()) {
      if (line.text.empty())
        ++summary.num_blank;
      else if (line.score.is_null())
        ++summary.num_without;
      line.content["score"] = std::move(line.score);
      output.write(dumped(line.content));
      progress.advance(1);
    }
    begun.pop_front();
  };
  try {
    for (auto batch = std::make_shared<Batch>(batches.next(plan.batch_size)); !batch->empty();
         batch = std::make_shared<Batch>(batches.next(plan.batch_size))) {
      begun.push_back(pool.submit([&scorers, batch] { return scorers.score(std::move(*batch)); }));
      if (static_cast<int64_t>(begun.size()) > 2 * plan.processes) write_oldest();
    }
    while (!begun.empty()) write_oldest();
  } catch (...) {
    scorers.stop();
    throw;
  }
  summary.num_restarts = num_restarts;
  output.finish();
  progress.finish(plan.output.string());
  return summary;
}

}  // namespace espalier::eval
