#include "eval/detoxify/least_toxic.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "base/pending_file.h"
#include "data/numpy_random.h"
#include "eval/detoxify/scored_file.h"

namespace espalier::eval {
namespace {

struct Scored {
  int64_t line;
  double score;
};

std::vector<double> scores_of(const std::vector<Scored>& texts) {
  std::vector<double> scores;
  for (const Scored& text : texts) scores.push_back(text.score);
  return scores;
}

// The first of them, in the order in which they are written.
std::vector<int64_t> shuffled_lines(const std::vector<Scored>& kept, uint32_t seed) {
  std::vector<int64_t> places(kept.size());
  std::iota(places.begin(), places.end(), 0);
  data::NumpyRandom(seed).shuffle(std::span(places));
  std::vector<int64_t> lines;
  for (const int64_t place : places) lines.push_back(kept[static_cast<size_t>(place)].line);
  return lines;
}

void write_lines(const FilterPlan& plan, const std::vector<int64_t>& numbers) {
  std::unordered_map<int64_t, std::string> texts;
  for (const int64_t number : numbers) texts[number];
  int64_t number = 0;
  for_each_scored(plan.input, plan.attribute, [&](std::string_view line, const Fields&, std::optional<double>) {
    if (const auto text = texts.find(number++); text != texts.end()) text->second = line;
  });
  PendingFile file(plan.output);
  OutputFile out(file.temporary());
  for (const int64_t wanted : numbers) {
    std::string& text = texts.at(wanted);
    if (!text.ends_with('\n')) text += '\n';
    out.write(text.data(), text.size());
  }
  out.sync();
  out.close();
  move_into_place({&file});
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread{.count = static_cast<int64_t>(values.size())};
  if (values.empty()) return spread;
  const auto count = static_cast<double>(values.size());
  spread.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / count);
  return spread;
}

FilterSummary keep_least_toxic(const FilterPlan& plan) {
  if (const std::string existing = describe_existing({plan.output}); !existing.empty() && !plan.overwrite)
    throw UserError(existing, ExitCode::kCannotCreate);
  FilterSummary summary;
  std::vector<Scored> texts;
  for_each_scored(plan.input, plan.attribute, [&](std::string_view, const Fields&, std::optional<double> score) {
    if (score) texts.push_back({summary.num_lines, *score});
    ++summary.num_lines;
  });
  std::stable_sort(texts.begin(), texts.end(), [](const Scored& a, const Scored& b) { return a.score < b.score; });
  summary.all = spread_of(scores_of(texts));
  const auto border = std::partition_point(texts.begin(), texts.end(),
                                           [&](const Scored& text) { return text.score <= summary.threshold; });
  summary.nontoxic = spread_of(scores_of({texts.begin(), border}));
  summary.toxic = spread_of(scores_of({border, texts.end()}));
  // 0.29 * 100 is a little less than 29.
  const auto wanted = static_cast<size_t>(std::floor(plan.share * static_cast<double>(summary.num_lines) + 1e-9));
  if (texts.size() > wanted) texts.resize(wanted);
  if (texts.empty())
    throw UserError(concat("nothing is left of ", plan.input.string(), ": ", summary.num_lines, " lines, ",
                           summary.all.count, " of them with a score, of which ", wanted, " were to be kept"),
                    ExitCode::kBadData);
  summary.kept = spread_of(scores_of(texts));
  summary.lowest_kept = texts.front().score;
  summary.highest_kept = texts.back().score;
  write_lines(plan, shuffled_lines(texts, static_cast<uint32_t>(plan.seed)));
  return summary;
}

}  // namespace espalier::eval
