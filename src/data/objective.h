// What a decoder is trained to predict.
#pragma once

#include <string>
#include <vector>

namespace espalier::data {

struct Objective {
  enum class Kind {
    kCausal,    // every token from those before it
    kPrefix,    // the same after a prefix of random length whose tokens all see each other
    kMultitask  // the targets of pairs of input and target, packed into rows (data/packed_dataset.h)
  };

  Kind kind = Kind::kCausal;
  bool whole_input = false;           // multitask: the tokens of an input all see each other
  bool loss_on_targets_only = false;  // prefix: no loss inside it
  bool reweight_positions = false;    // prefix: places that are targets less often weigh more
  bool norm_target_loss = false;      // multitask: each target weighs the same, whatever its length

  // Whether the tokens of what is given see each other, as those of a prompt then should.
  bool sees_whole_prompt() const { return kind == Kind::kPrefix || (kind == Kind::kMultitask && whole_input); }
  // What the names of the token files of a data set add to its prefix.
  std::vector<std::string> token_file_endings() const;

  bool operator==(const Objective&) const = default;
};

}  // namespace espalier::data
