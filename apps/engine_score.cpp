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
  bool ema = false, int8_weights = false, stream_layers = false;
};

bool read_options(const std::vector<std::string>& arguments, ScoreOptions& options) {
  OptionTable table("espalier-engine score", "Answers a file of requests with ids; espalier eval starts it.");
  table.add("--load", options.load, "step folder").required();
  table.add("--requests", options.requests, "lines with rows of ids").required();
  table.add("--answers", options.answers, "the same lines with log_likelihood and is_greedy, or text").required();
  table.add("--num-threads", options.num_threads, "threads").minimum(1);
  table.add("--ema", options.ema, "the moving average of the weights");
  table.add("--int8-weights", options.int8_weights, "hold the layers' matrices in 8 bits");
  table.add("--stream-layers", options.stream_layers, "read each layer when it is needed");
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

// The texts of one task and document have draws of their own.
infer::Request text_request_of(const nlohmann::ordered_json& line, const Ends& ends,
                               const std::optional<models::TextEnds>& encoder_ends) {
  constexpr uint64_t kSeed = 1234;
  constexpr int kRepeatBits = 10;
  infer::Request request;
  request.prompt_ids = line.at("rows").at(0).at("ids").get<std::vector<int32_t>>();
  if (encoder_ends) {
    request.encoder_ids = std::move(request.prompt_ids);
    request.prompt_ids = {encoder_ends->begin};
  }
  request.max_tokens = line.at("max_gen_toks").get<int64_t>();
  request.stop_ids = ends.ids;
  request.stop_strings = line.at("until").get<std::vector<std::string>>();
  request.stop_strings.insert(request.stop_strings.end(), ends.names.begin(), ends.names.end());
  request.sampling.temperature = line.value("temperature", 0.0);
  request.sampling.top_p = line.value("top_p", 0.0);
  request.sampling.top_k = line.value("top_k", int64_t{0});
  request.sampling.seed = kSeed;
  request.random_stream = (line.at("doc_id").get<uint32_t>() << kRepeatBits) + line.at("index").get<uint32_t>();
  return request;
}

bool asks_for_text(const nlohmann::ordered_json& line) { return line.value("type", "") == "generate_until"; }

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

// Answers `lines` together, and writes each with its answer.
void answer(infer::Engine& engine, const infer::LoadedModel& loaded, const std::vector<nlohmann::ordered_json>& lines,
            OutputFile& output) {
  const Ends ends = ends_of(loaded);
  std::vector<infer::Request> requests;
  for (const auto& line : lines) {
    if (asks_for_text(line))
      requests.push_back(text_request_of(line, ends, loaded.text_ends));
    else
      for (const auto& row : line.at("rows")) requests.push_back(request_of(row, loaded.text_ends));
  }
  const std::vector<infer::Completion> scored = infer::complete(engine, requests);
  auto next = scored.begin();
  for (nlohmann::ordered_json line : lines) {
    const auto write = [&] {
      const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
      output.write(text.data(), text.size());
    };
    if (asks_for_text(line)) {
      line["text"] = text_of(*next++, *loaded.tokenizer, ends);
      write();
      continue;
    }
    infer::LogLikelihood total;
    for (size_t row = 0; row < line.at("rows").size(); ++row, ++next) {
      const infer::LogLikelihood part = infer::log_likelihood(*next);
      total.sum += part.sum;
      total.is_greedy = total.is_greedy && part.is_greedy;
    }
    line["log_likelihood"] = total.sum;
    line["is_greedy"] = total.is_greedy;
    write();
  }
}

}  // namespace

int score(const std::vector<std::string>& arguments) {
  ScoreOptions options;
  if (!read_options(arguments, options)) return 0;
  at::set_num_threads(static_cast<int>(options.num_threads.value_or(num_usable_cores())));
  const infer::LoadedModel loaded =
      infer::load_model(options.load, std::nullopt, options.ema ? infer::WeightSet::kEma : infer::WeightSet::kWeights,
                        infer::weight_format(options.int8_weights, options.stream_layers));
  if (loaded.model == nullptr)
    throw UserError(
        concat(options.load, " holds a ", loaded.config.family->display, ": only models that write text are evaluated"),
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
  infer::Engine engine(model, loaded.tokenizer.get(), {});

  Progress progress("score", file_size_bytes(options.requests), Progress::Unit::kBytes);
  OutputFile output(options.answers);
  data::LineReader reader({options.requests});
  std::vector<nlohmann::ordered_json> lines;
  int64_t bytes = 0;
  const auto flush = [&] {
    answer(engine, loaded, lines, output);
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
