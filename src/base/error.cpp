#include "base/error.h"

#include "base/format.h"

namespace espalier {

void Problems::raise(ExitCode code) const {
  if (messages_.empty()) return;
  if (messages_.size() == 1) throw UserError(messages_.front(), code);
  std::string text = concat(messages_.size(), " problems:");
  for (const std::string& message : messages_) text += "\n  - " + message;
  throw UserError(text, code);
}

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  throw InternalError(concat(file, ":", line, ": CHECK(", condition, ") failed", detail.empty() ? "" : ": ", detail,
                             ". This is a bug in Espalier."));
}

}  // namespace espalier
