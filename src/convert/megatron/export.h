// Writes a checkpoint of ours as Megatron-LM or Megatron-DeepSpeed would: `espalier checkpoint export-megatron`.
//
//   kMegatron    iter_0000007/mp_rank_TT[_PPP]/model_optim_rng.pt and latest_checkpointed_iteration.txt
//   kDeepSpeed   global_step7/ in the pipeline engine's layout, and latest; optimizer state of bf16 in
//                bf16_zero_pp_rank_D_mp_rank_MM files for any number of data ranks
//
// Names, groups of parameters and order are those of BigScience's Megatron-DeepSpeed, checkpoint_version 3. States of
// random generators are not written: load with --no-load-rng. One block of one tensor is in memory at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "convert/megatron/files.h"

namespace espalier::convert {

struct MegatronExport {
  std::filesystem::path load;  // run folder or step folder
  std::optional<int64_t> step;
  std::filesystem::path output;
  MegatronFormat format = MegatronFormat::kMegatron;
  int64_t tensor = 1, pipeline = 1;
  int64_t data = 1;  // parts of DeepSpeed's flat optimizer state
  bool with_optimizer = true;
};

struct MegatronExportReport {
  std::filesystem::path folder;  // iter_0000007, global_step7
  int64_t step = 0, num_files = 0, num_bytes = 0;
  bool has_optimizer = false;
};

MegatronExportReport export_megatron(const MegatronExport& request);

}  // namespace espalier::convert
