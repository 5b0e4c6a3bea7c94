#include "watch/scheduler.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/shell.h"
#include "base/temporary_folder.h"

namespace espalier::watch {
namespace {

std::string read_all(std::FILE* pipe) {
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  return text;
}

std::string answer_of(const std::string& command) {
  const CommandOutput output = output_of(command);
  if (output.exit_code != 0)
    throw UserError(concat(command, " failed with exit code ", output.exit_code, ": ", strip(output.errors)));
  return output.text;
}

}  // namespace

CommandOutput output_of(const std::string& command) {
  std::string errors = (temporary_folder() / "espalier-watch-XXXXXX").string();
  const int file = ::mkostemp(errors.data(), O_CLOEXEC);
  if (file < 0) throw UserError(concat("cannot create a file in ", temporary_folder().string()));
  ::close(file);
  const std::string line = concat("timeout -k 5 60 sh -c ", shell_word(command), " 2>", shell_word(errors));
  std::FILE* pipe = ::popen(line.c_str(), "re");
  if (pipe == nullptr) throw UserError(concat("cannot start ", command));
  CommandOutput output;
  output.text = read_all(pipe);
  const int status = ::pclose(pipe);
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  output.errors = read_file(errors);
  std::filesystem::remove(errors);
  return output;
}

std::vector<QueuedJob> queued_jobs(const std::string& scheduler, const std::string& job_name) {
  if (scheduler == "pbs") return parse_qstat(answer_of("qstat -f -F json"), job_name);
  return parse_squeue(answer_of(concat("squeue -h --me --name=", shell_word(job_name), " -o '%i|%T|%L'")));
}

std::string submit_next(const std::string& scheduler, const std::string& script, const std::vector<std::string>& after,
                        const std::vector<std::string>& without) {
  if (scheduler == "pbs")
    return strip(answer_of(
        concat("qsub ", after.empty() ? "" : "-W depend=afterany:" + join(after, ":") + " ", shell_word(script))));
  const std::string printed =
      answer_of(concat("sbatch --parsable ", after.empty() ? "" : "--dependency=afterany:" + join(after, ":") + " ",
                       without.empty() ? "" : "--exclude=" + shell_word(join(without, ",")) + " ", shell_word(script)));
  return strip(printed.substr(0, printed.find(';')));
}

}  // namespace espalier::watch
