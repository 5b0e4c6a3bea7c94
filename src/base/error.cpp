#include "base/error.h"

#include "base/format.h"

namespace espalier {
namespace {

constexpr const char *kHead = " problems:", *kItem = "\n  - ";

// The messages of a list that raise() has made and somebody has added to another, each with what was put before it:
// a list within a list does not say where it ends.
std::vector<std::string> single_messages(const std::string& message) {
  const std::string start = concat(kHead, kItem);
  const size_t head = message.find(start);
  if (head == std::string::npos) return {message};
  size_t number = head;
  while (number > 0 && message[number - 1] >= '0' && message[number - 1] <= '9') --number;
  const std::string before = message.substr(0, number);
  if (number == head || before.find('\n') != std::string::npos) return {message};
  std::vector<std::string> messages;
  for (size_t at = head + start.size(), end = 0; end != std::string::npos; at = end + std::string(kItem).size()) {
    end = message.find(kItem, at);
    messages.push_back(before + message.substr(at, end == std::string::npos ? end : end - at));
  }
  return messages;
}

}  // namespace

void Problems::raise(ExitCode code) const {
  if (messages_.empty()) return;
  std::vector<std::string> messages;
  for (const std::string& message : messages_)
    for (std::string& single : single_messages(message)) messages.push_back(std::move(single));
  if (messages.size() == 1) throw UserError(messages.front(), code);
  std::string text = concat(messages.size(), kHead);
  for (const std::string& message : messages) text += kItem + message;
  throw UserError(text, code);
}

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  throw InternalError(concat(file, ":", line, ": CHECK(", condition, ") failed", detail.empty() ? "" : ": ", detail,
                             ". This is a bug in Espalier."));
}

}  // namespace espalier
