#include "apps/engine/score.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "apps/engine/neighbors.h"
#include "apps/engine/ranks.h"
#include "apps/options/device_option.h"
#include "apps/options/generate_options.h"
#include "base/file.h"
#include "base/json.h"
#include "base/options.h"
#include "base/progress.h"
#include "data/line_reader.h"
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
  int64_t tensor_ranks = 1;
  config::Device device = config::Device::kCpu;
  bool ema = false, int8_weights = false, stream_layers = false;
  NeighborOptions neighbors;
};

bool read_options(const std::vector<std::string>& arguments, ScoreOptions& options) {
  OptionTable table("espalier-engine score", "Answers a file of requests with ids; espalier eval starts it.");
  table.add("--load", options.load, "step folder").required();
  table.add("--requests", options.requests, "lines with rows of ids").required();
  table.add("--answers", options.answers, "the same lines with log_likelihood and is_greedy, or text").required();
  add_tensor_ranks(table, options.tensor_ranks);
  add_device(table, options.device);
  table.add("--num-threads", options.num_threads, "threads").minimum(1);
  table.add("--ema", options.ema, "the moving average of the weights");
  table.add("--int8-weights", options.int8_weights, "hold the layers' matrices in 8 bits");
  table.add("--stream-layers", options.stream_layers, "read each layer when it is needed");
  add_neighbor_rows(table, options.neighbors);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  problems.raise();
  return true;
}

// A context and its continuation, one after the other; or what a text continues, and how it is to be made.
struct ScoredRow {
  std::vector<int32_t> ids;
  size_t num_predicted = 0;
  std::optional<infer::Request> text = {};
};

// How likely the continuation is, or the text.
struct Answer {
  infer::LogLikelihood score;
  std::string text;
};

// Answers rows that are asked together; calls is_through with the number of each that is through.
using AnswerRows = std::function<std::vector<Answer>(const std::vector<ScoredRow>& rows,
                                                     const std::function<void(size_t row)>& is_through)>;

bool asks_for_text(const nlohmann::ordered_json& line) { return line.value("type", "") == "generate_until"; }

// The texts of one task and document have draws of their own.
infer::Request text_request_of(const nlohmann::ordered_json& line) {
  constexpr uint64_t kSeed = 1234;
  constexpr int kRepeatBits = 10;
  infer::Request request;
  request.max_tokens = line.at("max_gen_toks").get<int64_t>();
  request.stop_strings = line.at("until").get<std::vector<std::string>>();
  request.sampling.temperature = line.value("temperature", 0.0);
  request.sampling.top_p = line.value("top_p", 0.0);
  request.sampling.top_k = line.value("top_k", int64_t{0});
  request.sampling.seed = kSeed;
  request.random_stream = (line.at("doc_id").get<uint32_t>() << kRepeatBits) + line.at("index").get<uint32_t>();
  return request;
}

std::vector<ScoredRow> rows_of(const nlohmann::ordered_json& line) {
  if (asks_for_text(line))
    return {{.ids = line.at("rows").at(0).at("ids").get<std::vector<int32_t>>(), .text = text_request_of(line)}};
  std::vector<ScoredRow> rows;
  for (const auto& row : line.at("rows"))
    rows.push_back({row.at("ids").get<std::vector<int32_t>>(), row.at("num_predicted").get<size_t>()});
  return rows;
}

// What ends a text: its end, by its id or by its name, or a stop string.
struct Ends {
  std::vector<int32_t> ids;
  std::vector<std::string> names;
};

Ends ends_of(const infer::LoadedModel& loaded) {
  Ends ends;
  const text::NamedIds named = loaded.tokenizer->named_ids();
  if (loaded.text_ends)
    ends.ids = {loaded.text_ends->end};
  else
    for (const std::optional<int32_t>& id : {loaded.tokenizer->eod(), named.text_end})
      if (id) ends.ids.push_back(*id);
  for (const int32_t id : ends.ids)
    if (std::string name = loaded.tokenizer->decode({&id, 1}); !name.empty()) ends.names.push_back(std::move(name));
  return ends;
}

// `encoder_ends`: of a model whose encoder reads what comes before the continuation.
infer::Request request_of(const ScoredRow& row, const Ends& ends, const std::optional<models::TextEnds>& encoder_ends) {
  const std::span<const int32_t> ids = row.ids, context = ids.first(ids.size() - row.num_predicted),
                                 continuation = ids.last(row.num_predicted);
  infer::Request request;
  if (row.text) {
    request = *row.text;
    request.prompt_ids = encoder_ends ? std::vector<int32_t>{encoder_ends->begin} : row.ids;
    request.stop_ids = ends.ids;
    request.stop_strings.insert(request.stop_strings.end(), ends.names.begin(), ends.names.end());
  } else {
    request = infer::score_request(encoder_ends ? std::span(&encoder_ends->begin, 1) : context, continuation);
  }
  if (encoder_ends) request.encoder_ids.assign(context.begin(), context.end());
  return request;
}

// The whole of the last token, as the harness has it before it cuts the text.
std::string text_of(const infer::Completion& made, const text::Tokenizer& tokenizer, const Ends& ends) {
  std::vector<int32_t> ids;
  for (const infer::TokenScore& token : made.choices.at(0).tokens) ids.push_back(token.id);
  std::string text = tokenizer.decode(ids, /*skip_special_tokens=*/true);
  for (const std::string& name : ends.names) text = text.substr(0, text.find(name));
  return text;
}

int64_t longest_row(const std::string& file) {
  int64_t longest = 0;
  data::LineReader lines({file});
  for (std::string_view line; lines.next(line);) {
    const auto request = nlohmann::ordered_json::parse(line);
    const int64_t more = request.value("max_gen_toks", int64_t{0});
    for (const auto& row : request.at("rows"))
      longest = std::max(longest, static_cast<int64_t>(row.at("ids").size()) + more);
  }
  return longest;
}

// All at once, so that what begins alike is read once.
AnswerRows by_engine(infer::Engine& engine, const infer::LoadedModel& loaded) {
  return [&, ends = ends_of(loaded)](const std::vector<ScoredRow>& rows,
                                     const std::function<void(size_t row)>& is_through) {
    std::vector<infer::Request> requests;
    for (const ScoredRow& row : rows) requests.push_back(request_of(row, ends, loaded.text_ends));
    std::vector<Answer> answers;
    for (const infer::Completion& made : infer::complete(engine, requests)) {
      if (rows[answers.size()].text)
        answers.push_back({.score = {}, .text = text_of(made, *loaded.tokenizer, ends)});
      else
        answers.push_back({.score = infer::log_likelihood(made), .text = {}});
      is_through(answers.size() - 1);
    }
    return answers;
  };
}

// One after another; the neighbours of all are looked up at once, since each search reads the whole index.
AnswerRows with_neighbors(const infer::LoadedModel& loaded, const infer::FindNeighbors& find) {
  const auto m = static_cast<size_t>(loaded.model->neighbor_reader()->neighbor_shape().chunk_length);
  return [&, m](const std::vector<ScoredRow>& rows, const std::function<void(size_t row)>& is_through) {
    const auto finished = [m](const ScoredRow& row) { return (row.ids.size() - 1) / m; };  // the last token is not read
    std::vector<int32_t> chunks;
    if (std::any_of(rows.begin(), rows.end(), [](const ScoredRow& row) { return row.text.has_value(); }))
      throw UserError(
          "texts of tasks are not generated with neighbours: leave these tasks or --retro-workdir out, or use "
          "'espalier "
          "generate'",
          ExitCode::kUsage);
    for (const ScoredRow& row : rows)
      chunks.insert(chunks.end(), row.ids.begin(), row.ids.begin() + static_cast<std::ptrdiff_t>(finished(row) * m));
    std::vector<models::ChunkNeighbors> found;
    if (!chunks.empty()) found = find(chunks);
    std::vector<Answer> answers;
    auto next = found.begin();
    for (const ScoredRow& row : rows) {
      const auto end = next + static_cast<std::ptrdiff_t>(finished(row));
      answers.push_back({.score = infer::score_with_neighbors(*loaded.model, loaded.params->compute_type(), row.ids,
                                                              static_cast<int64_t>(row.num_predicted), {next, end}),
                         .text = {}});
      next = end;
      is_through(answers.size() - 1);
    }
    return answers;
  };
}

// Writes each of the lines with its answer.
void answer(const AnswerRows& answer_rows, const std::vector<nlohmann::ordered_json>& lines,
            const std::vector<int64_t>& line_bytes, Progress& progress, OutputFile& output) {
  std::vector<ScoredRow> rows;
  std::vector<size_t> ends;  // of each line, in rows
  for (const auto& line : lines) {
    for (ScoredRow& row : rows_of(line)) rows.push_back(std::move(row));
    ends.push_back(rows.size());
  }
  size_t num_through = 0;  // lines
  const auto is_through = [&](size_t row) {
    for (; num_through < ends.size() && ends[num_through] <= row + 1; ++num_through)
      progress.advance(line_bytes[num_through]);
  };
  const std::vector<Answer> answers = answer_rows(rows, is_through);
  auto next = answers.begin();
  for (nlohmann::ordered_json line : lines) {
    if (asks_for_text(line)) {
      line["text"] = next++->text;
    } else {
      infer::LogLikelihood total;
      for (size_t row = 0; row < line.at("rows").size(); ++row, ++next) {
        total.sum += next->score.sum;
        total.is_greedy = total.is_greedy && next->score.is_greedy;
      }
      line["log_likelihood"] = total.sum;
      line["is_greedy"] = total.is_greedy;
    }
    const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    output.write(text.data(), text.size());
  }
}

// The engine, and what it runs; made where texts are scored without neighbours.
struct Scorer {
  std::unique_ptr<infer::BatchModel> model;
  std::optional<infer::Engine> engine;
  NeighborSource neighbors;
  AnswerRows answer_rows;

  Scorer(const infer::LoadedModel& loaded, const ScoreOptions& options)
      : neighbors(neighbor_source(loaded, options.neighbors, options.load, at::get_num_threads())) {
    if (neighbors.find) {
      answer_rows = with_neighbors(loaded, neighbors.find);
      return;
    }
    const int64_t pages_of_one = (longest_row(options.requests) + kPageTokens - 1) / kPageTokens;
    const int64_t at_most =
        kCacheBytes / infer::page_bytes(loaded.model->decoder_shape(), loaded.weights(), kPageTokens);
    model = infer::batch_model(
        loaded, {.page_tokens = kPageTokens,
                 .num_pages = std::max<int64_t>({1, pages_of_one, std::min(at_most, kSequences * pages_of_one)}),
                 .max_positions = 0});
    engine.emplace(*model, loaded.tokenizer.get(), infer::EngineConfig{});
    answer_rows = by_engine(*engine, loaded);
  }
  Scorer(const Scorer&) = delete;  // answer_rows refers to it
  Scorer& operator=(const Scorer&) = delete;
};

}  // namespace

int score(const std::vector<std::string>& arguments) {
  ScoreOptions options;
  if (!read_options(arguments, options)) return 0;
  EngineRanks ranks("eval",
                    {.size = options.tensor_ranks, .device = options.device, .num_threads = options.num_threads});
  infer::LoadedModel loaded =
      infer::load_model(options.load, std::nullopt, options.ema ? infer::WeightSet::kEma : infer::WeightSet::kWeights,
                        infer::weight_format(options.int8_weights, options.stream_layers), ranks.grid());
  if (loaded.model == nullptr)
    throw UserError(
        concat(options.load, " holds a ", loaded.config.family->display, ": only models that write text are evaluated"),
        ExitCode::kUsage);
  if (reads_neighbors(loaded) && !options.neighbors.without)
    ranks.check_alone("a model that reads neighbours, unless with --retro-without-neighbors,");
  if (!ranks.lead(loaded)) return 0;
  const Scorer scorer(loaded, options);

  Progress progress("score", file_size_bytes(options.requests), Progress::Unit::kBytes);
  OutputFile output(options.answers);
  data::LineReader reader({options.requests});
  std::vector<nlohmann::ordered_json> lines;
  std::vector<int64_t> line_bytes;
  const auto flush = [&] {
    answer(scorer.answer_rows, lines, line_bytes, progress, output);
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
