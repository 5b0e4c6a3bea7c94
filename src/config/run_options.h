// The options of a run together with the rows that fill them.
#pragma once

#include <string>

#include "config/family.h"
#include "config/run_config.h"

namespace espalier::config {

struct RunOptions {
  // Without notes on rows that have no effect: for options that were read before, or are tried.
  explicit RunOptions(const Family& family) : table(std::string("espalier train ") + family.name, family.summary) {
    table.say_notes(false);
    add_options(family, table, config);
  }

  RunConfig config;
  OptionTable table;
};

}  // namespace espalier::config
