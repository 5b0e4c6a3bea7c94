// espalier curate index, find: is this text in the training data?
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "apps/curate/commands.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_tree.h"
#include "base/thread_pool.h"
#include "curate/text_index.h"
#include "text/utf8.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

struct FindRequest {
  std::vector<std::string> words;  // FOLDER, and perhaps TEXT
  std::string file;
  int64_t places = 10, least = 50;
  bool json = false;
};

std::string question_of(const FindRequest& request) {
  std::string text = request.words.size() > 1 ? request.words[1] : "";
  if (request.file == "-")
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
  else if (!request.file.empty())
    text = read_file(request.file);
  if (!request.file.empty() && text.ends_with('\n')) text.pop_back();  // of the file, not of the text
  std::string storage;
  int64_t num_replaced = 0;
  return std::string(text::repair_utf8(text, storage, num_replaced));
}

Json to_json(const curate::TextIndex::Place& place) {
  return {{"document", place.document}, {"file", place.file},     {"record", place.record}, {"source", place.source},
          {"begin", place.begin},       {"before", place.before}, {"after", place.after}};
}

Json answer_of(const curate::TextIndex& index, const std::string& question, const FindRequest& request) {
  Json places = Json::array(), parts = Json::array();
  const int64_t count = index.count(question);
  for (const curate::TextIndex::Place& place : index.places(question, request.places)) places.push_back(to_json(place));
  if (count == 0)
    for (const curate::TextIndex::Part& part : index.parts(question, request.least)) {
      const std::string text = question.substr(part.begin, part.size);
      parts.push_back({{"begin", part.begin},
                       {"bytes", part.size},
                       {"text", text},
                       {"count", part.count},
                       {"first", to_json(index.places(text, 1).front())}});
    }
  return {{"text", question}, {"bytes", question.size()}, {"count", count}, {"places", places}, {"parts", parts}};
}

// One line of a text for people.
std::string in_one_line(const Json& text) {
  std::string line = text.get<std::string>();
  for (char& c : line)
    if (static_cast<uint8_t>(c) < 32) c = ' ';
  return line;
}

std::string place_of(const Json& place) {
  const auto source = place.at("source").get<std::string>();
  return concat("document ", place.at("document").get<int64_t>(), ", ", place.at("file").get<std::string>(), ":",
                place.at("record").get<int64_t>(), source.empty() ? "" : ", source " + source, ", byte ",
                place.at("begin").get<int64_t>());
}

void say(const Json& answer, const curate::TextIndex& index, int64_t least) {
  const auto count = answer.at("count").get<int64_t>();
  std::printf("%s in %s documents of %s\n", count == 0 ? "not found" : (format_counted(count, "place")).c_str(),
              format_count(index.num_documents()).c_str(),
              format_bytes(static_cast<double>(index.num_bytes())).c_str());
  for (const Json& place : answer.at("places"))
    std::printf("  %s: %s[...]%s\n", place_of(place).c_str(), in_one_line(place.at("before")).c_str(),
                in_one_line(place.at("after")).c_str());
  if (count > 0) return;
  for (const Json& part : answer.at("parts"))
    std::printf("  bytes %lld to %lld of the text: %s; first in %s: %s\n",
                static_cast<long long>(part.at("begin").get<int64_t>()),
                static_cast<long long>(part.at("begin").get<int64_t>() + part.at("bytes").get<int64_t>()),
                format_counted(part.at("count"), "place").c_str(), place_of(part.at("first")).c_str(),
                in_one_line(part.at("text")).c_str());
  if (answer.at("parts").empty()) std::printf("  nor any stretch of %lld bytes of it\n", static_cast<long long>(least));
}

}  // namespace

int curate_index_main(const std::vector<std::string>& arguments) {
  curate::TextIndexPlan plan;
  curate::InputSource source;
  std::string output, memory = "4GiB";
  bool overwrite = false, json = false;
  plan.workers = num_usable_cores();
  OptionTable table("espalier curate index",
                    "Makes an index of texts that answers whether a text is in them ('espalier curate find').");
  table.add("--input", source.files, "files of documents, plain or compressed").value_name("FILE").required();
  add_format_row(table, source);
  table.add("--text-key", source.text_key, "key of the text in a record").value_name("KEY");
  table.add("--source-key", plan.source_key, "key of a record that says where it is from").value_name("KEY");
  table.add("--output", output, "folder of the index; five times the size of the texts").value_name("DIR").required();
  table.add("--loose", plan.loose, "ignore case, and treat all white space as equal");
  table.add("--workers", plan.workers, "threads, each with a shard of its own")
      .minimum(1)
      .maximum(4096)
      .default_text("all cores");
  table.add("--memory", memory, "what all of them may hold; it decides how large the shards are").value_name("BYTES");
  table.add("--overwrite", overwrite, "replace an existing index");
  table.add("--json", json, "counts as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  check(source, "--input", problems);
  const std::optional<int64_t> bytes = parse_bytes(memory);
  if (!bytes || *bytes < 1) problems.add("--memory ", memory, ": expected an amount such as 512MiB");
  for (const std::string& file : source.files)
    if (file == "-") problems.add("--input -: standard input cannot be read again after an interruption; name files");
  if (!overwrite && std::filesystem::exists(std::filesystem::path(output) / "index.json"))
    problems.add("--output ", output, " holds an index; --overwrite rebuilds it");
  problems.raise();

  clean_up_when_interrupted(kResumes);
  plan.sources = {source};
  plan.folder = output;
  plan.memory_bytes = *bytes;
  const curate::TextIndexSummary summary = build_text_index(plan);
  log_info("indexed ", format_count(summary.num_documents), " documents, ",
           format_bytes(static_cast<double>(summary.num_bytes)), ", in ", format_counted(summary.num_shards, "shard"),
           " and ", format_duration(summary.seconds));
  if (summary.input.num_malformed > 0)
    log_warning(format_counted(summary.input.num_malformed, "record"),
                summary.input.num_malformed == 1 ? " is not a document: " : " are not documents, the first ",
                summary.input.first_malformed.front());
  if (json)
    std::puts(Json({{"documents", summary.num_documents},
                    {"bytes", summary.num_bytes},
                    {"shards", summary.num_shards},
                    {"input", to_json(summary.input)},
                    {"seconds", summary.seconds}})
                  .dump(2)
                  .c_str());
  return 0;
}

int curate_find_main(const std::vector<std::string>& arguments) {
  FindRequest request;
  OptionTable table("espalier curate find", "Says whether a text is in the documents of an index, and where.");
  table.positional("FOLDER TEXT", request.words, "the index, and what is looked for", 1, 2);
  table.add("--file", request.file, "look for what is in this file; - is standard input").value_name("FILE");
  table.add("--places", request.places, "how many places are reported").minimum(0);
  table.add("--least", request.least, "for a text that is not found, report the stretches of this many bytes that are")
      .minimum(1);
  table.add("--json", request.json, "the answer as JSON");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  if ((request.words.size() > 1) != request.file.empty()) problems.add("give the text, or --file FILE: one of them");
  problems.raise();
  const curate::TextIndex index(request.words.front());
  const std::string question = index.normal(question_of(request));
  if (question.empty()) throw UserError("an empty text is everywhere; name one of a byte and more", ExitCode::kUsage);
  const Json answer = answer_of(index, question, request);
  if (request.json)
    std::puts(answer.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  else
    say(answer, index, request.least);
  return 0;
}

}  // namespace espalier
