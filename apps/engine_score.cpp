#include "engine_score.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "data/line_reader.h"
#include "engine_neighbors.h"
#include "infer/engine/completion.h"
#include "infer/engine/decoder_model.h"
#include "infer/load_model.h"

namespace espalier {
namespace {

constexpr int64_t kPageTokens = 64;
constexpr int64_t kCacheBytes = int64_t{2} << 30;
constexpr int64_t kSequences = 64;     // that are scored at once
constexpr size_t kLinesAtOnce = 1024;  // what is begun together may share its beginning

struct ScoreOptions {
  std::string load, requests, answers;
  std::optional<int64_t> num_threads;
  bool ema = false, int8_weights = false;
};

bool read_options(const std::vector<std::string>& arguments, ScoreOptions& options) {
  OptionTable table("espalier-engine score", "Scores a file of requests with ids; espalier eval starts it.");
  table.add("--load", options.load, "step folder").required();
  table.add("--requests", options.requests, "lines with rows of ids").required();
  table.add("--answers", options.answers, "the same lines with log_likelihood and is_greedy").required();
  table.add("--num-threads", options.num_threads, "threads").minimum(1);
  table.add("--ema", options.ema, "the moving average of the weights");
  table.add("--int8-weights", options.int8_weights, "hold the layers' matrices in 8 bits");
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  problems.raise();
  return true;
}

// `ends`: of a model whose encoder reads what comes before the continuation.
infer::Request request_of(const nlohmann::ordered_json& row, const std::optional<models::TextEnds>& ends) {
  const auto ids = row.at("ids").get<std::vector<int32_t>>();
  const size_t first = ids.size() - row.at("num_predicted").get<size_t>();
  const std::span<const int32_t> context = std::span(ids).first(first), continuation = std::span(ids).subspan(first);
  if (!ends) return infer::score_request(context, continuation);
  infer::Request request = infer::score_request(std::span(&ends->begin, 1), continuation);
  request.encoder_ids.assign(context.begin(), context.end());
  return request;
}

int64_t longest_row(const std::string& file) {
  int64_t longest = 0;
  data::LineReader lines({file});
  for (std::string_view line; lines.next(line);) {
    const auto request = nlohmann::ordered_json::parse(line);
    for (const auto& row : request.at("rows")) longest = std::max(longest, static_cast<int64_t>(row.at("ids").size()));
  }
  return longest;
}

// Scores `lines` together, and writes each with its answer.
void answer(infer::Engine& engine, const std::optional<models::TextEnds>& ends,
            const std::vector<nlohmann::ordered_json>& lines, OutputFile& output) {
  std::vector<infer::Request> requests;
  for (const auto& line : lines)
    for (const auto& row : line.at("rows")) requests.push_back(request_of(row, ends));
  const std::vector<infer::Completion> scored = infer::complete(engine, requests);
  auto next = scored.begin();
  for (nlohmann::ordered_json line : lines) {
    infer::LogLikelihood total;
    for (size_t row = 0; row < line.at("rows").size(); ++row, ++next) {
      const infer::LogLikelihood part = infer::log_likelihood(*next);
      total.sum += part.sum;
      total.is_greedy = total.is_greedy && part.is_greedy;
    }
    line["log_likelihood"] = total.sum;
    line["is_greedy"] = total.is_greedy;
    const std::string text = line.dump() + "\n";
    output.write(text.data(), text.size());
  }
}

}  // namespace

int score(const std::vector<std::string>& arguments) {
  ScoreOptions options;
  if (!read_options(arguments, options)) return 0;
  at::set_num_threads(static_cast<int>(options.num_threads.value_or(num_usable_cores())));
  const infer::LoadedModel loaded =
      infer::load_model(options.load, std::nullopt, options.ema ? infer::WeightSet::kEma : infer::WeightSet::kWeights,
                        options.int8_weights ? infer::WeightFormat::kInt8 : infer::WeightFormat::kSaved);
  if (loaded.model == nullptr)
    throw UserError(
        concat(options.load, " holds a ", loaded.config.family->display, ": only models that write text are scored"),
        ExitCode::kUsage);
  say_without_neighbors(loaded);
  const int64_t pages_of_one = (longest_row(options.requests) + kPageTokens - 1) / kPageTokens;
  const int64_t at_most =
      kCacheBytes / infer::page_bytes(loaded.model->decoder_shape(), loaded.params->compute_type(), kPageTokens);
  infer::DecoderModel model(
      *loaded.model, loaded.params->compute_type(),
      {.page_tokens = kPageTokens,
       .num_pages = std::max<int64_t>({1, pages_of_one, std::min(at_most, kSequences * pages_of_one)}),
       .max_positions = 0});
  infer::Engine engine(model, /*tokenizer=*/nullptr, {});

  Progress progress("score", file_size_bytes(options.requests), Progress::Unit::kBytes);
  OutputFile output(options.answers);
  data::LineReader reader({options.requests});
  std::vector<nlohmann::ordered_json> lines;
  int64_t bytes = 0;
  const auto flush = [&] {
    answer(engine, loaded.text_ends, lines, output);
    progress.advance(bytes);
    lines.clear(), bytes = 0;
  };
  for (std::string_view line; reader.next(line);) {
    lines.push_back(nlohmann::ordered_json::parse(line));
    bytes += static_cast<int64_t>(line.size());
    if (lines.size() == kLinesAtOnce) flush();
  }
  flush();
  progress.finish();
  output.close();
  return 0;
}

}  // namespace espalier
