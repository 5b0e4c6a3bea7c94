// The files of a checkpoint that Megatron-LM, Megatron-DeepSpeed or DeepSpeed's conversion tool wrote, found by name.
//
//   kMegatron    iter_0000007/mp_rank_TT[_PPP]/model_optim_rng.pt
//   kDeepSpeed   global_step7/layer_II-model_TT-model_states.pt, mp_rank_MM_model_states.pt and, where ZeRO or bf16
//                divide the optimizer's state, [bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt
//   kUniversal   FOLDER/zero/PARAMETER/{fp32,exp_avg,exp_avg_sq}.pt with copies of mp_rank_MM_model_states.pt
//
// MM counts model ranks: pipeline rank * tensor-parallel size + tensor rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::convert {

enum class MegatronFormat { kMegatron, kDeepSpeed, kUniversal };

struct MegatronFiles {
  MegatronFormat format = MegatronFormat::kMegatron;
  std::filesystem::path folder;  // that holds the files: iter_0000007, global_step7
  int64_t tensor = 1, pipeline = 1, data = 1;
  std::vector<std::filesystem::path> ranks;                      // by model rank
  std::map<int64_t, std::vector<std::filesystem::path>> layers;  // DeepSpeed: by layer number, then tensor rank
  std::vector<std::vector<std::filesystem::path>> optimizer;     // DeepSpeed: by model rank, then data rank
  std::map<std::string, std::map<std::string, std::filesystem::path>> parameters;  // universal: by name, then kind

  int64_t tensor_rank(size_t model_rank) const { return static_cast<int64_t>(model_rank) % tensor; }
  int64_t pipeline_rank(size_t model_rank) const { return static_cast<int64_t>(model_rank) / tensor; }
};

// `input` is the folder that a run saved into (the checkpoint that its `latest*` file names, or `step`) or the folder
// of one checkpoint. UserError when there is none, or with every file that is missing among those that exist.
MegatronFiles find_megatron_files(const std::filesystem::path& input, std::optional<int64_t> step);

}  // namespace espalier::convert
