// Errors: what a user can fix is a UserError; what only we can fix is a failed CHECK.
//
// A message says what was wanted, what was found, where it came from and what to do, with numbers:
//   "tensor_model_parallel_size=3 does not divide num_attention_heads=32 (recipes/tiny.toml:14). Use 1, 2, 4, 8."
// Libraries throw; only main catches (apps/run_main.h), prints and turns the error into an exit code.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier {

// Exit codes that scripts test for (sysexits and Megatron's; docs/exit-codes in the README).
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,  // bad flags or configuration
  kBadData = 65,
  kMissingInput = 66,
  kLostPeer = 69,  // another rank, or what the ranks meet through, is gone: a consequence, not a cause
  kCannotCreate = 73,
  kInputOutput = 74,
  kInterrupted = 130,
};

class UserError : public std::runtime_error {
 public:
  explicit UserError(const std::string& message, ExitCode code = ExitCode::kFailed)
      : std::runtime_error(message), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// Collects every problem of a configuration so that all are reported in one go.
//
//   Problems problems;
//   if (hidden % heads != 0) problems.add("--hidden-size ", hidden, " is not a multiple of ...");
//   problems.raise();   // throws one UserError (exit code 2) that lists them all, if there are any
class Problems {
 public:
  template <class... Parts>
  void add(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    messages_.push_back(out.str());
  }
  bool empty() const { return messages_.empty(); }
  const std::vector<std::string>& messages() const { return messages_; }
  void raise(ExitCode code = ExitCode::kUsage) const;

 private:
  std::vector<std::string> messages_;
};

// A bug of ours: file and line are in the text.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// The text of all parts one after another, as operator<< prints them.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);

}  // namespace espalier

// CHECK(condition, parts...): for what only a bug of ours can break. Never for input of a user.
#define ESPALIER_CHECK(condition, ...)                                                                             \
  do {                                                                                                             \
    if (!(condition)) [[unlikely]]                                                                                 \
      ::espalier::check_failed(__FILE__, __LINE__, #condition, ::espalier::concat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (0)
