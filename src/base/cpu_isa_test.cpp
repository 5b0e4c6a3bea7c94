#include "base/cpu_isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/error.h"

namespace espalier {
namespace cpu_isa_test {

TEST(CpuIsa, ForcingALevelLastsForItsScope) {
  const CpuIsa before = cpu_isa();
  {
    const ForceCpuIsa force(CpuIsa::kGeneric);
    EXPECT_EQ(cpu_isa(), CpuIsa::kGeneric);
  }
  EXPECT_EQ(cpu_isa(), before);
}

TEST(CpuIsa, UnknownNameListsTheLegalOnes) {
  EXPECT_THROW(
      try { parse_cpu_isa("sse2"); } catch (const UserError& error) {
        EXPECT_NE(std::string(error.what()).find("generic, avx2, avx512, avx512bf16 or amx"), std::string::npos);
        throw;
      },
      UserError);
}

TEST(CpuIsa, EveryNameUpToTheMachinesLevelIsAccepted) {
  EXPECT_EQ(cpu_isas_of_machine().front(), CpuIsa::kGeneric);
  EXPECT_EQ(cpu_isas_of_machine().back(), best_cpu_isa());
  for (const CpuIsa isa : cpu_isas_of_machine()) EXPECT_EQ(parse_cpu_isa(cpu_isa_name(isa)), isa);
}

// By what the system says of the processor.
TEST(CpuIsa, Bf16InstructionsThatAreSlowerThanFp32AreNotChosen) {
  if (const char* wanted = std::getenv("ESPALIER_CPU_ISA"); wanted != nullptr && *wanted != '\0')
    GTEST_SKIP() << "ESPALIER_CPU_ISA chooses";
  std::ifstream file("/proc/cpuinfo");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const bool slow = text.find("GenuineIntel") != std::string::npos && text.find(" avx512_fp16") != std::string::npos;
  const CpuIsa best = best_cpu_isa();
  EXPECT_EQ(cpu_isa(), best == CpuIsa::kAvx512Bf16 && slow ? CpuIsa::kAvx512 : best);
}

TEST(CpuIsa, LevelAboveTheMachinesIsRefused) {
  if (best_cpu_isa() == CpuIsa::kAmx) GTEST_SKIP() << "this machine has the highest level";
  EXPECT_THROW(parse_cpu_isa("amx"), UserError);
}

TEST(CpuIsa, LevelOfOtherProcessorsIsRefused) {
  const bool is_arm = best_cpu_isa() == CpuIsa::kNeon || best_cpu_isa() == CpuIsa::kNeonBf16;
  EXPECT_THROW(parse_cpu_isa(is_arm ? "avx2" : "neon"), UserError);
}

}  // namespace cpu_isa_test
}  // namespace espalier
