// espalier tokenizer: text to ids and back, what a tokenizer is, and a new one from text.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/tokenizer/options.h"
#include "apps/tokenizer/train.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data/json_record.h"
#include "data/record_reader.h"
#include "text/tokenizer.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

struct TokenizerRequest {
  std::string tokenizer;
  text::TokenizerOptions options;
  bool jsonl = false, skip_special_tokens = false, json = false;
};

void add_tokenizer_row(OptionTable& table, TokenizerRequest& request) {
  table
      .add("--tokenizer", request.tokenizer,
           "tokenizer.json, vocab.json with merges.txt next to it, vocab.txt, a SentencePiece .model, ranks of "
           "tiktoken, "
           "or a folder that holds one of these; or as Megatron names it:")
      .value_name("FILE");
  table.group("tokenizer");
  add_tokenizer_options(table, request.options);
}

std::unique_ptr<text::Tokenizer> load(const TokenizerRequest& request) {
  if (request.tokenizer.empty() == request.options.type.empty()) {
    throw UserError(request.tokenizer.empty() ? "--tokenizer (a file or folder) or --tokenizer-type is required"
                                              : "--tokenizer and --tokenizer-type both name the tokenizer; give one",
                    ExitCode::kUsage);
  }
  if (!request.tokenizer.empty()) return text::open_tokenizer(request.tokenizer);
  return text::load_tokenizer(request.options);
}

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

// Calls use(record, line) for every line of standard input.
template <class Use>
void for_each_record(Use&& use) {
  data::RecordReader reader({"-"}, {{.file = 0, .begin = 0, .end = data::kToTheEnd}});
  data::RecordBlock block;
  int64_t line = 0;
  while (reader.next(block)) {
    if (block.skipped_bytes > 0) {
      throw UserError(concat("standard input:", line + 1, ": a record of ", format_count(block.skipped_bytes),
                             " bytes; at most ", format_count(data::kMaxRecordBytes), " are read"),
                      ExitCode::kBadData);
    }
    data::RecordCursor cursor(block.bytes);
    for (std::string_view record; cursor.next(record);) use(record, ++line);
  }
}

// Paths may be no UTF-8.
template <class Json>
std::string shown(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void print_ids(const std::vector<int32_t>& ids, bool as_json) {
  std::string text = as_json ? "{\"ids\": [" : "";
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) text += as_json ? ", " : " ";
    text += std::to_string(ids[i]);
  }
  text += as_json ? "]}\n" : "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
}

int encode_main(const Words& arguments) {
  TokenizerRequest request;
  OptionTable table("espalier tokenizer encode", "Turns text on standard input into ids on standard output.");
  add_tokenizer_row(table, request);
  table.add("--jsonl", request.jsonl,
            "read {\"text\": ...} lines and write {\"ids\": [...]} lines; otherwise all of the input is one text and "
            "its ids are one line");
  table.known_elsewhere({"--input", "--text"}, "text is read from standard input: ... encode --tokenizer T < FILE");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  explain_unexpected_words(
      problems, "text is read from standard input: printf %s 'some text' | espalier tokenizer encode --tokenizer FILE");
  problems.raise();
  const auto tokenizer = load(request);
  const auto encoder = tokenizer->new_encoder();
  data::JsonRecord parsed({"text"}, /*replace_lone_surrogates=*/true);
  std::vector<int32_t> ids;
  const auto encode = [&](std::string_view text) {
    ids.clear();
    encoder->encode(text, ids);
    print_ids(ids, request.jsonl);
  };
  if (request.jsonl) {
    for_each_record([&](std::string_view record, int64_t line) {
      if (!parsed.parse(record)) {
        throw UserError(concat("standard input:", line, ": ", parsed.problem().reason), ExitCode::kBadData);
      }
      encode(parsed.text(0));
    });
  } else {
    encode(read_standard_input());
  }
  const int64_t num_replaced = encoder->num_replaced() + parsed.num_replaced();
  if (num_replaced > 0) log_warning(format_count(num_replaced), " places that are not UTF-8 became U+FFFD");
  return 0;
}

// An id of the tokenizer. Its decoder would leave out any other without a word.
int32_t parse_id(const nlohmann::json& value, const text::Tokenizer& tokenizer, const std::string& place) {
  if (!value.is_number_integer())
    throw UserError(concat(place, ": expected whole numbers, found ", shown(value)), ExitCode::kBadData);
  if (value < 0 || value >= tokenizer.vocab_size())
    throw UserError(concat(place, ": ", shown(value), " is not an id of this tokenizer, which has 0 to ",
                           tokenizer.vocab_size() - 1),
                    ExitCode::kBadData);
  return value.get<int32_t>();
}

std::vector<int32_t> parse_ids(const nlohmann::json& record, const text::Tokenizer& tokenizer,
                               const std::string& place) {
  if (!record.is_object() || !record.contains("ids") || !record["ids"].is_array())
    throw UserError(concat(place, ": expected {\"ids\": [whole numbers]}"), ExitCode::kBadData);
  std::vector<int32_t> ids;
  for (const auto& id : record["ids"]) ids.push_back(parse_id(id, tokenizer, place));
  return ids;
}

int decode_main(const Words& arguments) {
  TokenizerRequest request;
  OptionTable table("espalier tokenizer decode", "Turns ids on standard input into text on standard output.");
  add_tokenizer_row(table, request);
  table.add("--jsonl", request.jsonl,
            "read {\"ids\": [...]} lines and write {\"text\": ...} lines; otherwise ids are separated by spaces and "
            "make one text");
  table.add("--skip-special-tokens", request.skip_special_tokens, "leave out special tokens");
  table.known_elsewhere({"--input", "--ids"}, "ids are read from standard input: ... decode --tokenizer T < FILE");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  explain_unexpected_words(
      problems, "ids are read from standard input: echo '15496 995' | espalier tokenizer decode --tokenizer FILE");
  problems.raise();
  const auto tokenizer = load(request);
  if (request.jsonl) {
    for_each_record([&](std::string_view record, int64_t line) {
      const nlohmann::json parsed = nlohmann::json::parse(record, nullptr, /*allow_exceptions=*/false);
      const std::vector<int32_t> ids = parse_ids(parsed, *tokenizer, concat("standard input:", line));
      const std::string text = tokenizer->decode(ids, request.skip_special_tokens);
      std::puts(shown(nlohmann::json{{"text", text}}).c_str());
    });
    return 0;
  }
  std::vector<int32_t> ids;
  for (const std::string& word : split_blanks(read_standard_input())) {
    const nlohmann::json number = nlohmann::json::parse(word, nullptr, /*allow_exceptions=*/false);
    ids.push_back(parse_id(number.is_number() ? number : nlohmann::json(word), *tokenizer, "standard input"));
  }
  const std::string text = tokenizer->decode(ids, request.skip_special_tokens);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}

int tokenizer_inspect_main(const Words& arguments) {
  TokenizerRequest request;
  OptionTable table("espalier tokenizer inspect", "Shows what a tokenizer is.");
  add_tokenizer_row(table, request);
  table.add("--json", request.json, "as one JSON object");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  explain_unexpected_words(problems,
                           "the tokenizer is named by --tokenizer: espalier tokenizer inspect --tokenizer FILE");
  problems.raise();
  const auto tokenizer = load(request);
  nlohmann::ordered_json special = nlohmann::json::array();
  for (const int32_t id : tokenizer->special_ids())
    special.push_back({{"id", id}, {"piece", tokenizer->id_to_piece(id)}});
  nlohmann::ordered_json eod;
  if (tokenizer->eod()) eod = {{"id", *tokenizer->eod()}, {"piece", tokenizer->id_to_piece(*tokenizer->eod())}};
  if (request.json) {
    nlohmann::ordered_json files = nlohmann::json::array();
    for (const auto& [name, path] : tokenizer->files()) files.push_back(path);
    const nlohmann::ordered_json facts = {{"description", tokenizer->description()},
                                          {"kind", tokenizer->kind()},
                                          {"vocab_size", tokenizer->vocab_size()},
                                          {"eod", eod},
                                          {"special_tokens", special},
                                          {"chat_template", tokenizer->chat_template()},
                                          {"files", files}};
    std::puts(shown(facts).c_str());
    return 0;
  }
  std::printf("%s\n  kind              %s\n  vocabulary        %s ids\n", tokenizer->description().c_str(),
              tokenizer->kind().c_str(), format_count(tokenizer->vocab_size()).c_str());
  std::printf("  end of document   %s\n", eod.is_null() ? "none" : concat(eod["id"], "  ", eod["piece"]).c_str());
  const std::string chat_template = tokenizer->chat_template();
  if (!chat_template.empty())
    std::printf("  chat template     %s bytes\n", format_count(static_cast<int64_t>(chat_template.size())).c_str());
  for (const auto& token : special)
    std::printf("  special           %s\n", concat(token["id"], "  ", token["piece"]).c_str());
  return 0;
}

}  // namespace

const std::vector<Command>& tokenizer_commands() {
  static const std::vector<Command> list = {
      {"train", "a byte-level BPE from text", tokenizer_train_main},
      {"encode", "text to ids", encode_main},
      {"decode", "ids to text", decode_main},
      {"inspect", "what a tokenizer is", tokenizer_inspect_main},
  };
  return list;
}

int tokenizer_main(const std::vector<std::string>& arguments) {
  return run_subcommand("espalier tokenizer", tokenizer_commands(), arguments);
}

}  // namespace espalier
