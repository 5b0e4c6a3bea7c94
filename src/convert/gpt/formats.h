// Hugging Face's model types and Megatron's checkpoints that are GPTs.
#pragma once

#include "convert/formats.h"

namespace espalier::convert {

const FamilyFormats& gpt_formats();

}  // namespace espalier::convert
