// The keys of DeepSpeed's JSON, and what each does here.
#pragma once

#include <string>
#include <vector>

namespace espalier::config::internal {

enum class KeyEffect {
  kUsed,         // the note is the option it stands for
  kBlock,        // an object, whose keys are listed too
  kNoEffect,     // whatever it holds
  kRefused,      // unless null
  kRefusedIfOn,  // unless null, false, "none", 0, or an object that says "enabled": false or "device": "none"
  kOnlyTrue,     // refused if false
};

struct DeepSpeedKey {
  const char* path;  // "zero_optimization.stage"
  KeyEffect effect;
  const char* note;  // the option, the reason, or what to use instead
};

const std::vector<DeepSpeedKey>& deepspeed_keys();

// nullptr if there is none.
const DeepSpeedKey* find_deepspeed_key(const std::string& path);

// The last parts of the paths in the same object, for "did you mean".
std::vector<std::string> deepspeed_keys_beside(const std::string& path);

}  // namespace espalier::config::internal
