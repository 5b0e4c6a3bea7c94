// The subcommands of `espalier`: one function each, and one visible list of them (commands.cpp).
//
// A command parses its arguments (the words after its name), calls one library function, and returns the exit code.
// Errors are thrown: main catches and prints them (run_main.h).
#pragma once

#include <string>
#include <vector>

namespace espalier {

struct Command {
  const char* name;
  const char* summary;  // one line of `espalier help`
  int (*run)(const std::vector<std::string>& arguments);
};

// In the order in which `espalier help` shows them.
const std::vector<Command>& commands();

// Words of a Python command line that mean a command of ours: pretrain_gpt.py, tools/preprocess_data.py, -m
// pretrain_gpt, -u, -m torch.distributed.run. Others come back as they are.
std::vector<std::string> canonical_words(std::vector<std::string> words);

int preprocess_main(const std::vector<std::string>& arguments);
int tokenizer_main(const std::vector<std::string>& arguments);
int data_main(const std::vector<std::string>& arguments);
int parity_main(const std::vector<std::string>& arguments);
int train_main(const std::vector<std::string>& arguments);
int launch_main(const std::vector<std::string>& arguments);
int plan_main(const std::vector<std::string>& arguments);
int submit_main(const std::vector<std::string>& arguments);
int generate_main(const std::vector<std::string>& arguments);
int checkpoint_main(const std::vector<std::string>& arguments);
int completion_main(const std::vector<std::string>& arguments);

}  // namespace espalier
