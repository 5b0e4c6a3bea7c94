#include "plan/time/internal/builtin_machines.h"

namespace espalier::plan::internal {
namespace {

// matrix_share is the one number that no data sheet has. It is what products reach inside a layer, not what the best
// shape reaches alone (0.869: mamf-finder): that share with which a layer of a 22B model takes the 19.6 ms that
// Korthikanti et al. 2022 measured, everything else of the layer being counted from the other numbers. Of that model
// nothing is predicted here.
constexpr const char* kA100 = R"toml(
peak_flops = 312e12
peak_flops_fp32 = 19.5e12
matrix_share = 0.66
attention_share = 0.5
memory_bandwidth = 1.794e12
memory_bytes = 85899345920
device_watts = 400
devices_per_node = 8
node_watts = 3300
link_bandwidth = 235e9
link_latency = 3.4e-6
start_latency = 8.4e-6
network_bandwidth = 192e9
network_latency = 14e-6
[sources]
peak_flops = "NVIDIA A100 data sheet: dense, bf16 and fp16"
peak_flops_fp32 = "NVIDIA A100 data sheet: fp32 without TF32"
matrix_share = "Korthikanti et al. 2022, table 4, baseline without recompute: 7.7 + 11.9 ms for a layer, see docs/planning.md"
attention_share = "Dao 2023 (FlashAttention-2): 50 to 73 % of the peak on A100; the lower end"
memory_bandwidth = "RRZE-HPC/gpu-benches, gpu-stream/a100_80.txt: triad, 1,794 GB/s of 2,039"
memory_bytes = "NVIDIA A100 data sheet: 80 GB"
device_watts = "NVIDIA A100 data sheet: TDP"
devices_per_node = "NVIDIA DGX A100"
node_watts = "NVIDIA DGX A100 data sheet: 6.5 kW at most, less 8 devices"
link_bandwidth = "nccl-tests on 8 A100 of a node (stas00/ml-engineering, network): all-reduce bus bandwidth"
link_latency = "NCCL, src/graph/tuning.cc: a step of a ring over NVLink, protocol Simple"
start_latency = "NCCL, src/graph/tuning.cc: base latency of a ring, protocol Simple"
network_bandwidth = "8 HDR ports of 25 GB/s, of which nccl-tests reaches 96 % (NVIDIA/nccl-tests, issue 119)"
network_latency = "NCCL, src/graph/tuning.cc: a step of a ring over the network, protocol Simple"
)toml";

constexpr const char* kH100 = R"toml(
peak_flops = 989.4e12
peak_flops_fp32 = 66.9e12
matrix_share = 0.61
attention_share = 0.35
memory_bandwidth = 3.15e12
memory_bytes = 85899345920
device_watts = 700
devices_per_node = 8
node_watts = 4600
link_bandwidth = 476e9
link_latency = 3.4e-6
start_latency = 8.4e-6
network_bandwidth = 376e9
network_latency = 14e-6
[sources]
peak_flops = "NVIDIA H100 SXM data sheet: dense, bf16 and fp16"
peak_flops_fp32 = "NVIDIA H100 SXM data sheet: fp32 without TF32"
matrix_share = "an assumption: 0.803, the best shape's (stas00/ml-engineering, mamf-finder), times what a layer's products reach of the best shape's on A100, 0.66 / 0.869"
attention_share = "Shah et al. 2024 (FlashAttention-3): FlashAttention-2 reaches 35 % of the peak on H100"
memory_bandwidth = "3.35 TB/s of the data sheet times 0.94, the share of a triad on GH200 (RRZE-HPC/gpu-benches, gpu-stream/gh200.txt)"
memory_bytes = "NVIDIA H100 SXM data sheet: 80 GB"
device_watts = "NVIDIA H100 SXM data sheet: TDP"
devices_per_node = "NVIDIA DGX H100"
node_watts = "NVIDIA DGX H100 data sheet: 10.2 kW at most, less 8 devices"
link_bandwidth = "nccl-tests on 8 H100 of a node (NVIDIA/nccl-tests, issue 290): all-reduce bus bandwidth"
link_latency = "NCCL, src/graph/tuning.cc: a step of a ring over NVLink, protocol Simple"
start_latency = "NCCL, src/graph/tuning.cc: base latency of a ring, protocol Simple"
network_bandwidth = "8 NDR ports at 47 GB/s each (NVIDIA/nccl-tests, issue 290: 46 to 48)"
network_latency = "NCCL, src/graph/tuning.cc: a step of a ring over the network, protocol Simple"
)toml";

}  // namespace

const std::vector<std::pair<std::string, std::string>>& builtin_machines() {
  static const std::vector<std::pair<std::string, std::string>> machines = {{"a100-80gb", kA100}, {"h100", kH100}};
  return machines;
}

}  // namespace espalier::plan::internal
