// A program that scores texts: any that reads lines of JSON and answers each with one.
//
//   in   {"id": 7, "text": "..."}
//   out  {"id": 7, "score": {"toxicity": 0.31, "threat": 0.02}}      in the same order; "score": null where it has none
//
// It is started by /bin/sh, gets many lines, has to flush its output after each line that it has answered, and ends,
// with exit code 0, when its input does. Its stderr is ours. docs/detoxify.md tells the same to those who write one.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace espalier::eval {

class ScorerProcess {
 public:
  explicit ScorerProcess(const std::string& command);
  // Ends its input, waits until 5 seconds after that for its end, then kills it with what it has started.
  ~ScorerProcess();
  ScorerProcess(const ScorerProcess&) = delete;
  ScorerProcess& operator=(const ScorerProcess&) = delete;

  struct Exchange {
    std::vector<std::string> answers;  // without line ends, of the first lines; of all unless there is a failure
    std::string failure;               // why there are no more: "ended with exit code 1"; the process is no more then
    bool cannot_run = false;           // the shell found no such program, or may not run it
  };
  // Nothing more is asked. Called for several before their destructors, so that they end at the same time.
  void end_input();
  // Passes the lines on while it reads answers. Fails where none comes for so many seconds.
  Exchange exchange(const std::vector<std::string>& lines, double seconds);

 private:
  bool write_some(std::string_view& rest);
  bool read_some();
  void end_of_process(Exchange& result);
  std::string kill_it(const std::string& why);

  pid_t process_ = -1;
  int to_ = -1, from_ = -1;
  std::chrono::steady_clock::time_point input_ended_;
  std::string unread_;  // of its output
};

}  // namespace espalier::eval
