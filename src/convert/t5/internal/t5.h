// The codecs of the family, one file each.
#pragma once

#include <vector>

#include "convert/hf/codec.h"
#include "convert/megatron/codec.h"
#include "families/t5/config.h"

namespace espalier::convert {

std::vector<HfCodec> t5_codecs();
MegatronCodec megatron_t5();

}  // namespace espalier::convert
