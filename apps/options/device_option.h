// --device of the commands that use a model.
#pragma once

#include <string>

#include "base/options.h"
#include "config/run_config.h"

namespace espalier {

void add_device(OptionTable& table, config::Device& device);
// Refuses with --device cuda what works only on the CPU.
void check_device(config::Device device, bool int8_weights, bool stream_layers, Problems& problems);
// As the option has it.
std::string name_of(config::Device device);

}  // namespace espalier
