// espalier curate forget: documents out of a finished curation.
#include <cstdio>
#include <filesystem>

#include "apps/curate/commands.h"
#include "apps/data/run_samples.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "curate/forget.h"

namespace espalier {
namespace {

// The lines of a file that are not empty.
void append_lines(const std::string& file, std::vector<std::string>& lines) {
  if (file.empty()) return;
  for (const std::string& line : split(read_file(file), '\n'))
    if (!strip(line).empty()) lines.push_back(strip(line));
}

void say(const curate::ForgetResult& result, const curate::ForgetRequest& request) {
  log_info(request.dry_run ? "would remove " : "removed ",
           format_counted(static_cast<int64_t>(result.removed.size()), "line"));
  for (const curate::ForgetResult::Place& place : result.removed)
    log_info("  document ", place.number, ": line ", place.line, " of ", place.output);
  for (const int64_t number : result.in_no_output)
    log_info("  document ", number, " is in no output; 'curate why' says why");
  for (const std::string& url : result.urls_not_found) log_info("  no output has ", url, " under ", request.url_key);
  if (result.num_samples > 0) log_info(format_counted(result.num_samples, "sample"), " of the report went too");
  for (const curate::GroupTally& group : result.groups)
    log_info("  ", group.name, " has ", format_count(group.num_documents), " documents",
             group.num_tokens < 0 ? "" : concat(", ", format_count(group.num_tokens), " tokens"), " now");
  if (!request.dry_run && !result.removed.empty())
    log_info("the inputs still hold them: the recipe with --overwrite, or in another folder, includes them again");
}

// What a run has read, or will read, of one document: "steps 3, 17 (trained), 40 (to come)".
struct SeenBy {
  std::string run;
  int64_t document = 0;  // of the curation
  std::vector<std::pair<int64_t, std::string>> steps;
};

// The readings of what is to be forgotten, while the token files are as the runs read them.
std::vector<SeenBy> find_readings(const std::vector<std::string>& runs, const curate::ForgetResult& result) {
  std::vector<SeenBy> all;
  for (const std::string& run : runs) {
    RunSamples samples(run, std::nullopt, {});
    for (const std::string& change : samples.order_changes())
      log_warning(run, ": ", change, ": the steps that are told hold for the token files as they are now");
    for (const curate::ForgetResult::Place& place : result.removed) {
      if (place.token_document < 0) continue;
      std::vector<data::TracedFile> files;
      for (const data::TracedFile& file : samples.train().traced_files()) {
        std::error_code error;
        if (std::filesystem::equivalent(file.store->prefix() + ".idx", place.token_prefix + ".idx", error))
          files.push_back(file);
      }
      SeenBy seen{run, place.number, {}};
      int64_t num_unread = 0;
      if (!files.empty())
        for (const Sighting& sighting : find_sightings(samples, files, place.token_document, num_unread))
          if (seen.steps.empty() || seen.steps.back().first != sighting.place.step)
            seen.steps.emplace_back(sighting.place.step, samples.fate(sighting.place.step));
      all.push_back(std::move(seen));
    }
  }
  return all;
}

void say(const std::vector<SeenBy>& readings) {
  constexpr size_t kShown = 12;
  for (const SeenBy& seen : readings) {
    std::string text;
    for (size_t at = 0; at < std::min(kShown, seen.steps.size()); ++at)
      text += concat(at == 0 ? "steps " : ", ", seen.steps[at].first, " (", seen.steps[at].second, ")");
    if (seen.steps.size() > kShown) text += concat(" and ", seen.steps.size() - kShown, " more");
    log_info("  ", seen.run, ": document ", seen.document, ": ", text.empty() ? "in no step" : text);
  }
}

nlohmann::ordered_json to_json(const std::vector<SeenBy>& readings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const SeenBy& seen : readings) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const auto& [step, fate] : seen.steps) steps.push_back({{"step", step}, {"fate", fate}});
    all.push_back({{"run", seen.run}, {"document", seen.document}, {"steps", steps}});
  }
  return all;
}

}  // namespace

int curate_forget_main(const std::vector<std::string>& arguments) {
  curate::ForgetRequest request;
  std::vector<std::string> folder, runs;
  std::string documents, urls;
  bool json = false;
  OptionTable table("espalier curate forget",
                    "Removes documents from a finished curation: from its JSONL, its token files and the samples of "
                    "its report; their fates record it.");
  table.positional("FOLDER", folder, "the folder of the recipe's output", 1, 1);
  table.add("--document", request.documents, "numbers as in the report, or FILE:LINE of an input").value_name("X");
  table.add("--documents", documents, "a file with one of them a line").value_name("FILE");
  table.add("--url", request.urls, "documents with these URLs, letter by letter").value_name("URL");
  table.add("--urls", urls, "a file with a URL a line").value_name("FILE");
  table.add("--url-key", request.url_key, "key of a document that holds its URL").value_name("KEY");
  table.add("--reason", request.reason, "what the fates and the report will say").value_name("TEXT");
  table.add("--runs", runs, "folders of runs (--save of each): which of their steps read the documents")
      .value_name("FOLDER");
  table.add("--dry-run", request.dry_run, "change nothing: only say what would go");
  table.add("--json", json, "what went, as JSON on standard output");
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  problems.raise();
  request.folder = folder.front();
  append_lines(documents, request.documents);
  append_lines(urls, request.urls);
  if (request.documents.empty() && request.urls.empty())
    throw UserError("nothing is to be forgotten; name documents with --document, --documents, --url or --urls",
                    ExitCode::kUsage);
  clean_up_when_interrupted();
  std::vector<SeenBy> readings;
  if (!runs.empty()) {
    curate::ForgetRequest look = request;
    look.dry_run = look.finds_token_documents = true;
    readings = find_readings(runs, curate::forget(look));
  }
  const curate::ForgetResult result = curate::forget(request);
  say(result, request);
  say(readings);
  nlohmann::ordered_json object = to_json(result);
  if (!runs.empty()) object["runs"] = to_json(readings);
  if (json) std::puts(object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace espalier
