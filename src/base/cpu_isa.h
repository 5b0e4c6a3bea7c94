// Which instruction set the CPU kernels use: the one place where it is decided, at run time.
//
// Of one kind of processor each level includes those before it. ESPALIER_CPU_ISA=generic|avx2|avx512|avx512bf16|amx, or
// generic|neon|neonbf16 on aarch64, lowers the choice, to compare paths or to reproduce another machine's run; asking
// for what the machine lacks is a UserError. Without it the level is the machine's best, except that AVX512-BF16 is
// passed over on processors whose fp32 products are faster.
#pragma once

#include <span>

namespace espalier {

enum class CpuIsa {
  kGeneric,
  kNeon,        // aarch64, all of which have it
  kNeonBf16,    // and BFDOT (Neoverse V1, Apple M2)
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // and BF16 (AMD Zen 4, Intel Cooper Lake)
  kAmx,         // and AMX tiles with BF16, with the operating system's permission to use them
};

// The level in force. Decided at the first call (where AMX's permission is asked for), then a load of one integer.
CpuIsa cpu_isa();

// What the machine can do, whatever is in force.
CpuIsa best_cpu_isa();

// With instructions for products of bf16.
bool multiplies_bf16(CpuIsa isa);

// Our fp32 products (kernels/wide_product.h) are faster than libtorch's at that level of this processor: from AVX2 on
// except on Intel's. There MKL reaches 0.85 of what the registers can do; on other makers' processors it makes no use
// of AVX-512 (Zen 5: 110 GFLOP/s a core where ours reach 235) and is slower with AVX2 (Zen 3: 57 and 68). Arm's were
// never timed.
bool multiplies_fp32(CpuIsa isa);

// All that it can do, lowest first.
std::span<const CpuIsa> cpu_isas_of_machine();

// The processor has AMX tiles, and the operating system refuses them to this process.
bool lacks_amx_permission();

const char* cpu_isa_name(CpuIsa isa);

// The level of that name; a UserError if there is none or the machine lacks it.
CpuIsa parse_cpu_isa(const char* name);

// Puts a level in force until destroyed, for tests and benchmarks. Not while kernels run. CHECKs that the machine has
// it.
class ForceCpuIsa {
 public:
  explicit ForceCpuIsa(CpuIsa isa);
  ~ForceCpuIsa();
  ForceCpuIsa(const ForceCpuIsa&) = delete;
  ForceCpuIsa& operator=(const ForceCpuIsa&) = delete;

 private:
  CpuIsa outer_;
};

}  // namespace espalier
