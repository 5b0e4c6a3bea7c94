// Options that were given and that the other options leave without effect: those of loss scaling without --fp16, of
// recompute where nothing is recomputed, of a tokenizer of another type. Upstream ignores them silently.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace espalier::config {

// The search for them; a family adds those of its own (Family::find_unused).
class UnusedOptions {
 public:
  explicit UnusedOptions(const OptionTable& table) : table_(table) {}

  // Notes those of `names` that were given, if `is_unused`.
  void add_if(bool is_unused, std::initializer_list<const char*> names, const std::string& reason);
  // The same, only where the command line says them: a recipe says them for folders and layouts that a command line
  // adds.
  void add_typed_if(bool is_unused, std::initializer_list<const char*> names, const std::string& reason);

  const OptionTable& table() const { return table_; }
  const std::vector<std::string>& messages() const { return messages_; }

 private:
  const OptionTable& table_;
  std::vector<std::string> messages_;
};

// One message for each, such as "--hysteresis 4 (command line) has no effect: only --fp16 scales the loss". Of options
// on the command line, and of those that a recipe sets to another value than the default (so that the config.toml of a
// run, which has all options, is no reason for messages), but for what depends on folders or the layout. Call it after
// resolve() has found no problem.
std::vector<std::string> unused_options(const RunConfig& config, const OptionTable& table);

}  // namespace espalier::config
