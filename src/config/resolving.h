// What a family sees when its options are resolved (Family::resolve).
#pragma once

#include <string>

#include "config/run_config.h"
#include "plan/near_numbers.h"

namespace espalier::config {

class Resolving {
 public:
  Resolving(const RunConfig& run, const OptionTable& table, Problems& problems)
      : run(run), table(table), problems(problems) {}

  // Grid, sequence length and what does not depend on the model are resolved.
  const RunConfig& run;
  const OptionTable& table;
  Problems& problems;

  // "--hidden-size 30 (recipes/tiny.toml:14)"
  std::string origin(const char* name) const { return table.origin(name); }
  bool given(const char* name) const { return table.find(name)->given(); }
};

}  // namespace espalier::config
