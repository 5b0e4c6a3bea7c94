#include "base/copy_command.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/shell.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPieceBytes = int64_t{16} << 20;

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

}  // namespace

void run_command(const std::string& command, const fs::path& log) {
  const int status = std::system(concat("{ ", command, "\n} >", shell_word(log), " 2>&1 </dev/null").c_str());
  if (status == 0) return;
  std::string said = strip(read_file(log));
  if (said.size() > 500) said = "... " + said.substr(said.size() - 500);
  throw UserError(
      concat(command, " failed with ",
             WIFEXITED(status) ? concat("exit code ", WEXITSTATUS(status)) : concat("signal ", WTERMSIG(status)),
             said.empty() ? "" : ": " + said),
      ExitCode::kInputOutput);
}

uint64_t hash_of_file(const fs::path& path) {
  const InputFile file(path);
  Hasher hasher;
  std::vector<char> piece(static_cast<size_t>(std::min(kPieceBytes, file.size_bytes())));
  for (int64_t at = 0; at < file.size_bytes(); at += kPieceBytes) {
    const int64_t size = std::min(kPieceBytes, file.size_bytes() - at);
    file.read_at(piece.data(), static_cast<size_t>(size), at);
    hasher.update(piece.data(), static_cast<size_t>(size));
  }
  return hasher.digest();
}

void CopyCommand::check(const std::string& command, Problems& problems) {
  for (const char* word : {"{source}", "{target}"})
    if (!command.empty() && command.find(word) == std::string::npos)
      problems.add("--with lacks ", word, ": the command is called with both for every file");
}

void CopyCommand::put(const fs::path& source, const std::string& target, const fs::path& scratch) const {
  const fs::path log = scratch / "command.log", back = scratch / "back";
  const auto command = [&](const std::string& from, const std::string& to) {
    return replaced(replaced(command_, "{source}", shell_word(from)), "{target}", shell_word(to));
  };
  run_command(command(source.string(), target), log);
  run_command(command(target, back.string()), log);
  const bool is_equal = fs::exists(back) && hash_of_file(back) == hash_of_file(source);
  fs::remove(back);
  if (!is_equal)
    throw UserError(concat("'", target, "', copied back, is not equal to '", source.string(), "': ", command_),
                    ExitCode::kBadData);
}

}  // namespace espalier
