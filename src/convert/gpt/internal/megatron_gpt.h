#pragma once

#include "convert/megatron/codec.h"

namespace espalier::convert {

MegatronCodec megatron_gpt();

}  // namespace espalier::convert
