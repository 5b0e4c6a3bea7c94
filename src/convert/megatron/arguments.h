// The arguments that a Megatron checkpoint keeps (argparse.Namespace), as options of `espalier train FAMILY`.
//
// Those that decide what is learnt, and the layout; not logging, intervals of saving, or where things were on the
// machine that wrote it (but data and tokenizer, which a resumed run compares).
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "convert/formats.h"
#include "store/torch_value.h"

namespace espalier::convert {

struct MegatronOptions {
  config::RunConfig config;
  std::string toml;                  // resolved, as in the manifest of a checkpoint
  bool activated_half_last = false;  // order of the halves of gated layers in the checkpoint's files
};

// `more`: options of train as on its command line; they replace those of the checkpoint. UserError (kBadData) that
// lists what is not understood. Where neither says how long to train, the configuration is one of --eval-only.
MegatronOptions megatron_options(const store::TorchValue& args, const std::string& origin,
                                 const std::vector<std::string>& more, const FamilyFormats& formats);

// The attributes of the Namespace of a checkpoint that is written, from the options of one of ours; without the layout.
// NVIDIA's names of the model are next to BigScience's.
store::TorchPairs namespace_of(const config::RunConfig& config, const OptionTable& table);

// The options of the model, as text, that are lost when those attributes are read back; none where all can be
// expressed.
std::vector<std::string> unsaid_options(const config::RunConfig& config, const OptionTable& table);

}  // namespace espalier::convert
