#include "curate/forget.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/file.h"
#include "base/format.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "base/version.h"
#include "curate/compressed.h"
#include "curate/fates.h"
#include "curate/input_files.h"
#include "curate/output.h"
#include "data/line_reader.h"
#include "data/store_metadata.h"
#include "data/token_store.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// In the work folder once it holds all of the new curation: what is to be deleted.
constexpr const char* kComplete = "complete.json";

std::string token_prefix(const fs::path& folder, const std::string& group) {
  return (folder / (group + "_text_document")).string();
}

// Calls use(line, number of the line from 1) for the lines of a JSONL file of this library's.
template <class Use>
void each_line(const fs::path& file, Progress& progress, Use use) {
  data::LineReader reader({file.string()});
  int64_t line_number = 0, told = 0;
  for (std::string_view line; reader.next(line);) {
    use(line, ++line_number);
    progress.advance(reader.consumed_bytes() - told);
    told = reader.consumed_bytes();
  }
}

// With the keys that the file's place in the output's folder says.
Document parsed(std::string_view line, const fs::path& folder, const std::string& name, int64_t number) {
  const fs::path file = folder / name;
  Document document;
  std::string reason;
  int64_t num_replaced = 0;
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  if (!parse_document(line, "text", document, reason, num_replaced))
    throw UserError(concat("'", file.string(), "', line ", number, ": ", reason, "; the file is not as it was written"),
                    ExitCode::kBadData);
  for (Metadata::Member& member : partition_keys(name)) document.metadata.set_json(member.key, std::move(member.json));
  return document;
}

// Puts what a complete work folder holds into place.
void complete(const fs::path& work, const fs::path& folder) {
  const Json todo = parse_json<Json>(read_file(work / kComplete), (work / kComplete).string());
  const UninterruptedSteps together;
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(work))
    if (entry.is_regular_file() && entry.path().filename() != kComplete) files.push_back(entry.path());
  for (const fs::path& file : files) fs::rename(file, folder / fs::relative(file, work));
  for (const Json& name : todo.at("delete")) fs::remove(folder / name.get<std::string>());
  fsync_directory(folder);
  fs::remove_all(work);
}

class Forgetting {
 public:
  explicit Forgetting(const ForgetRequest& request)
      : request_(request),
        folder_(request.folder),
        work_(request.folder / "forget.work"),
        index_(read_fate_index(request.folder)),
        lock_(request.folder / "forget") {
    if (fs::exists(work_ / kComplete)) {
      log_info("completing what an interrupted 'forget' had made");
      complete(work_, folder_);
    }
    fs::remove_all(work_);
    report_ = parse_json<Json>(read_file(folder_ / "report.json"), (folder_ / "report.json").string());
    for (const std::string& document : request.documents) asked_.insert(document_number(index_, document));
  }

  ForgetResult operator()() {
    find_urls();
    find_places();
    if (request_.finds_token_documents) find_token_documents();
    if (request_.dry_run) return std::move(result_);
    fs::create_directories(work_ / "fates");
    for (const auto& [output, lines] : removed_) rewrite_output(output, lines);
    rewrite_fates();
    rewrite_report();
    if (result_.removed.empty() && result_.num_samples == 0) {
      fs::remove_all(work_);
      return std::move(result_);
    }
    write_file_atomically(work_ / kComplete, Json({{"delete", deleted_}}).dump() + "\n");
    complete(work_, folder_);
    return std::move(result_);
  }

 private:
  size_t num_outputs() const { return index_.at("outputs").size(); }
  std::string output_name(size_t output) const { return index_.at("outputs").at(output); }
  fs::path output_file(size_t output) const { return folder_ / output_name(output); }
  Json& group_of(size_t output) {
    for (Json& group : report_.at("outputs"))
      if (group.at("file") == index_.at("outputs").at(output)) return group;
    throw UserError(concat("'", (folder_ / "report.json").string(), "' has no output ",
                           index_.at("outputs").at(output).get<std::string>(), ", which the fates have"),
                    ExitCode::kBadData);
  }

  // The places of documents with one of the URLs.
  void find_urls() {
    if (request_.urls.empty()) return;
    std::set<std::string> missing(request_.urls.begin(), request_.urls.end());
    const std::set<std::string> wanted = missing;
    int64_t bytes = 0;
    for (size_t output = 0; output < num_outputs(); ++output) bytes += file_size_bytes(output_file(output));
    Progress progress("look for URLs", bytes, Progress::Unit::kBytes);
    for (size_t output = 0; output < num_outputs(); ++output)
      each_line(output_file(output), progress, [&](std::string_view line, int64_t number) {
        const std::optional<std::string> url =
            parsed(line, folder_, output_name(output), number).metadata.text(request_.url_key);
        if (!url || !wanted.contains(*url)) return;
        removed_[output].insert(number);
        missing.erase(*url);
      });
    progress.finish();
    result_.urls_not_found.assign(missing.begin(), missing.end());
  }

  // Numbers to places, and places to numbers.
  void find_places() {
    std::set<int64_t> absent = asked_;
    std::vector<ForgetResult::Place>& removed = result_.removed;
    for (size_t shard = 0; shard < index_.at("shard_ends").size(); ++shard)
      for (const Json& fate : fates_of(shard)) {
        if (!fate.contains("o")) continue;
        const auto number = fate.at("n").get<int64_t>(), line = fate.at("l").get<int64_t>();
        const auto output = fate.at("o").get<size_t>();
        const auto found = removed_.find(output);
        const bool by_url = found != removed_.end() && found->second.contains(line);
        if (!by_url && !asked_.contains(number)) continue;
        removed.push_back({number, index_.at("outputs").at(output), line});
        removed_[output].insert(line);
        forgotten_.insert(number);
        absent.erase(number);
      }
    result_.in_no_output.assign(absent.begin(), absent.end());
  }
  std::vector<Json> fates_of(size_t shard) const {
    std::vector<Json> fates;
    const fs::path file = fate_shard_file(folder_ / "fates", shard);
    for (const std::string& line : split(read_compressed(file), '\n'))
      if (!line.empty()) fates.push_back(parse_json<Json>(line, file.string()));
    return fates;
  }

  // Which documents of the token files they are.
  void find_token_documents() {
    for (const auto& [output, lines] : removed_) {
      const Json& group = group_of(output);
      const std::string prefix = token_prefix(folder_, group.at("name"));
      if (group.value("tokens", int64_t{0}) == 0) continue;
      const data::TokenStore store(prefix);
      const auto num_lines = group.at("documents").get<int64_t>();
      std::vector<std::vector<int64_t>> without(2);
      if (store.num_documents() != num_lines) without = lines_without_tokens(output);
      const std::vector<int64_t> line_of = lines_of_documents(store, num_lines, without);
      for (ForgetResult::Place& place : result_.removed) {
        const auto found = std::lower_bound(line_of.begin(), line_of.end(), place.line);
        if (place.output != index_.at("outputs").at(output) || found == line_of.end() || *found != place.line) continue;
        place.token_document = found - line_of.begin();
        place.token_prefix = prefix;
      }
    }
  }
  // Those whose text is empty, and those of blanks, for which some tokenizers give no tokens.
  std::vector<std::vector<int64_t>> lines_without_tokens(size_t output) {
    std::vector<std::vector<int64_t>> lines(2);
    Progress progress("read " + output_file(output).filename().string(), file_size_bytes(output_file(output)),
                      Progress::Unit::kBytes);
    each_line(output_file(output), progress, [&](std::string_view line, int64_t number) {
      const Document document = parsed(line, folder_, output_name(output), number);
      if (document.text.empty()) lines[0].push_back(number);
      if (text::python::strip(document.text).empty()) lines[1].push_back(number);
    });
    progress.finish();
    return lines;
  }

  void rewrite_output(size_t output, const std::set<int64_t>& lines) {
    const fs::path file = output_file(output);
    Json& group = group_of(output);
    const auto name = group.at("name").get<std::string>();
    fs::create_directories((work_ / output_name(output)).parent_path());
    const std::unique_ptr<Output> kept = document_output(work_ / output_name(output), "text");
    Progress progress("rewrite " + file.filename().string(), file_size_bytes(file), Progress::Unit::kBytes);
    int64_t num_lines = 0, bytes = 0;
    std::set<std::string> catalogue_keys;
    data::Catalogue catalogue;
    if (group.contains("catalogue"))
      for (const auto& [key, values] : group.at("catalogue").items()) catalogue_keys.insert(key);
    std::vector<int64_t> empty, blank;  // lines whose text may have given no tokens
    each_line(file, progress, [&](std::string_view line, int64_t number) {
      num_lines = number;
      const Document document = parsed(line, folder_, output_name(output), number);
      if (document.text.empty()) empty.push_back(number);
      if (text::python::strip(document.text).empty()) blank.push_back(number);
      if (lines.contains(number)) {
        bytes += static_cast<int64_t>(document.text.size());
        return;
      }
      kept->write_line(line);
      note_catalogue(catalogue_keys, document, catalogue);
    });
    kept->prepare();
    kept->move_into_place();
    progress.finish();
    if (num_lines != group.at("documents") || *lines.rbegin() > num_lines)
      throw UserError(concat("'", file.string(), "': expected ", group.at("documents").get<int64_t>(),
                             " lines by the report, found ", num_lines, "; the file is not as it was written"),
                      ExitCode::kBadData);
    group["documents"] = num_lines - static_cast<int64_t>(lines.size());
    group["bytes"] = group.at("bytes").get<int64_t>() - bytes;
    if (group.contains("catalogue")) group["catalogue"] = catalogue;
    if (group.contains("tokens")) rewrite_tokens(group, name, lines, num_lines, {empty, blank});
    result_.groups.push_back({name, output_name(output), group.at("documents"), group.at("bytes"),
                              group.contains("tokens") ? group.at("tokens").get<int64_t>() : -1});
  }

  // The line of each document of the token files: texts without tokens gave none.
  static std::vector<int64_t> lines_of_documents(const data::TokenStore& store, int64_t num_lines,
                                                 const std::vector<std::vector<int64_t>>& guesses) {
    std::vector<std::vector<int64_t>> without = {{}};
    without.insert(without.end(), guesses.begin(), guesses.end());
    for (const std::vector<int64_t>& left_out : without) {
      if (num_lines - static_cast<int64_t>(left_out.size()) != store.num_documents()) continue;
      std::vector<int64_t> lines;
      for (int64_t line = 1; line <= num_lines; ++line)
        if (!std::binary_search(left_out.begin(), left_out.end(), line)) lines.push_back(line);
      return lines;
    }
    throw UserError(
        concat("'", store.prefix(), "' has ", format_count(store.num_documents()), " documents for ",
               format_count(num_lines), " lines of text, of which ", guesses[0].size(), " are empty: which ",
               "is which cannot be told. Run the recipe again with --overwrite, without these ",
               "documents in its inputs."),
        ExitCode::kBadData);
  }

  void rewrite_tokens(Json& group, const std::string& name, const std::set<int64_t>& lines, int64_t num_lines,
                      const std::vector<std::vector<int64_t>>& guesses) {
    const data::TokenStore store(token_prefix(folder_, name));
    const std::vector<int64_t> line_of = lines_of_documents(store, num_lines, guesses);
    data::TokenStoreWriter writer(token_prefix(work_, name), store.type());
    std::vector<int32_t> ids;
    for (int64_t document = 0; document < store.num_documents(); ++document) {
      if (lines.contains(line_of[static_cast<size_t>(document)])) continue;
      for (int64_t sequence = store.first_sequence(document); sequence < store.first_sequence(document + 1);
           ++sequence) {
        ids.resize(static_cast<size_t>(store.size(sequence)));
        store.read(sequence, 0, store.size(sequence), ids.data());
        writer.add_sequence(ids);
      }
      writer.end_document();
    }
    group["tokens"] = writer.num_tokens();
    if (writer.num_documents() == 0) {  // token files without a document are of no use
      for (const char* ending : {".bin", ".idx", ".meta.json"}) deleted_.push_back(name + "_text_document" + ending);
      return;
    }
    writer.finish();
    std::optional<data::StoreMetadata> metadata = data::read_metadata(store.files());
    if (!metadata) return;
    metadata->program = concat("espalier ", kVersion);
    metadata->num_documents = writer.num_documents();
    metadata->num_sequences = writer.num_sequences();
    metadata->num_tokens = writer.num_tokens();
    if (group.contains("catalogue")) metadata->catalogue = group.at("catalogue").get<data::Catalogue>();
    metadata->options.emplace_back("forgotten", concat(store.num_documents() - writer.num_documents(), " documents"));
    data::write_metadata(token_prefix(work_, name), *metadata);
  }

  void rewrite_fates() {
    std::unordered_map<size_t, std::vector<int64_t>> gone;  // sorted
    for (const auto& [output, lines] : removed_) gone[output].assign(lines.begin(), lines.end());
    for (size_t shard = 0; shard < index_.at("shard_ends").size(); ++shard) {
      std::string text;
      bool changed = false;
      int64_t told = -1;  // pieces of one document share a line
      for (const Json& fate : fates_of(shard)) {
        const auto found = fate.contains("o") ? gone.find(fate.at("o").get<size_t>()) : gone.end();
        if (found == gone.end()) {
          text += fate.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
          continue;
        }
        const auto number = fate.at("n").get<int64_t>(), line = fate.at("l").get<int64_t>();
        const auto before = std::lower_bound(found->second.begin(), found->second.end(), line);
        const bool goes = before != found->second.end() && *before == line;
        changed |= goes || before != found->second.begin();
        if (!goes) text += place_line(number, found->first, line - (before - found->second.begin()));
        if (goes && told != number) text += forgotten_line(number, request_.reason);
        if (goes) told = number;
      }
      if (changed) write_file_atomically(fate_shard_file(work_ / "fates", shard), compress(text));
    }
  }

  void rewrite_report() {
    std::set<int64_t> silent = asked_;
    silent.insert(forgotten_.begin(), forgotten_.end());
    for (Json& step : report_.at("steps")) {
      Json kept = Json::array();
      for (const Json& sample : step.at("samples"))
        if (silent.contains(sample.at("number").get<int64_t>()))
          ++result_.num_samples;
        else
          kept.push_back(sample);
      step["samples"] = kept;
    }
    for (const int64_t number : forgotten_)
      report_["forgotten"].push_back({{"document", number}, {"reason", request_.reason}});
    write_reports(report_, work_);
    if (!fs::exists(folder_ / "train-files.txt")) return;
    std::string list;
    for (const Json& group : report_.at("outputs")) {
      const auto name = group.at("name").get<std::string>();
      if (group.at("tokens") != 0)
        list += concat(group.at("tokens").get<int64_t>(), " ", name, "_text_document ", name, "\n");
    }
    write_file_atomically(work_ / "train-files.txt", list);
  }

  const ForgetRequest& request_;
  fs::path folder_, work_;
  Json index_, report_;
  PendingFile lock_;
  std::set<int64_t> asked_, forgotten_;
  std::map<size_t, std::set<int64_t>> removed_;  // lines of outputs
  std::vector<std::string> deleted_;
  ForgetResult result_;
};

}  // namespace

ForgetResult forget(const ForgetRequest& request) {
  return read_fields(concat("report.json and fates of '", request.folder.string(), "'"),
                     [&] { return Forgetting(request)(); });
}

Json to_json(const ForgetResult& result) {
  Json removed = Json::array(), groups = Json::array();
  for (const ForgetResult::Place& place : result.removed)
    removed.push_back({{"document", place.number},
                       {"output", place.output},
                       {"line", place.line},
                       {"token_document", place.token_document < 0 ? Json() : Json(place.token_document)}});
  for (const GroupTally& group : result.groups) {
    Json now = {{"name", group.name}, {"documents", group.num_documents}, {"bytes", group.bytes}};
    if (group.num_tokens >= 0) now["tokens"] = group.num_tokens;
    groups.push_back(now);
  }
  return {{"removed", removed},
          {"in_no_output", result.in_no_output},
          {"urls_not_found", result.urls_not_found},
          {"samples_removed", result.num_samples},
          {"outputs", groups}};
}

}  // namespace espalier::curate
