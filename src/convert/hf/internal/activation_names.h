// Activations as transformers names them.
#pragma once

#include <optional>
#include <string>

#include "convert/hf/internal/config_reader.h"
#include "spec/layers.h"

namespace espalier::convert {

// Of the key, or of `otherwise` where it is absent. `gated`: the name is that of the gate's half of the MLP.
spec::Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& otherwise,
                                 bool gated);

// Of that name, which the key says.
spec::Activation activation_of(ConfigReader& reader, const std::string& key, const std::string& name, bool gated);

// Nothing where transformers has none.
std::optional<std::string> name_of(spec::Activation activation);

}  // namespace espalier::convert
