#include "apps/options/device_option.h"

namespace espalier {

using config::Device;

void add_device(OptionTable& table, Device& device) {
  table.add_choice(
      "--device", device, {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}},
      "where to compute; cuda: a GPU for each process; auto: that where the driver shows one, else the CPU");
  table.known_elsewhere({"--dtype"}, "it computes in the type of the checkpoint");
}

void check_device(Device device, bool int8_weights, bool stream_layers, Problems& problems) {
  if (device != Device::kCuda) return;
  if (int8_weights) problems.add("--int8-weights and --device cuda: models with 8-bit weights run on the CPU");
  if (stream_layers) problems.add("--stream-layers and --device cuda: layers are read one by one on the CPU");
}

std::string name_of(Device device) {
  return device == Device::kCpu ? "cpu" : device == Device::kCuda ? "cuda" : "auto";
}

}  // namespace espalier
