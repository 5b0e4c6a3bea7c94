#include "ckpt/internal/together.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::ckpt {

void together(const dist::Group& group, const std::function<void()>& action) {
  if (group.size() == 1) return action();
  std::string own;  // exit code and message
  try {
    action();
  } catch (const UserError& error) {
    own = concat(static_cast<int>(error.code()), " ", error.what());
  }
  const std::vector<std::string> all = group.gather_texts(own);
  std::vector<std::string> messages;
  ExitCode code = ExitCode::kOk;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const std::string message = all[rank].substr(all[rank].find(' ') + 1);
    if (messages.empty()) code = static_cast<ExitCode>(std::atoi(all[rank].c_str()));
    // What all were told by one has the same text everywhere.
    if (std::find(messages.begin(), messages.end(), message) == messages.end()) messages.push_back(message);
  }
  if (messages.empty()) return;
  Problems problems;
  for (const std::string& message : messages) problems.add(message);
  problems.raise(code);
}

}  // namespace espalier::ckpt
