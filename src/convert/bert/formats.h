// Hugging Face's model types and Megatron's checkpoints that are BERTs.
#pragma once

#include "convert/formats.h"

namespace espalier::convert {

const FamilyFormats& bert_formats();

}  // namespace espalier::convert
