// espalier preprocess: JSONL text to token files. Flags as Megatron's tools/preprocess_data.py.
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "base/thread_pool.h"
#include "data/preprocess.h"
#include "data/sentence_map.h"
#include "data/token_store.h"

namespace espalier {
namespace {

using Takes = OptionTable::Takes;

struct PreprocessRequest {
  data::PreprocessOptions work;
  text::TokenizerOptions tokenizer;
  std::string shard = "0/1", dataset_impl = "mmap", language = "english";
  bool json = false;
};

void add_input_rows(OptionTable& table, PreprocessRequest& request) {
  table.group("input");
  table
      .add("--input", request.work.inputs,
           "JSONL files, plain or compressed with gzip, zstd, xz or bzip2; - is standard input")
      .value_name("FILE")
      .required();
  table.add("--json-keys", request.work.json_keys, "keys whose texts are tokenized; each gives token files of its own")
      .value_name("KEY");
  table.add_choice("--on-malformed", request.work.stop_at_malformed, {{"skip", false}, {"stop", true}},
                   "a line that is not JSON, or lacks a key: leave it out and report it, or stop with exit code 65");
  table.add("--replace-lone-surrogates", request.work.replace_lone_surrogates,
            "read half a surrogate pair (\\ud83d alone) as U+FFFD; otherwise its line is malformed");
  table.add("--shard", request.shard, "read only part I of N of the input, counted from 0, for N machines")
      .value_name("I/N");
  table.add_without_effect("--datasets", Takes::kList, "Megatron's tool declares it and does not use it");
  table.add_without_effect("--chunk-size", Takes::kOne, "the sizes of pieces are chosen here");
}

void add_sentence_rows(OptionTable& table, PreprocessRequest& request) {
  table.group("sentences (for BERT and T5)");
  table.add("--split-sentences", request.work.split_sentences,
            "split every document into sentences, so that samples can begin and end with one");
  table.add("--keep-newlines", request.work.keep_newlines,
            "keep the spaces and line ends after a sentence as part of it; otherwise they are dropped");
  table.add("--lang", request.language, "language whose rules split sentences")
      .choices({"english"})
      .refuse_value(
          "*",
          "sentences are split by English rules, which work for languages with similar punctuation and abbreviations");
}

void add_rows(OptionTable& table, PreprocessRequest& request) {
  table.allow_prefixes();
  add_input_rows(table, request);
  add_sentence_rows(table, request);
  table.group("tokenizer");
  add_tokenizer_options(table, request.tokenizer).required();
  table.add("--prepend-space", request.work.prepend_space, "begin every text with a space, as BLOOMZ's targets do");
  table.add("--append-eod", request.work.append_eod, "end every document with the end-of-document token");
  table.add("--append-bos", request.work.append_bos, "end every document with the beginning-of-text token instead");
  const std::string padding = "the padded vocabulary belongs to the model; token files do not depend on it";
  table.add_without_effect("--make-vocab-size-divisible-by", Takes::kOne, padding);
  table.add_without_effect("--pad-vocab-size-to", Takes::kOne, padding);
  table.group("output");
  table
      .add("--output-prefix", request.work.output_prefix,
           "writes PREFIX_KEY_document.bin and .idx for each key, PREFIX_KEY_sentence.* with --split-sentences")
      .value_name("PREFIX")
      .required();
  table.add("--overwrite", request.work.overwrite, "replace token files of that name, which are refused otherwise");
  const std::string only_mmap =
      "token files are written as mmap, which every reader of lazy and cached ones also accepts";
  table.add("--dataset-impl", request.dataset_impl, "kind of token files")
      .choices({"mmap"})
      .refuse_value("lazy", only_mmap)
      .refuse_value("cached", only_mmap);
  table.add("--json", request.json, "the summary as one JSON object on standard output");
  table.group("run");
  table.add("--workers", request.work.workers, "threads that tokenize; the output does not depend on it")
      .minimum(1)
      .maximum(4096)
      .default_text("all cores");
  table.add_without_effect("--log-interval", Takes::kOne, "progress is shown by time");
}

data::Shard parse_shard(const std::string& text, Problems& problems) {
  data::Shard shard;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, shard.index);
  const bool slash = index.ec == std::errc() && index.ptr < end && *index.ptr == '/';
  const auto count = slash ? std::from_chars(index.ptr + 1, end, shard.count) : index;
  if (!slash || count.ec != std::errc() || count.ptr != end || shard.count < 1) {
    problems.add("--shard ", text, ": expected I/N, for example 0/4 for the first of four parts");
  } else if (shard.index < 0 || shard.index >= shard.count) {
    problems.add("--shard ", text, ": ", shard.count, " parts are numbered 0/", shard.count, " to ", shard.count - 1,
                 "/", shard.count);
  }
  return shard;
}

nlohmann::ordered_json to_json(const data::PreprocessSummary& summary, const PreprocessRequest& request,
                               data::TokenType type) {
  nlohmann::ordered_json keys = nlohmann::json::array(), first = nlohmann::json::array();
  for (const data::KeySummary& key : summary.keys)
    keys.push_back({{"key", key.key},
                    {"prefix", key.prefix},
                    {"documents", key.num_documents},
                    {"tokens", key.num_tokens},
                    {"empty", key.num_empty},
                    {"dtype", data::name_of(type)}});
  if (request.work.split_sentences)
    for (size_t at = 0; at < summary.keys.size(); ++at) {
      keys[at]["sentences"] = summary.keys[at].num_sequences;
      keys[at]["documents_with_long_sentence"] = summary.keys[at].num_long;
    }
  for (const data::MalformedRecord& record : summary.malformed.first)
    first.push_back({{"file", request.work.inputs[record.file]},
                     {"line", record.line},
                     {"column", record.column},
                     {"reason", record.reason}});
  return {{"records", summary.num_records},
          {"malformed", summary.malformed.count},
          {"first_malformed", first},
          {"replaced_bytes", summary.num_replaced_bytes},
          {"replaced_surrogates", summary.num_replaced_surrogates},
          {"input_bytes", summary.input_bytes},
          {"record_bytes", summary.record_bytes},
          {"seconds", summary.seconds},
          {"workers", request.work.workers},
          {"shard", request.shard},
          {"keys", keys}};
}

void report_problems(const data::PreprocessSummary& summary, const std::vector<std::string>& inputs) {
  const data::MalformedTally& malformed = summary.malformed;
  if (malformed.count > 0) {
    std::string text = format_counted(malformed.count, "malformed line") + " left out:";
    for (const data::MalformedRecord& record : malformed.first) text += "\n  " + describe(record, inputs);
    const int64_t more = malformed.count - static_cast<int64_t>(malformed.first.size());
    if (more > 0) text += concat("\n  and ", format_count(more), " more");
    log_warning(text);
  }
  if (summary.num_replaced_bytes > 0)
    log_warning(format_counted(summary.num_replaced_bytes, "invalid UTF-8 byte"), " became U+FFFD");
  if (summary.num_replaced_surrogates > 0)
    log_warning(format_counted(summary.num_replaced_surrogates, "lone surrogate"), " became U+FFFD");
}

void say_summary(const data::PreprocessSummary& summary, const PreprocessRequest& request, data::TokenType type) {
  const double seconds = std::max(summary.seconds, 1e-9);
  const double record_bytes = static_cast<double>(summary.record_bytes);
  log_info("read ", format_count(summary.num_records), " records, ", format_bytes(record_bytes), " in ",
           format_duration(summary.seconds), ": ", format_fixed(record_bytes / 1e6 / seconds, 1), " MB/s, ",
           format_count(static_cast<int64_t>(static_cast<double>(summary.num_records) / seconds)), " documents/s, ",
           request.work.workers, request.work.workers == 1 ? " worker" : " workers");
  for (const data::KeySummary& key : summary.keys) {
    const int64_t bytes = key.num_tokens * data::bytes_per_token(type);
    const std::string sentences =
        request.work.split_sentences ? concat(format_count(key.num_sequences), " sentences, ") : "";
    log_info("wrote ", key.prefix, ".{bin,idx}: ", format_count(key.num_documents), " documents, ", sentences,
             format_count(key.num_tokens), " tokens (", data::name_of(type), "), ",
             format_bytes(static_cast<double>(bytes)));
    if (key.num_empty > 0)
      log_info("  ", format_counted(key.num_empty, "text"), " of '", key.key, "' without a token gave no document");
  }
  for (const data::KeySummary& key : summary.keys)
    if (request.work.split_sentences && key.num_long > 0)
      log_info("  ", format_counted(key.num_long, "document"), " of '", key.key, "' with a sentence of over ",
               data::kLongSentence, " tokens: BERT's and T5's samples leave them out, as Megatron's do");
  if (request.work.shard.count > 1)
    log_info("  this is part ", request.shard, "; when all exist: espalier data merge --datasets PART... ",
             "--output-prefix WHOLE, in the order of their numbers");
  report_problems(summary, request.work.inputs);
  if (!request.work.append_eod && !request.work.append_bos && !request.work.split_sentences &&
      request.work.json_keys == std::vector<std::string>{"text"})
    log_info(
        "  nothing marks the ends of documents, so that a GPT reads from one into the next: --append-eod ends each ",
        "with a token");
  if (request.json)
    std::puts(
        to_json(summary, request, type).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace

int preprocess_main(const std::vector<std::string>& arguments) {
  PreprocessRequest request;
  request.work.workers = num_usable_cores();
  OptionTable table("espalier preprocess", "Turns JSONL text into the token files that training reads.");
  add_rows(table, request);
  table.known_elsewhere({"--seq-length", "--seq-len", "--max-length", "--block-size"},
                        "documents are stored whole; training cuts samples of --seq-length");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  explain_unexpected_words(problems,
                           "the input is named by --input: espalier preprocess --input FILE... --output-prefix PREFIX");
  request.work.shard = parse_shard(request.shard, problems);
  if (request.work.output_prefix.ends_with('/'))
    problems.add("--output-prefix ", request.work.output_prefix,
                 " is a folder: what is written needs a name after it, as ", request.work.output_prefix, "corpus");
  std::unique_ptr<text::Tokenizer> tokenizer;
  ExitCode of_tokenizer = ExitCode::kUsage;
  if (!request.tokenizer.type.empty()) tokenizer = load_tokenizer(request.tokenizer, problems, &of_tokenizer);
  check(request.work, tokenizer.get(), problems);
  problems.raise(problems.messages().size() == 1 && of_tokenizer == ExitCode::kBadData ? of_tokenizer
                                                                                       : ExitCode::kUsage);

  request.work.tokenizer_words = words_of(request.tokenizer);
  clean_up_when_interrupted();
  const data::PreprocessSummary summary = data::preprocess(request.work, *tokenizer);
  say_summary(summary, request, data::token_type_for(tokenizer->vocab_size()));
  return 0;
}

}  // namespace espalier
