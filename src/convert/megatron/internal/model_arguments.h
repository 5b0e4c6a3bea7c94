// Arguments that NVIDIA's Megatron-LM has for a model, beside those that are options here.
#pragma once

#include <string>

#include "families/gpt/config.h"
#include "store/torch_value.h"

namespace espalier::convert {

// Not None, False or an empty list.
bool is_set(const store::TorchValue* value);

// UserError (kBadData) that names every argument that makes a model which no option here makes.
void refuse_other_models(const store::TorchValue& args, const std::string& origin);

// What NVIDIA's readers look for where our own names are others.
void put_names_of_nvidia(const families::GptConfig& model, store::TorchPairs& pairs);

}  // namespace espalier::convert
