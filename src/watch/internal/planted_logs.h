// For blame_test: what a rank, its libraries, drivers and the scheduler print when one of twelve things happens, with
// all that they print besides. The forms are those of NCCL 2.18, libtorch 2, NVIDIA's driver, UCX and SLURM; ours are
// those of this program.
#pragma once

#include <csignal>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "watch/blame.h"

namespace espalier::watch::test {

struct Planted {
  Cause cause = Cause::kProgram;
  bool is_of_machine = false;  // it recurs on one machine, which is to be left out
  int signal = 0, exit_code = 0;
  bool lost_machine = false;
  std::string message;                  // of the rank's own error file
  std::vector<std::string> says;        // among the last lines of its stderr, in order
  bool has_stack = false;               // libtorch prints one
  bool tears_down_connections = false;  // NCCL complains of those to other ranks
};

inline std::string libtorch_stack() {
  return "Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43 (most recent call "
         "first):\n"
         "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f2f10d7a617 in libc10.so)\n"
         "frame #1: c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::string const&) + 0x64 "
         "(0x7f2f10d3598d in libc10.so)\n"
         "frame #2: c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int, bool) + 0x118 "
         "(0x7f2f10e3a518 in libc10_cuda.so)\n"
         "frame #3: espalier::train::Trainer::step() + 0x1f2 (0x55d0c2a1e4f0 in espalier-engine)\n"
         "frame #4: __libc_start_main + 0xf3 (0x7f2f0f1c4083 in libc.so.6)";
}

// Twelve classes; some have more than one form.
inline std::vector<std::vector<Planted>> planted_classes() {
  const std::string cuda_advice =
      "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
      "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1.\n";
  return {
      {{.cause = Cause::kMachineLost,
        .is_of_machine = true,
        .exit_code = 69,
        .lost_machine = true,
        .message = "its launcher is gone: nothing was heard of it for 30 s"}},
      {{.cause = Cause::kDevice,
        .is_of_machine = true,
        .exit_code = 1,
        .message = "CUDA error: uncorrectable ECC error encountered" + cuda_advice + libtorch_stack(),
        .says = {"terminate called after throwing an instance of 'c10::Error'"},
        .has_stack = true,
        .tears_down_connections = true},
       {.cause = Cause::kDevice,
        .is_of_machine = true,
        .exit_code = 1,
        .message = "CUDA error: uncorrectable NVLink error detected during the execution" + cuda_advice,
        .has_stack = true,
        .tears_down_connections = true}},
      {{.cause = Cause::kDevice,
        .is_of_machine = true,
        .signal = SIGABRT,
        .says = {"NVRM: Xid (PCI:0000:c6:00): 79, pid=4021, name=espalier-engine, GPU has fallen off the bus.",
                 "NVRM: GPU 0000:c6:00.0: GPU serial number is 1324221017402.",
                 "terminate called after throwing an instance of 'c10::Error'"},
        .has_stack = true,
        .tears_down_connections = true},
       {.cause = Cause::kDevice,
        .is_of_machine = true,
        .exit_code = 1,
        .message = "CUDA error: unspecified launch failure" + cuda_advice,
        .says = {"NVRM: Xid (PCI:0000:07:00): 48, pid=4021, name=espalier-engine, DBE (double bit error) ECC error",
                 "NVRM: Xid (PCI:0000:07:00): 45, pid=4021, name=espalier-engine, Ch 00000008"},
        .has_stack = true,
        .tears_down_connections = true}},
      {{.cause = Cause::kHang,
        .is_of_machine = true,
        .signal = SIGKILL,
        .message =
            "the run hangs: rank 3 (process 4021 on its machine) sleeps in phase train, step 812, micro-batch 2, "
            "in ncclAllReduce; ranks 0 to 2 and 4 to 63 wait for it",
        .tears_down_connections = true}},
      {{.cause = Cause::kKilled, .is_of_machine = true, .signal = SIGKILL}},
      {{.cause = Cause::kBusError,
        .is_of_machine = true,
        .signal = SIGBUS,
        .says = {"[n:4021 :0:4188] Caught signal 7 (Bus error: nonexistent physical address)",
                 "==== backtrace (tid:   4188) ====", " 0 0x0000000000043090 killpg()  ???:0",
                 " 1 0x000000000018bb01 __nss_database_lookup()  ???:0", "================================="}}},
      {{.cause = Cause::kNetwork,
        .is_of_machine = true,
        .exit_code = 1,
        .message = "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.3\n"
                   "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
                   "\nLast error:\nCall to ibv_post_send failed with error Cannot allocate memory",
        .has_stack = true,
        .tears_down_connections = true},
       {.cause = Cause::kNetwork,
        .is_of_machine = true,
        .exit_code = 1,
        .message = "cannot connect to 10.0.3.17:29500: No route to host",
        .tears_down_connections = true}},
      {{.cause = Cause::kStorage,
        .exit_code = 74,
        .message = "cannot write 'run/step_00000800.partial/optimizer-00031.safetensors': No space left on device. "
                   "Checkpoints saved earlier are untouched.",
        .tears_down_connections = true},
       {.cause = Cause::kStorage,
        .exit_code = 74,
        .message = "cannot write 'run/step_00000800.partial/manifest.json': Disk quota exceeded",
        .tears_down_connections = true}},
      {{.cause = Cause::kStorage,
        .exit_code = 74,
        .message = "cannot read 'data/wiki.bin': Stale file handle",
        .tears_down_connections = true},
       {.cause = Cause::kStorage,
        .exit_code = 74,
        .message = "cannot read 'data/wiki.bin': Input/output error",
        .says = {"LustreError: 11-0: scratch-OST0004-osc: operation ost_read failed: rc = -5"}}},
      {{.cause = Cause::kProgram,
        .exit_code = 17,
        .message = "the loss of step 812 is not finite",
        .tears_down_connections = true},
       {.cause = Cause::kProgram,
        .exit_code = 1,
        .message = "CUDA error: an illegal memory access was encountered" + cuda_advice + libtorch_stack(),
        .says = {"NVRM: Xid (PCI:0000:07:00): 31, pid=4021, name=espalier-engine, Ch 00000008, intr 00000000. MMU "
                 "Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2e_8a000000. Fault is of type FAULT_PDE "
                 "ACCESS_TYPE_VIRT_READ",
                 "NVRM: Xid (PCI:0000:07:00): 43, pid=4021, name=espalier-engine, Ch 00000008"},
        .has_stack = true,
        .tears_down_connections = true},
       {.cause = Cause::kProgram,
        .exit_code = 1,
        .message = "CUDA out of memory. Tried to allocate 2.25 GiB. GPU 3 has a total capacity of 79.15 GiB of which "
                   "1.12 GiB is free.",
        .has_stack = true,
        .tears_down_connections = true}},
      {{.cause = Cause::kPeer,
        .exit_code = 69,
        .message = "rank 4 has lost rank 3: connection closed by peer",
        .tears_down_connections = true},
       {.cause = Cause::kPeer,
        .exit_code = 69,
        .message =
            "NCCL error: remote process exited or there was a network error, NCCL version 2.18.3\n"
            "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
            "prematurely.\nLast error:\nNET/IB : Got completion from peer 10.0.3.17<41022> with error 12, opcode "
            "129, len 0, vendor err 129",
        .has_stack = true,
        .tears_down_connections = true}},
      {{.cause = Cause::kStopped,
        .signal = SIGTERM,
        .says = {"slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-31T17:27:38 DUE TO PREEMPTION ***",
                 "srun: Job step aborted: Waiting up to 32 seconds for job step to finish."},
        .tears_down_connections = true}},
  };
}

// The lines of eight ranks of one machine, mixed as they come.
inline std::string printed_by(const Planted& planted, std::mt19937& random) {
  const auto rank = [&] { return std::to_string(random() % 8); };
  const auto nccl = [&](const std::string& kind, const std::string& text) {
    const std::string number = rank();
    return concat("n:", 4000 + random() % 100, ":", 4100 + random() % 100, " [", number, "] NCCL ", kind, " ", text);
  };
  const std::vector<std::string> common = {
      "Channel 03/0 : 3[3] -> 4[0] [send] via NET/IB/2/GDRDMA",
      "Channel 05/0 : 0[0] -> 1[1] via P2P/CUMEM/read",
      "comm 0x55d0c2a1e4f0 rank 3 nranks 64 cudaDev 3 busId 86000 commId 0x8a51 - Init COMPLETE",
      "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.3.7<0>",
      "Setting affinity for GPU 3 to ffff,00000000",
      "NVLS multicast support is not available on dev 3",
      "NCCL_IB_TIMEOUT set by environment to 22."};
  const std::vector<std::string> others = {
      "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 (errno: 97 - Address family not "
      "supported by protocol).",
      "warning: step 811 took 3.1 s, of which 2.2 s waiting for data",
      "iteration 811/115311 | lm loss 2.183741E+00 | grad norm 0.412 | 158.3 TFLOP/s",
      "dcgm: GPU 4: 2 correctable ECC errors since start",
      "EDAC MC1: 1 CE memory scrubbing error on CPU_SrcID#0_MC#1 (channel:0)",
      "free(): would have been called for a pointer of another library; ignored"};
  std::vector<std::string> lines;
  size_t next = 0;
  const size_t before = 6 + random() % 12;
  for (size_t at = 0; at < before; ++at)
    lines.push_back(random() % 2 == 0 ? nccl("INFO", common[random() % common.size()])
                                      : concat("[", rank(), "] ", others[random() % others.size()]));
  while (next < planted.says.size()) {
    lines.push_back(planted.says[next++]);
    if (random() % 2 == 0) lines.push_back(nccl("INFO", common[random() % common.size()]));
  }
  if (planted.has_stack) lines.push_back(libtorch_stack());
  if (planted.tears_down_connections) {
    lines.push_back(nccl("WARN",
                         "NET/IB : Got completion from peer 10.0.3.17<41022> with error 12, opcode 129, len 0, vendor "
                         "err 129"));
    lines.push_back(nccl("INFO", "transport/net.cc:1034 -> 6"));
    lines.push_back(nccl("WARN", "Call to recv from 10.0.3.9<52311> failed : Connection reset by peer"));
    lines.push_back(nccl("INFO", "comm 0x55d0c2a1e4f0 rank 3 nranks 64 cudaDev 3 busId 86000 - Abort COMPLETE"));
    lines.push_back(concat("[", rank(),
                           "] [E ProcessGroupNCCL.cpp:474] Watchdog caught collective operation timeout: "
                           "WorkNCCL(SeqNum=81211, OpType=ALLREDUCE, Timeout(ms)=1800000)"));
  }
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

inline launch::Failure failure_of(const Planted& planted, const std::string& host, double time, std::mt19937& random) {
  launch::Failure failure;
  failure.host = host, failure.time = time, failure.phase = "train", failure.step = static_cast<int64_t>(time);
  failure.rank = static_cast<int64_t>(random() % 64);
  failure.signal = planted.signal, failure.exit_code = planted.exit_code, failure.lost_machine = planted.lost_machine;
  failure.message = planted.message;
  if (!planted.lost_machine) failure.last_lines = printed_by(planted, random);
  return failure;
}

}  // namespace espalier::watch::test
