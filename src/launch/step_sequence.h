// Commands that run one after another and belong together. A folder remembers which are done: given again, only those
// run that are not, and one that was interrupted is asked to go on; one that has changed is done again, with those that
// read what it makes.
//
//   const int code = run_steps("detox", {{.name = "texts", .command = {...}, .outputs = {"detox/texts.jsonl"}},
//                                        {.name = "scores", .command = {...}, .after = {"texts"}, ...}});
//
// FOLDER/steps.json has, for each step, the key of what it was made from, whether it is done, its command and seconds.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace espalier::launch {

struct CommandStep {
  std::string name;
  std::vector<std::string> command;
  std::string program;             // the file that the command's first word stands for; empty: it is looked for in PATH
  std::vector<std::string> after;  // earlier steps whose outputs it reads
  std::string inputs;              // changes with whatever else it reads
  // Files and folders, each of which the command puts in its place when it is whole, unless unfinished() says more.
  // Where the step is done again they are removed first, and so is what an interrupted command leaves.
  std::vector<std::filesystem::path> outputs, leftovers;
  // One of the outputs that the command prints, which then is short work: interrupted, it is done from its beginning.
  // Empty: what it prints goes to stderr.
  std::filesystem::path standard_output;
  // Of a command that does not go on by itself where it was begun before: the one that does, or nothing if there is
  // nothing to continue. May be null.
  std::function<std::vector<std::string>()> resume;
  // After exit code 0: why it is not done nevertheless, or "". May be null.
  std::function<std::string()> unfinished;
  // Steps of a kind ("scoring") take time in proportion to their amounts; empty: next to none.
  std::string kind;
  double amount = 0;
};

// What is known about a step before anything runs.
struct StepState {
  enum class Kind { kDone, kBegun, kChanged, kNew };
  Kind kind = Kind::kNew;
  std::string key;
  double seconds = 0;  // that it took so far
};

// Adds a problem for each output of a step that the folder knows nothing of and that exists nevertheless.
std::vector<StepState> states_of(const std::filesystem::path& folder, const std::vector<CommandStep>& steps,
                                 std::vector<std::string>& problems);

// Seconds of a step by those of done ones of its kind: nullopt where there are none. Of several the amounts and seconds
// are summed.
std::optional<double> expected_seconds(const std::vector<CommandStep>& steps, const std::vector<StepState>& states,
                                       size_t of);

// Runs what is not done, each in a session of its own that ends with this process; says each command, and what time is
// left as far as the steps so far tell. A UserError with the exit code of a command that failed. Returns false after a
// signal, which is passed on and waited for. The folder exists, and nobody else runs steps in it.
bool run_steps(const std::filesystem::path& folder, const std::vector<CommandStep>& steps);

}  // namespace espalier::launch
