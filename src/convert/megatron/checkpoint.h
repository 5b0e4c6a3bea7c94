// A checkpoint of Megatron-LM, Megatron-DeepSpeed or DeepSpeed's universal format, in one form for all of them: the
// arguments of the run, where it stands, and runs of elements of the model's tensors with their places in the files.
//
// Reads the trees of all files, not the tensors. What is missing, or does not belong together (other iterations, other
// layouts), is a UserError (kBadData) with file, key, expected and found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convert/formats.h"
#include "convert/megatron/files.h"
#include "spec/shard.h"
#include "store/manifest.h"
#include "store/torch_value.h"

namespace espalier::convert {

enum class TensorKind { kWeight, kMaster, kExpAvg, kExpAvgSq };
// "" for the weight, ".master", ".exp_avg", ".exp_avg_sq": as in our checkpoints.
const char* suffix_of(TensorKind kind);

// Elements [local_begin, local_begin + count) of what one tensor rank holds of a parameter, row-major.
struct MegatronShard {
  std::string param;  // our name
  TensorKind kind = TensorKind::kWeight;
  spec::TensorShard place;  // size 1: the whole parameter
  // Of a parameter that was met before: the pipeline stage that has it again, or the part of a joined tensor.
  int64_t copy = 0;
  store::TensorView view;  // packed
  int64_t view_begin = 0;  // where the run begins in it, in elements
  int64_t local_begin = 0, count = 0;
  bool has_shape = false;  // the view is the rank's whole tensor in its shape, not a flat buffer
  std::string key;         // where the tensor is in its file, for messages
};

struct MegatronCheckpoint {
  MegatronFiles files;
  const FamilyFormats* formats = nullptr;  // of the family that the tensors' names show
  store::TorchValue args;                  // argparse.Namespace; None in checkpoints that have none
  double version = 0;                      // checkpoint_version: order of rows of query_key_value
  int64_t original_vocab_size = 0;         // of the tokenizer; 0 where it is not given
  bool has_optimizer = false;
  bool order_is_inferred = false;  // the optimizer's tensors have no names: assigned by the order of the parameters
  // The numbers that the checkpoint has; the rest is as in an empty state.
  store::TrainingState state;
  std::vector<MegatronShard> shards;
  std::vector<std::string> remarks;  // what the user should know
};

// `with_optimizer` false: weights only, and files of the optimizer need not be whole.
MegatronCheckpoint read_megatron_checkpoint(const MegatronFiles& files, bool with_optimizer);

}  // namespace espalier::convert
