// The subcommands of `espalier`: one function each, and one visible list of them (commands.cpp).
//
// A command parses its arguments (the words after its name), calls one library function, and returns the exit code.
// Errors are thrown: main catches and prints them (run_main.h).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace espalier {

struct Command {
  const char* name;
  const char* summary;  // one line of `espalier help`
  // Null for a word that the command above takes itself: the families of `espalier train`.
  int (*run)(const std::vector<std::string>& arguments);
  // The commands below, for those that have some.
  const std::vector<Command>& (*subcommands)() = nullptr;
};

// In the order in which `espalier help` shows them.
const std::vector<Command>& commands();

// A list of commands as help shows it.
std::string describe(const std::vector<Command>& list);

// Runs the command of `list` that the first word names, with the others. `program` is what precedes it:
// "espalier data". Prints the list where help is asked for; anything else that is none of them is a UserError that
// names those that are near.
int run_subcommand(const std::string& program, const std::vector<Command>& list,
                   const std::vector<std::string>& arguments);

// The words of each command that takes options, as "train gpt": one man page and one help text each.
std::vector<std::vector<std::string>> all_command_words();

// How many of the first words are options of `espalier submit` or `espalier launch` and their values; what follows is
// the command that they start.
size_t num_submit_option_words(const std::vector<std::string>& arguments);

// Words of a Python command line that mean a command of ours: pretrain_gpt.py, tools/preprocess_data.py, -m
// pretrain_gpt, -u, -m torch.distributed.run. Others come back as they are.
std::vector<std::string> canonical_words(std::vector<std::string> words);

int preprocess_main(const std::vector<std::string>& arguments);
int tokenizer_main(const std::vector<std::string>& arguments);
int curate_main(const std::vector<std::string>& arguments);
int index_main(const std::vector<std::string>& arguments);
int retro_main(const std::vector<std::string>& arguments);
int data_main(const std::vector<std::string>& arguments);
int replay_main(const std::vector<std::string>& arguments);
int parity_main(const std::vector<std::string>& arguments);
int train_main(const std::vector<std::string>& arguments);
int launch_main(const std::vector<std::string>& arguments);
int plan_main(const std::vector<std::string>& arguments);
int submit_main(const std::vector<std::string>& arguments);
int detoxify_main(const std::vector<std::string>& arguments);
int eval_main(const std::vector<std::string>& arguments);
int generate_main(const std::vector<std::string>& arguments);
int serve_main(const std::vector<std::string>& arguments);
int checkpoint_main(const std::vector<std::string>& arguments);
int runs_main(const std::vector<std::string>& arguments);
int watch_main(const std::vector<std::string>& arguments);
int ctl_main(const std::vector<std::string>& arguments);
int recipe_main(const std::vector<std::string>& arguments);
int doctor_main(const std::vector<std::string>& arguments);
int completion_main(const std::vector<std::string>& arguments);
int version_main(const std::vector<std::string>& arguments);
int help_main(const std::vector<std::string>& arguments);

const std::vector<Command>& tokenizer_commands();
const std::vector<Command>& curate_commands();
const std::vector<Command>& data_commands();
const std::vector<Command>& index_commands();
const std::vector<Command>& retro_commands();
const std::vector<Command>& detoxify_commands();
const std::vector<Command>& checkpoint_commands();
const std::vector<Command>& runs_commands();

}  // namespace espalier
