#include "ckpt/together.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "store/run_folder.h"

namespace espalier::ckpt {

void together(const dist::Group& group, const std::function<void()>& action) {
  if (group.size() == 1) return action();
  std::string own;  // exit code, the damaged checkpoint (mostly none) and, on the next line, the message
  try {
    action();
  } catch (const store::DamagedCheckpoint& error) {
    own = concat(static_cast<int>(error.code()), " ", error.step_folder().string(), "\n", error.what());
  } catch (const UserError& error) {
    own = concat(static_cast<int>(error.code()), " \n", error.what());
  }
  const std::vector<std::string> all = group.gather_texts(own);
  std::vector<std::string> messages;
  std::string damaged;
  ExitCode code = ExitCode::kOk;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const size_t space = all[rank].find(' '), line = all[rank].find('\n');
    const std::string message = all[rank].substr(line + 1);
    if (damaged.empty()) damaged = all[rank].substr(space + 1, line - space - 1);
    if (messages.empty()) code = static_cast<ExitCode>(std::atoi(all[rank].c_str()));
    // What all were told by one has the same text everywhere.
    if (std::find(messages.begin(), messages.end(), message) == messages.end()) messages.push_back(message);
  }
  if (messages.empty()) return;
  Problems problems;
  for (const std::string& message : messages) problems.add(message);
  if (damaged.empty()) problems.raise(code);
  try {
    problems.raise(code);
  } catch (const UserError& error) {
    throw store::DamagedCheckpoint(error.what(), code, damaged);
  }
}

}  // namespace espalier::ckpt
