// Launch scripts of Megatron-DeepSpeed (tests/data/launch_scripts), with texts replaced as by sed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace espalier {

using Replacements = std::vector<std::pair<std::string, std::string>>;  // old text, new text

// Each old text must be there, so that a test cannot continue with a script that it did not mean.
inline std::string replaced(std::string text, const Replacements& replacements) {
  for (const auto& [before, after] : replacements) {
    size_t at = text.find(before);
    EXPECT_NE(at, std::string::npos) << "nothing to replace: " << before;
    for (; at != std::string::npos; at = text.find(before, at + after.size())) text.replace(at, before.size(), after);
  }
  return text;
}

// In a script for SLURM: srun's place is taken by its one process, on this machine.
inline Replacements without_slurm() {
  return {
      {"$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)", "127.0.0.1"},
      {"srun $SRUN_ARGS --jobid $SLURM_JOB_ID", "SLURM_PROCID=0"},
      {"python -u -m", "espalier -u -m"},
  };
}

// `name` in tests/data/launch_scripts.
inline std::string launch_script(const std::string& name, const Replacements& machine,
                                 const Replacements& replacements) {
  return replaced(replaced(read_file("tests/data/launch_scripts/" + name), machine), replacements);
}

}  // namespace espalier
