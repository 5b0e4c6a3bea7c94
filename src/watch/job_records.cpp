#include "watch/job_records.h"

#include <cstdlib>

#include "base/error.h"
#include "base/format.h"
#include "base/shell.h"
#include "launch/nodelist.h"
#include "watch/scheduler.h"

namespace espalier::watch {
namespace {

constexpr const char* kFields = "JobIDRaw,State,ExitCode,NodeList,FailedNode,End,Reason";

std::vector<std::string> expand(const std::string& nodes) {
  if (nodes.empty() || nodes.starts_with("None")) return {};
  try {
    return launch::expand_nodelist(nodes);
  } catch (const UserError&) {
    return {};
  }
}

}  // namespace

std::vector<JobRecord> parse_sacct(const std::string& text) {
  std::vector<JobRecord> records;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> fields = split(line, '|');
    if (fields.size() != 7 || fields[0].empty() || fields[0].find('.') != std::string::npos) continue;
    records.push_back({.id = fields[0],
                       .state = fields[1].substr(0, fields[1].find(' ')),
                       .exit_code = fields[2],
                       .nodes = expand(fields[3]),
                       .failed_node = fields[4].starts_with("None") ? "" : fields[4],
                       .reason = fields[6],
                       .end = std::strtod(fields[5].c_str(), nullptr)});  // "Unknown" while it runs
  }
  return records;
}

std::vector<JobRecord> job_records(const std::string& job_name) {
  const std::string command =
      concat("SLURM_TIME_FORMAT=%s sacct -X -n -P -D -S now-90days --name=", shell_word(job_name), " -o ", kFields);
  const CommandOutput output = output_of(command);
  if (output.exit_code != 0)
    throw UserError(concat("sacct failed with exit code ", output.exit_code, ": ", strip(output.errors)));
  return parse_sacct(output.text);
}

std::string describe(const JobRecord& record) {
  return concat("SLURM's record of job ", record.id, ": ", record.state, ", exit code ", record.exit_code,
                record.failed_node.empty() ? "" : ", failed machine " + record.failed_node,
                record.reason.empty() || record.reason == "None" ? "" : ", reason " + record.reason);
}

}  // namespace espalier::watch
