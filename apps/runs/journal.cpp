#include <cstdio>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "base/file.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "report/journal.h"

namespace espalier {
namespace {

nlohmann::ordered_json journal_json(const report::Journal& journal) {
  using Json = nlohmann::ordered_json;
  Json attempts = Json::array();
  for (const report::Attempt& attempt : journal.attempts) {
    Json events = Json::array();
    for (const report::RunEvent& event : attempt.events)
      events.push_back({{"time", event.time}, {"event", event.event}, {"step", event.step}, {"detail", event.detail}});
    attempts.push_back({{"start", attempt.start},
                        {"end", attempt.end ? Json(*attempt.end) : Json()},
                        {"first_step", attempt.first_step},
                        {"last_step", attempt.last_step},
                        {"steps_lost", attempt.steps_lost},
                        {"seconds_down", attempt.seconds_down},
                        {"events", events}});
  }
  const auto share = journal.effective_share();
  return {{"begin", journal.begin},
          {"end", journal.end},
          {"steps_kept", journal.steps_kept},
          {"steps_lost", journal.steps_lost},
          {"seconds_down", journal.seconds_down},
          {"median_step_seconds", journal.median_step_seconds},
          {"ettr", share ? Json(*share) : Json()},
          {"attempts", attempts}};
}

}  // namespace

int runs_journal_main(const std::vector<std::string>& arguments) {
  std::vector<std::string> folders;
  std::string output;
  bool json = false, overwrite = false;
  OptionTable table("espalier runs journal",
                    "Reports what happened to a run, attempt by attempt, and what it cost, as a page of Markdown.");
  table.positional("FOLDER", folders, "run folder (--save of the run)", 1, 1);
  table.add("--output", output, "write the page to this file, which may be an earlier journal").value_name("FILE");
  table.add("--overwrite", overwrite, "replace an existing file that is none");
  table.add("--json", json, "one JSON object instead");
  if (!table.parse(arguments)) return 0;
  if (!output.empty() && !overwrite && !json)
    if (const std::string other = describe_other_file(output, report::kJournalHead, "a journal of a run");
        !other.empty())
      throw UserError(concat("--output: ", other, " Or add --overwrite."), ExitCode::kCannotCreate);
  const report::Run run = report::read_run(folders[0]);
  const report::Journal journal = report::read_journal(run);
  if (json)
    print_json(journal_json(journal));
  else if (output.empty())
    std::fputs(report::journal_text(run, journal).c_str(), stdout);
  else
    write_file_atomically(output, report::journal_text(run, journal));
  return 0;
}

}  // namespace espalier
