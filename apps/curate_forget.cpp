// espalier curate forget: documents out of a finished curation.
#include <cstdio>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "curate/forget.h"
#include "curate_commands.h"

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
    log_info("the inputs still hold them: running the recipe again includes them again");
}

}  // namespace

int curate_forget_main(const std::vector<std::string>& arguments) {
  curate::ForgetRequest request;
  std::vector<std::string> folder;
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
  table.add("--dry-run", request.dry_run, "change nothing: only report what would be removed");
  table.add("--json", json, "what was removed, as JSON on standard output");
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
  const curate::ForgetResult result = curate::forget(request);
  say(result, request);
  if (json) std::puts(to_json(result).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
  return 0;
}

}  // namespace espalier
