#include "apps/eval/model.h"

#include <cstdio>
#include <cstdlib>

#include "apps/become_engine.h"
#include "apps/options/device_option.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "base/temporary_folder.h"
#include "base/whereabouts.h"
#include "data/line_reader.h"
#include "data/sentence_vocabulary.h"
#include "eval/token_requests.h"
#include "families/registry.h"
#include "families/t5/config.h"
#include "store/manifest.h"
#include "store/run_folder.h"
#include "text/stored_tokenizer.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using eval::Json;

eval::Request request_of(const Json& line, const std::string& where) {
  const auto text = [&](const char* key) {
    if (!line.is_object() || !line.contains(key) || !line.at(key).is_string())
      throw UserError(concat(where, ": expected {\"context\": \"...\", \"continuation\": \"...\"}"),
                      ExitCode::kBadData);
    return line.at(key).get<std::string>();
  };
  return {.kind = eval::RequestKind::kLogLikelihood,
          .context = text("context"),
          .continuation = text("continuation"),
          .context_ids = {},
          .continuation_ids = {}};
}

std::vector<eval::TokenRow> rows_of(eval::RequestEncoder& encoder, const eval::Request& request,
                                    const std::string& where) {
  try {
    return encoder.encode(request);
  } catch (const UserError& error) {
    throw UserError(concat(where, ": ", error.what()), error.code());
  }
}

// What the encoder reads, then what the decoder is to say.
eval::TokenRow row_of_answer(const text::Tokenizer& tokenizer, const eval::Request& request, const std::string& where) {
  std::vector<int32_t> ids = data::encode_with_sentinels(tokenizer, request.context);
  const std::vector<int32_t> said = data::encode_with_sentinels(tokenizer, request.continuation);
  if (ids.empty() || said.empty())
    throw UserError(concat(where, ": an encoder reads at least one token, and its decoder says at least one"),
                    ExitCode::kBadData);
  ids.insert(ids.end(), said.begin(), said.end());
  return {std::move(ids), static_cast<int64_t>(said.size())};
}

}  // namespace

EvalFolder::EvalFolder() : path_((temporary_folder() / "espalier-eval-XXXXXX").string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw UserError(concat("cannot create a temporary folder ", path_));
}

EvalFolder::~EvalFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

EvalModel open_eval_model(const std::string& load, std::optional<int64_t> step, bool ema) {
  const auto entry = store::find_checkpoint(load, step, /*save=*/"");
  ESPALIER_CHECK(entry, "without --save a missing checkpoint is an error of its own");
  const store::Manifest manifest = store::read_manifest(entry->folder);
  if (ema) store::check_has_ema(manifest, "--ema");
  const config::RunConfig run = families::read_saved_run(manifest, entry->folder.string());
  EvalModel model;
  model.ema = ema;
  model.step_folder = entry->folder;
  model.tokenizer = text::load_stored_tokenizer(run.tokenizer, entry->folder / "tokenizer");
  model.sequence_length = run.data.sequence_length;
  model.has_encoder = run.family == &families::t5_family();
  const text::NamedIds ids = model.tokenizer->named_ids();
  model.prefix = model.tokenizer->eod();
  if (model.has_encoder) model.prefix = ids.bos ? ids.bos : ids.text_end ? ids.text_end : ids.eos;
  return model;
}

void ask_model(const EvalModel& model, const std::string& requests, const std::string& answers,
               std::optional<int64_t> num_threads) {
  std::vector<std::string> words = {"--load", model.step_folder.string(), "--requests", requests, "--answers", answers};
  if (num_threads) words.insert(words.end(), {"--num-threads", std::to_string(*num_threads)});
  words.insert(words.end(), {"--device", name_of(model.device)});
  if (model.ema) words.push_back("--ema");
  if (model.int8_weights) words.push_back("--int8-weights");
  if (model.stream_layers) words.push_back("--stream-layers");
  if (!model.neighbors.workdir.empty()) words.insert(words.end(), {"--retro-workdir", model.neighbors.workdir});
  if (model.neighbors.without) words.push_back("--retro-without-neighbors");
  if (model.tensor_ranks > 1)
    words.insert(words.end(), {"--tensor-model-parallel-size", std::to_string(model.tensor_ranks)});
  const WaitsFor waits(Waiting::kOthers, "ask", "the model");
  if (const int code = run_engine("score", words); code != 0)
    throw UserError("nothing was evaluated: see above", static_cast<ExitCode>(code));
}

// The engine of such a process reads neither of the two files.
void help_to_ask_model(const EvalModel& model, std::optional<int64_t> num_threads) {
  ask_model(model, "none", "none", num_threads);
}

void answer_request_lines(const EvalModel& model, const std::string& file, int64_t sequence_length,
                          std::optional<int64_t> num_threads) {
  const EvalFolder folder;
  const std::string requests = folder.file("requests.jsonl"), answers = folder.file("answers.jsonl");
  std::optional<eval::RequestEncoder> encoder;
  if (!model.has_encoder) encoder.emplace(*model.tokenizer, eval::Tokenization::kJoint, *model.prefix, sequence_length);
  {
    OutputFile output(requests);
    data::LineReader lines({file});
    int64_t number = 0;
    for (std::string_view line; lines.next(line);) {
      const std::string where = concat(file, ":", ++number);
      const eval::Request request = request_of(parse_json(line, where), where);
      const std::vector<eval::TokenRow> encoded =
          encoder ? rows_of(*encoder, request, where) : std::vector{row_of_answer(*model.tokenizer, request, where)};
      Json rows = Json::array();
      for (const eval::TokenRow& row : encoded)
        rows.push_back({{"ids", row.ids}, {"num_predicted", row.num_predicted}});
      const std::string text = Json{{"rows", rows}}.dump() + "\n";
      output.write(text.data(), text.size());
    }
    output.close();
  }
  ask_model(model, requests, answers, num_threads);
  data::LineReader lines({answers});
  for (std::string_view line; lines.next(line);) {
    const Json answer = Json::parse(line);
    std::printf("%s\n", Json{{"loglikelihood", answer.at("log_likelihood")},
                             {"is_greedy", answer.at("is_greedy")},
                             {"tokens", answer.at("rows").at(0).at("num_predicted")}}
                            .dump()
                            .c_str());
  }
}

}  // namespace espalier
