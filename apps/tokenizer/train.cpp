// espalier tokenizer train: a byte-level BPE from text.
#include "apps/tokenizer/train.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "data/document_reader.h"
#include "data/input_check.h"
#include "data/line_reader.h"
#include "data/preprocess.h"
#include "data/record_reader.h"
#include "text/bpe_trainer.h"
#include "text/tokenizer_writer.h"
#include "text/utf8.h"

namespace espalier {
namespace {

struct TrainRequest {
  text::BpeTrainingOptions training;
  std::vector<std::string> inputs;
  std::string json_key = "text", output, memory = "1GiB", eod_token;
  bool plain_text = false, json = false, overwrite = false;
};

void add_rows(OptionTable& table, TrainRequest& request) {
  table.allow_prefixes();
  table.group("input");
  table.add("--input", request.inputs, "files, plain or compressed with gzip, zstd, xz or bzip2; - is standard input")
      .value_name("FILE")
      .required();
  table.add("--json-key", request.json_key, "key of the text in each line of JSON").value_name("KEY");
  table.add("--plain-text", request.plain_text,
            "files are text, not JSONL; every line, with its end, is a document, as for tokenizers' train(files)");
  table.group("vocabulary");
  table.add("--vocab-size", request.training.vocab_size, "pieces, the 256 bytes and the special tokens included");
  table.add("--min-frequency", request.training.min_frequency, "merge only pairs that occur at least this often")
      .minimum(0);
  table.add("--special-tokens", request.training.special_tokens, "the first ids, in this order").value_name("TOKEN");
  table.add("--eod-token", request.eod_token, "the special token that ends documents")
      .value_name("TOKEN")
      .default_text("<|endoftext|>, or the only special token");
  table.add_choice("--pre-tokenizer", request.training.rule,
                   {{"gpt2", text::PieceRule::kGpt2},
                    {"bloom", text::PieceRule::kBloom},
                    {"llama3", text::PieceRule::kLlama3},
                    {"qwen2", text::PieceRule::kQwen2}},
                   "whose pattern cuts text into words; no piece spans two");
  table
      .add("--min-word-frequency", request.training.min_word_frequency,
           "leave out rarer words: less memory, but a vocabulary that differs from tokenizers'")
      .minimum(1);
  table.group("output");
  table.add("--output", request.output, "folder for tokenizer.json, tokenizer_config.json, vocab.json and merges.txt")
      .value_name("DIR")
      .required();
  table.add("--overwrite", request.overwrite, "replace a tokenizer in that folder, which is refused otherwise");
  table.add("--json", request.json, "the summary as one JSON object on standard output");
  table.group("run");
  table.add("--memory", request.memory, "for word counts and learning; counts beyond it go to files in --output")
      .value_name("SIZE");
  table.add("--workers", request.training.workers, "threads that count words; the output does not depend on it")
      .minimum(1)
      .maximum(4096)
      .default_text("all cores");
}

void check_special_tokens(TrainRequest& request, Problems& problems) {
  const std::vector<std::string>& tokens = request.training.special_tokens;
  const auto is_given = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  if (is_given("")) problems.add("--special-tokens: a token cannot be empty");
  for (const std::string& token : tokens)
    if (std::count(tokens.begin(), tokens.end(), token) > 1) {
      problems.add("--special-tokens: '", token, "' is given twice; each token has one id");
      return;
    }
  for (const std::string& token : tokens)
    if (text::valid_utf8_prefix(token) != token.size())
      problems.add("--special-tokens: byte ", text::valid_utf8_prefix(token) + 1, " of '", token, "' is not UTF-8");
  if (!request.eod_token.empty()) {
    if (!is_given(request.eod_token))
      problems.add("--eod-token ", request.eod_token, " is none of --special-tokens ", join(tokens, " "));
  } else if (is_given("<|endoftext|>")) {
    request.eod_token = "<|endoftext|>";
  } else if (tokens.size() == 1) {
    request.eod_token = tokens[0];
  } else if (!tokens.empty()) {
    problems.add("--eod-token: which of --special-tokens ", join(tokens, " "), " ends a document?");
  }
}

void check(TrainRequest& request, Problems& problems) {
  constexpr int64_t kMinMemoryBytes = 1 << 20;
  text::BpeTrainingOptions& training = request.training;
  if (!request.inputs.empty()) {
    data::PreprocessOptions reading;
    reading.inputs = request.inputs;
    data::check(reading, nullptr, problems);
  }
  const auto num_first = static_cast<int64_t>(256 + training.special_tokens.size());
  if (training.vocab_size < num_first || training.vocab_size > INT32_MAX) {
    problems.add("--vocab-size ", training.vocab_size, ": use ", num_first, " (256 bytes and ",
                 training.special_tokens.size(), " special) to ", INT32_MAX);
  }
  check_special_tokens(request, problems);
  const std::optional<int64_t> memory_bytes = parse_bytes(request.memory);
  if (!memory_bytes || *memory_bytes < kMinMemoryBytes) {
    problems.add("--memory ", request.memory, ": expected a size of at least 1MiB, for example 512MiB or 4GiB");
  }
  training.memory_bytes = memory_bytes.value_or(0);
  training.spill_folder = request.output;
  std::error_code error;
  const std::filesystem::path folder = request.output;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error))
    problems.add("--output ", request.output, " is a file; it must be a folder, or not exist yet");
  if (!request.overwrite && !request.output.empty()) {
    const std::string existing = describe_existing(text::tokenizer_files_written(training.rule, folder));
    if (!existing.empty()) problems.add("--output ", request.output, ": ", existing);
  }
  if (training.rule != text::PieceRule::kGpt2) {
    for (const char* name : {"vocab.json", "merges.txt"}) {
      if (std::filesystem::exists(folder / name, error))
        problems.add("--output ", request.output, " holds ", name, " of another tokenizer, and --pre-tokenizer ",
                     "writes it for gpt2 only; remove it or choose another folder");
    }
  }
}

struct Result {
  text::TrainedBpe bpe;
  data::MalformedTally malformed;
  double seconds = 0;
};

Result train(const TrainRequest& request) {
  const std::vector<data::InputSlice> slices = data::slices_of_shard(request.inputs, data::Shard{});
  Progress progress("count words", data::total_bytes(request.inputs, slices), Progress::Unit::kBytes);
  int64_t shown_bytes = 0;
  Result result;
  const auto train = [&](auto&& reader, auto&& next) {
    const text::NextDocument next_document = [&](std::string_view& text) {
      const bool found = next(reader, text);
      progress.advance(reader.consumed_bytes() - shown_bytes);
      shown_bytes = reader.consumed_bytes();
      if (!found) progress.finish();
      return found;
    };
    result.bpe = text::train_bpe(next_document, request.training);
  };
  if (request.plain_text) {
    train(data::LineReader(request.inputs),
          [](data::LineReader& reader, std::string_view& text) { return reader.next(text); });
  } else {
    data::DocumentReader documents(request.inputs, request.json_key);
    train(documents, [](data::DocumentReader& reader, std::string_view& text) {
      data::Document document;
      const bool found = reader.next(document);
      text = document.text;
      return found;
    });
    result.malformed = documents.malformed();
  }
  const int64_t num_records = result.bpe.num_documents + result.malformed.count;
  const int64_t num_with_text = result.bpe.num_words > 0 ? result.bpe.num_documents : 0;
  const std::vector<std::string> keys = request.plain_text ? std::vector<std::string>() : std::vector{request.json_key};
  data::refuse_fruitless_input({request.inputs, keys, num_records, num_with_text, result.malformed});
  result.seconds = progress.seconds();
  return result;
}

void report_problems(const Result& result, const TrainRequest& request) {
  const text::TrainedBpe& bpe = result.bpe;
  if (result.malformed.count > 0) {
    std::string text = format_counted(result.malformed.count, "malformed line") + " left out:";
    for (const data::MalformedRecord& record : result.malformed.first)
      text += "\n  " + describe(record, request.inputs);
    const int64_t more = result.malformed.count - static_cast<int64_t>(result.malformed.first.size());
    if (more > 0) text += concat("\n  and ", format_count(more), " more");
    log_warning(text);
  }
  if (bpe.num_replaced > 0) log_warning(format_counted(bpe.num_replaced, "place"), " of no valid UTF-8 became U+FFFD");
  if (static_cast<int64_t>(bpe.pieces.size()) < request.training.vocab_size) {
    log_warning("the vocabulary has ", format_count(static_cast<int64_t>(bpe.pieces.size())), " pieces, not ",
                format_count(request.training.vocab_size), ": no other pair occurs ",
                std::max<int64_t>(1, request.training.min_frequency), " times; more text gives more");
  }
}

void report_training(const Result& result, const std::vector<std::filesystem::path>& files,
                     const TrainRequest& request) {
  const text::TrainedBpe& bpe = result.bpe;
  log_info(
      "read ", format_counted(bpe.num_documents, "document"), ", ", format_bytes(static_cast<double>(bpe.num_bytes)),
      ": ", format_counted(bpe.num_words, "word"), ", ", format_count(bpe.num_distinct_words), " distinct",
      bpe.spilled_bytes > 0 ? concat(", ", format_bytes(static_cast<double>(bpe.spilled_bytes)), " of counts on disk")
                            : "");
  log_info("learned ", format_counted(static_cast<int64_t>(bpe.merges.size()), "merge"), " in ",
           format_duration(result.seconds), ": a vocabulary of ",
           format_count(static_cast<int64_t>(bpe.pieces.size())));
  std::vector<std::string> names;
  for (const std::filesystem::path& file : files) names.push_back(file.filename());
  log_info("wrote ", request.output, ": ", join(names, ", "));
  report_problems(result, request);
  if (!request.json) return;
  nlohmann::ordered_json first = nlohmann::json::array();
  for (const data::MalformedRecord& record : result.malformed.first) {
    first.push_back({{"file", request.inputs[record.file]},
                     {"line", record.line},
                     {"column", record.column},
                     {"reason", record.reason}});
  }
  const nlohmann::ordered_json summary = {{"vocab_size", bpe.pieces.size()},
                                          {"merges", bpe.merges.size()},
                                          {"special_tokens", bpe.special_tokens},
                                          {"documents", bpe.num_documents},
                                          {"text_bytes", bpe.num_bytes},
                                          {"words", bpe.num_words},
                                          {"distinct_words", bpe.num_distinct_words},
                                          {"spilled_bytes", bpe.spilled_bytes},
                                          {"malformed", result.malformed.count},
                                          {"first_malformed", first},
                                          {"replaced", bpe.num_replaced},
                                          {"seconds", result.seconds},
                                          {"workers", request.training.workers},
                                          {"files", names}};
  std::puts(summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

// Another process may have ended between the check of the options and the taking of the files.
void refuse_finished_meanwhile(const std::vector<std::filesystem::path>& files) {
  const std::string existing = describe_existing(files);
  if (!existing.empty()) throw UserError("--output: " + existing, ExitCode::kUsage);
}

}  // namespace

int tokenizer_train_main(const std::vector<std::string>& arguments) {
  TrainRequest request;
  request.training.special_tokens = {"<|endoftext|>"};
  request.training.workers = num_usable_cores();
  OptionTable table("espalier tokenizer train", "Trains a byte-level BPE: tokenizer.json, and GPT-2's two files.");
  add_rows(table, request);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  explain_unexpected_words(problems,
                           "the input is named by --input: espalier tokenizer train --input FILE... --output DIR");
  check(request, problems);
  problems.raise();

  clean_up_when_interrupted();
  text::TokenizerWriter writer(request.training.rule, request.output);
  const std::vector<std::filesystem::path> files = text::tokenizer_files_written(request.training.rule, request.output);
  if (!request.overwrite) refuse_finished_meanwhile(files);
  const Result result = train(request);
  writer.write(result.bpe, request.eod_token);
  report_training(result, files, request);
  return 0;
}

}  // namespace espalier
