#include "engine_score.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

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
#include "infer/read_neighbors.h"

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
  NeighborOptions neighbors;
};

bool read_options(const std::vector<std::string>& arguments, ScoreOptions& options) {
  OptionTable table("espalier-engine score", "Scores a file of requests with ids; espalier eval starts it.");
  table.add("--load", options.load, "step folder").required();
  table.add("--requests", options.requests, "lines with rows of ids").required();
  table.add("--answers", options.answers, "the same lines with log_likelihood and is_greedy").required();
  table.add("--num-threads", options.num_threads, "threads").minimum(1);
  table.add("--ema", options.ema, "the moving average of the weights");
  table.add("--int8-weights", options.int8_weights, "hold the layers' matrices in 8 bits");
  add_neighbor_rows(table, options.neighbors);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  problems.raise();
  return true;
}

// A context and its continuation, one after the other.
struct Row {
  std::vector<int32_t> ids;
  size_t num_predicted = 0;
};

// How likely the continuations of rows that are asked for together are; called with the number of each that is through.
using ScoreRows = std::function<std::vector<infer::LogLikelihood>(const std::vector<Row>& rows,
                                                                  const std::function<void(size_t row)>& is_through)>;

std::vector<Row> rows_of(const nlohmann::ordered_json& line) {
  std::vector<Row> rows;
  for (const auto& row : line.at("rows"))
    rows.push_back({row.at("ids").get<std::vector<int32_t>>(), row.at("num_predicted").get<size_t>()});
  return rows;
}

// `ends`: of a model whose encoder reads what comes before the continuation.
infer::Request request_of(const Row& row, const std::optional<models::TextEnds>& ends) {
  const std::span<const int32_t> ids = row.ids, context = ids.first(ids.size() - row.num_predicted),
                                 continuation = ids.last(row.num_predicted);
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

// All at once, so that what begins alike is read once.
ScoreRows by_engine(infer::Engine& engine, const std::optional<models::TextEnds>& ends) {
  return [&](const std::vector<Row>& rows, const std::function<void(size_t row)>& is_through) {
    std::vector<infer::Request> requests;
    for (const Row& row : rows) requests.push_back(request_of(row, ends));
    std::vector<infer::LogLikelihood> scores;
    for (const infer::Completion& scored : infer::complete(engine, requests)) {
      scores.push_back(infer::log_likelihood(scored));
      is_through(scores.size() - 1);
    }
    return scores;
  };
}

// One after another; the neighbours of all are looked up at once, since each search reads the whole index.
ScoreRows with_neighbors(const infer::LoadedModel& loaded, const infer::FindNeighbors& find) {
  const auto m = static_cast<size_t>(loaded.model->neighbor_reader()->neighbor_shape().chunk_length);
  return [&, m](const std::vector<Row>& rows, const std::function<void(size_t row)>& is_through) {
    const auto finished = [m](const Row& row) { return (row.ids.size() - 1) / m; };  // the last token is not read
    std::vector<int32_t> chunks;
    for (const Row& row : rows)
      chunks.insert(chunks.end(), row.ids.begin(), row.ids.begin() + static_cast<std::ptrdiff_t>(finished(row) * m));
    std::vector<models::ChunkNeighbors> found;
    if (!chunks.empty()) found = find(chunks);
    std::vector<infer::LogLikelihood> scores;
    auto next = found.begin();
    for (const Row& row : rows) {
      const auto end = next + static_cast<std::ptrdiff_t>(finished(row));
      scores.push_back(infer::score_with_neighbors(*loaded.model, loaded.params->compute_type(), row.ids,
                                                   static_cast<int64_t>(row.num_predicted), {next, end}));
      next = end;
      is_through(scores.size() - 1);
    }
    return scores;
  };
}

// Writes each of the lines with its answer.
void answer(const ScoreRows& score_rows, const std::vector<nlohmann::ordered_json>& lines,
            const std::vector<int64_t>& line_bytes, Progress& progress, OutputFile& output) {
  std::vector<Row> rows;
  std::vector<size_t> ends;  // of each line, in rows
  for (const auto& line : lines) {
    for (Row& row : rows_of(line)) rows.push_back(std::move(row));
    ends.push_back(rows.size());
  }
  size_t num_through = 0;  // lines
  const auto is_through = [&](size_t row) {
    for (; num_through < ends.size() && ends[num_through] <= row + 1; ++num_through)
      progress.advance(line_bytes[num_through]);
  };
  const std::vector<infer::LogLikelihood> scores = score_rows(rows, is_through);
  auto next = scores.begin();
  for (nlohmann::ordered_json line : lines) {
    infer::LogLikelihood total;
    for (size_t row = 0; row < line.at("rows").size(); ++row, ++next) {
      total.sum += next->sum;
      total.is_greedy = total.is_greedy && next->is_greedy;
    }
    line["log_likelihood"] = total.sum;
    line["is_greedy"] = total.is_greedy;
    const std::string text = line.dump() + "\n";
    output.write(text.data(), text.size());
  }
}

// The engine, and what it runs; made where texts are scored without neighbours.
struct Scorer {
  std::optional<infer::DecoderModel> model;
  std::optional<infer::Engine> engine;
  NeighborSource neighbors;
  ScoreRows score_rows;

  Scorer(const infer::LoadedModel& loaded, const ScoreOptions& options)
      : neighbors(neighbor_source(loaded, options.neighbors, options.load, at::get_num_threads())) {
    if (neighbors.find) {
      score_rows = with_neighbors(loaded, neighbors.find);
      return;
    }
    const int64_t pages_of_one = (longest_row(options.requests) + kPageTokens - 1) / kPageTokens;
    const int64_t at_most =
        kCacheBytes / infer::page_bytes(loaded.model->decoder_shape(), loaded.params->compute_type(), kPageTokens);
    model.emplace(*loaded.model, loaded.params->compute_type(),
                  infer::DecoderModelConfig{
                      .page_tokens = kPageTokens,
                      .num_pages = std::max<int64_t>({1, pages_of_one, std::min(at_most, kSequences * pages_of_one)}),
                      .max_positions = 0});
    engine.emplace(*model, /*tokenizer=*/nullptr, infer::EngineConfig{});
    score_rows = by_engine(*engine, loaded.text_ends);
  }
  Scorer(const Scorer&) = delete;  // score_rows refers to it
  Scorer& operator=(const Scorer&) = delete;
};

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
  const Scorer scorer(loaded, options);

  Progress progress("score", file_size_bytes(options.requests), Progress::Unit::kBytes);
  OutputFile output(options.answers);
  data::LineReader reader({options.requests});
  std::vector<nlohmann::ordered_json> lines;
  std::vector<int64_t> line_bytes;
  const auto flush = [&] {
    answer(scorer.score_rows, lines, line_bytes, progress, output);
    lines.clear(), line_bytes.clear();
  };
  for (std::string_view line; reader.next(line);) {
    lines.push_back(nlohmann::ordered_json::parse(line));
    line_bytes.push_back(static_cast<int64_t>(line.size()));
    if (lines.size() == kLinesAtOnce) flush();
  }
  flush();
  progress.finish();
  output.close();
  return 0;
}

}  // namespace espalier
