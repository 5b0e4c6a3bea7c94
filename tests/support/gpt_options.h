// Options of a run, a GPT's unless another family is named, parsed and resolved, without what only files can decide.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/format.h"
#include "config/run_options.h"
#include "families/gpt/config.h"

namespace espalier::test {

// A small GPT over a data set; the steps and the batch are still to be said.
inline const std::string kShape =
    "--num-layers 2 --hidden-size 48 --num-attention-heads 4 --seq-length 33 --max-position-embeddings 33 --lr 1e-3 "
    "--data-path owt ";
inline const std::string kGood = kShape + "--micro-batch-size 3 --global-batch-size 6 --train-iters 10 ";

struct Parsed : config::RunOptions {
  Problems problems;

  explicit Parsed(const std::string& flags, int64_t num_ranks = 0,
                  const config::Family& family = families::gpt_family())
      : RunOptions(family) {
    if (num_ranks > 0) config.num_ranks = num_ranks;
    table.parse(split_blanks(flags), problems);
    config::resolve(config, table, problems);
  }
  const std::vector<std::string>& messages() const { return problems.messages(); }
  const families::GptConfig& model() const { return config.model.as<families::GptSettings>().shape; }
};

// Without problems, and with --pad-vocab-size-to as its vocabulary.
inline config::RunConfig resolved_run(const std::string& flags, int64_t num_ranks,
                                      const config::Family& family = families::gpt_family()) {
  Parsed run(flags, num_ranks, family);
  EXPECT_EQ(run.messages(), std::vector<std::string>{}) << flags;
  if (run.config.tokenizer.pad_vocab_size_to)
    config::set_vocabulary(run.config, *run.config.tokenizer.pad_vocab_size_to);
  return run.config;
}

inline plan::RunShape resolved_shape(const std::string& flags, int64_t num_ranks,
                                     const config::Family& family = families::gpt_family()) {
  return config::run_shape(resolved_run(flags, num_ranks, family));
}

}  // namespace espalier::test
