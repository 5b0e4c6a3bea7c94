// A run's options parsed and resolved, without what only files can decide: for the tests of plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/options.h"
#include "config/run_config.h"

namespace espalier::config {

// A small GPT over a data set; the steps and the batch are still to be said.
inline const std::string kShape =
    "--num-layers 2 --hidden-size 48 --num-attention-heads 4 --seq-length 33 --max-position-embeddings 33 --lr 1e-3 "
    "--data-path owt ";
inline const std::string kGood = kShape + "--micro-batch-size 3 --global-batch-size 6 --train-iters 10 ";

struct Parsed {
  RunConfig config;
  OptionTable table{"espalier train gpt", "Trains a GPT."};
  Problems problems;

  explicit Parsed(const std::string& flags, int64_t num_ranks = 0) {
    if (num_ranks > 0) config.num_ranks = num_ranks;
    add_gpt_options(table, config);
    table.say_notes(false);
    table.parse(split_blanks(flags), problems);
    resolve(config, table, problems);
  }
  const std::vector<std::string>& messages() const { return problems.messages(); }
};

}  // namespace espalier::config
