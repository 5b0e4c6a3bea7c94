// What a run is timed on: devices, nodes, the network between them, and how the program on them works. Every number has
// a source next to it; none is derived from the times that it is to predict.
//
//   const Machine machine = find_machine("a100-80gb");            // built in
//   const Machine mine = find_machine("recipes/machines/x.toml");  // a file, whole or on top of a built-in one
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace espalier::plan {

// How a training program works, as far as its time depends on it.
struct Program {
  bool fused_attention = true;    // the matrix of scores never reaches memory, and hidden keys cost nothing
  bool overlaps_tensor = false;   // on the way back, sums over tensor ranks run during the weights' gradients
  bool overlaps_data = true;      // gradients leave while the last backward pass runs
  bool blocks_on_stages = false;  // a pipeline stage waits while its messages travel
  bool divides_stages = false;    // each tensor rank sends its part of what passes between stages
  bool sums_whole = false;        // gradients are summed for every rank, even where ZeRO leaves each a part
  // Bytes moved for each parameter when a micro-batch adds to its gradient, and for each logit of the loss.
  double gradient_bytes = 8;
  double loss_bytes = 8;
};

// Rates are a second's, sizes bytes, times seconds.
struct Machine {
  std::string name;
  // One device. The shares are those that the products of a training step reach of the peak.
  double peak_flops = 0, peak_flops_fp32 = 0;
  double matrix_share = 0, attention_share = 0;
  double memory_bandwidth = 0;  // that a kernel reaches which does nothing but move
  double memory_bytes = 0;
  double device_watts = 0;
  // One node: devices, what the rest of it draws, what a device of a ring inside it sends.
  double devices_per_node = 8;
  double node_watts = 0;
  double link_bandwidth = 0, link_latency = 0;
  double start_latency = 0;  // of any collective
  // Between nodes: what leaves a node, and the most of it that one ring gets (0: all of it).
  double network_bandwidth = 0, network_latency = 0, ring_bandwidth = 0;
  double power_overhead = 1;     // energy of the site for that of its nodes (PUE)
  double device_hour_price = 0;  // 0: not known
  std::string currency = "USD";
  Program program;
  // Where each number comes from, by its key in the file.
  std::map<std::string, std::string> sources;
};

// A number of a machine, as its file has it.
struct MachineField {
  const char* key;
  double Machine::*value;
  double least, most;
  const char* meaning;
};
const std::vector<MachineField>& machine_fields();

std::vector<std::string> machine_names();  // that are built in
// A built-in machine, or one that a TOML file describes: `base = "a100-80gb"`, or a file next to it, and what differs
// from that; a number is given as `key = value`, its source under the same key in [sources]. UserError (usage) that
// lists every problem.
Machine find_machine(const std::string& name_or_file);
// `where` names the text in messages.
Machine read_machine(const std::string& toml, const std::string& where);

}  // namespace espalier::plan
