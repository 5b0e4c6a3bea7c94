// What the machines of a job are able to do, compared with each other: each measures itself and its neighbour, and the
// first judges all.
//
// One process a machine. Processor and memory are measured on all of them at the same time, each for a moment; then
// each exchanges with the next one in a ring (latency, bandwidth) and asks the first for its time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/environment.h"
#include "launch/gpu_inventory.h"

namespace espalier::launch {

struct NodeReport {
  int64_t rank = 0;
  std::string host;
  int64_t num_cores = 0;
  double compute_per_second = 0;       // multiply-adds of all cores
  double memory_bytes_per_second = 0;  // read and written by all cores
  double free_memory_bytes = 0, free_disk_bytes = 0;
  std::string disk;                  // the folder that has least room, or cannot be used
  std::string trouble;               // of that folder; empty: none
  double seconds_ahead = 0;          // of the first machine's clock
  double latency_seconds = 0;        // to the next machine and back
  double send_bytes_per_second = 0;  // to the next machine
  GpuInventory gpus = {};
};

struct NodeRule {
  double least_compute = 0.9, least_memory = 0.8, least_network = 0.5;  // shares of the median
  double most_seconds_ahead = 1;
  double least_free_disk = 1073741824.0;
};

struct NodeVerdict {
  std::string host;
  std::vector<std::string> faults;  // empty: nothing is wrong
};

// `reports` in the order of ranks, which is the order of the ring. GPUs, their driver and their memory are compared
// with what most machines have; of equally many, with the larger.
std::vector<NodeVerdict> judge_nodes(const std::vector<NodeReport>& reports, const NodeRule& rule);

struct NodeFolder {
  std::string folder, trouble;
  double free_bytes = 0;
};

// Measures this machine with the others of the job. On the first the reports of all, in the order of ranks; elsewhere
// nothing. A UserError where others do not come in time.
std::vector<NodeReport> probe_nodes(const RankEnvironment& place, const std::vector<NodeFolder>& folders,
                                    double seconds_each);

}  // namespace espalier::launch
