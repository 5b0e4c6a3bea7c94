// What is known of ranks that failed, which of them failed first, and the report on them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::launch {

struct Failure {
  int64_t rank = 0, local_rank = 0;
  std::string host;
  int64_t pid = 0;
  int exit_code = 0;           // of a rank that ended by itself
  int signal = 0;              // that ended it; 0 if it ended by itself
  double time = 0;             // seconds since 1970, when it failed
  std::string error_file;      // empty if it left none
  std::string message;         // from that file
  std::string last_lines;      // of its stderr, where that went to a file only
  std::string phase;           // in which it was, by its own word; empty if it says nothing of the kind
  int64_t step = 0;            // that was under way; 0 before the first
  bool lost_machine = false;   // its launcher went away
  bool lacked_memory = false;  // as the kernel says
};

// Nodes tell each other in this form.
std::string to_json(const std::vector<Failure>& failures);
std::vector<Failure> failures_from_json(const std::string& text);

// The root cause first, the others in the order in which they failed. A rank that says itself that it lost a peer
// comes after all others; one that a signal ended before those that failed within a second before it was noticed.
void sort_by_cause(std::vector<Failure>& failures);

// What the launcher returns for it: the rank's own code, 128 + signal for a signal.
int exit_code_of(const Failure& failure);

// The launcher ended it, as the others waited for it in vain.
bool was_hung(const Failure& failure);

// "signal 9, SIGKILL", with what the launcher or the kernel did ("signal 9, SIGKILL, by the launcher, as the rank
// hung"), or "exit code 1: " and its message.
std::string describe(const Failure& failure);

// "2026-01-31_17:27:38"
std::string local_time(double seconds);

// In torchrun's form. `failures` are sorted.
std::string failure_report(const std::string& program, const std::vector<Failure>& failures);

}  // namespace espalier::launch
