#include "base/cpu_isa.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#ifdef __aarch64__
#include <sys/auxv.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/error.h"

namespace espalier {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kGeneric, CpuIsa::kNeon,       CpuIsa::kNeonBf16, CpuIsa::kAvx2,
                           CpuIsa::kAvx512,  CpuIsa::kAvx512Bf16, CpuIsa::kAmx};
// Of this kind of processor.
#ifdef __aarch64__
constexpr CpuIsa kLevels[] = {CpuIsa::kGeneric, CpuIsa::kNeon, CpuIsa::kNeonBf16};
#else
constexpr CpuIsa kLevels[] = {CpuIsa::kGeneric, CpuIsa::kAvx2, CpuIsa::kAvx512, CpuIsa::kAvx512Bf16, CpuIsa::kAmx};
#endif

bool amx_was_refused = false;

#ifdef __x86_64__

// The tile registers are 8 KiB of state that Linux saves only for processes that asked: once, for all their threads.
bool permit_amx_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx_bf16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

// Not by __builtin_cpu_supports: only GCC's knows it.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool is_intel() { return __builtin_cpu_is("intel"); }

// Intel's cores with AMX (all of them have AVX512-FP16 too) leave bf16 to the tiles: their VDPBF16PS does half the
// multiplications a second that fp32 FMA does (Emerald Rapids: 86 and 170 GFLOP/s a core, bench/machine_bench), where
// AMD's does twice as many. Where the tiles cannot be used, fp32 products of widened operands are faster.
bool has_slow_bf16_products() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAvx512Fp16 = 1u << 23;
  return is_intel() && (edx & kAvx512Fp16) != 0;
}

CpuIsa detect() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
    return CpuIsa::kGeneric;
  }
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    return CpuIsa::kAvx2;
  }
  if (!__builtin_cpu_supports("avx512bf16")) return CpuIsa::kAvx512;
  if (!has_amx_bf16()) return CpuIsa::kAvx512Bf16;
  amx_was_refused = !permit_amx_tiles();
  return amx_was_refused ? CpuIsa::kAvx512Bf16 : CpuIsa::kAmx;
}

#else

bool is_intel() { return false; }
bool has_slow_bf16_products() { return false; }

CpuIsa detect() {
#ifdef __aarch64__
  constexpr unsigned long kHasBf16 = 1UL << 14;  // HWCAP2_BF16
  return (getauxval(AT_HWCAP2) & kHasBf16) != 0 ? CpuIsa::kNeonBf16 : CpuIsa::kNeon;
#else
  return CpuIsa::kGeneric;
#endif
}

#endif

bool of_machine(CpuIsa isa) {
  const std::span<const CpuIsa> levels = cpu_isas_of_machine();
  return std::find(levels.begin(), levels.end(), isa) != levels.end();
}

CpuIsa chosen() {
  const char* wanted = std::getenv("ESPALIER_CPU_ISA");
  if (wanted != nullptr && *wanted != '\0') return parse_cpu_isa(wanted);
  return best_cpu_isa() == CpuIsa::kAvx512Bf16 && has_slow_bf16_products() ? CpuIsa::kAvx512 : best_cpu_isa();
}

std::atomic<CpuIsa>& in_force() {
  static std::atomic<CpuIsa> isa{chosen()};
  return isa;
}

}  // namespace

CpuIsa best_cpu_isa() {
  static const CpuIsa best = detect();
  return best;
}

bool multiplies_bf16(CpuIsa isa) {
  return isa == CpuIsa::kNeonBf16 || isa == CpuIsa::kAvx512Bf16 || isa == CpuIsa::kAmx;
}

bool multiplies_fp32(CpuIsa isa) { return isa >= CpuIsa::kAvx2 && !is_intel(); }

std::span<const CpuIsa> cpu_isas_of_machine() {
  return {std::begin(kLevels), std::find(std::begin(kLevels), std::end(kLevels), best_cpu_isa()) + 1};
}

bool lacks_amx_permission() {
  best_cpu_isa();
  return amx_was_refused;
}

CpuIsa cpu_isa() { return in_force().load(std::memory_order_relaxed); }

const char* cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kGeneric: return "generic";
    case CpuIsa::kNeon: return "neon";
    case CpuIsa::kNeonBf16: return "neonbf16";
    case CpuIsa::kAvx2: return "avx2";
    case CpuIsa::kAvx512: return "avx512";
    case CpuIsa::kAvx512Bf16: return "avx512bf16";
    case CpuIsa::kAmx: return "amx";
  }
  return "unknown";
}

CpuIsa parse_cpu_isa(const char* name) {
  for (const CpuIsa isa : kAll) {
    if (std::strcmp(name, cpu_isa_name(isa)) != 0) continue;
    if (of_machine(isa)) return isa;
    throw UserError(concat("ESPALIER_CPU_ISA=", name, ": this machine reaches ", cpu_isa_name(best_cpu_isa()),
                           ". Unset it, or set it to that or a lower level."),
                    ExitCode::kUsage);
  }
  throw UserError(concat("ESPALIER_CPU_ISA=", name,
                         " is not an instruction set. Use generic, avx2, avx512, avx512bf16 "
                         "or amx, on aarch64 generic, neon or neonbf16, or unset it."),
                  ExitCode::kUsage);
}

ForceCpuIsa::ForceCpuIsa(CpuIsa isa) : outer_(cpu_isa()) {
  ESPALIER_CHECK(of_machine(isa), "forced ", cpu_isa_name(isa), ", the machine has ", cpu_isa_name(best_cpu_isa()));
  in_force().store(isa);
}
ForceCpuIsa::~ForceCpuIsa() { in_force().store(outer_); }

}  // namespace espalier
