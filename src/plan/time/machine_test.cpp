#include "plan/time/machine.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace espalier::plan {
namespace {

std::string message_of(const std::string& toml) {
  try {
    read_machine(toml, "mine.toml");
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(Machine, EveryNumberOfABuiltInOneHasASource) {
  for (const std::string& name : machine_names()) {
    const Machine machine = find_machine(name);
    EXPECT_EQ(machine.name, name);
    for (const MachineField& field : machine_fields()) {
      if (machine.*field.value == Machine().*field.value && std::string(field.key) != "devices_per_node") continue;
      EXPECT_TRUE(machine.sources.contains(field.key)) << name << " " << field.key;
    }
    for (const auto& [key, source] : machine.sources) EXPECT_GT(source.size(), 10U) << name << " " << key;
  }
}

TEST(Machine, AFileStandsOnABaseAndReplacesItsNumbersWithTheirSources) {
  const Machine machine = read_machine(
      "base = \"h100\"\nname = \"ours\"\nmatrix_share = 0.7\nnetwork_bandwidth = 1e11\ncurrency = \"EUR\"\n"
      "[program]\nfused_attention = false\nloss_bytes = 52\n[sources]\nmatrix_share = \"measured in May\"\n",
      "mine.toml");
  const Machine base = find_machine("h100");
  EXPECT_EQ(machine.name, "ours");
  EXPECT_EQ(machine.matrix_share, 0.7);
  EXPECT_EQ(machine.network_bandwidth, 1e11);
  EXPECT_EQ(machine.peak_flops, base.peak_flops);
  EXPECT_EQ(machine.currency, "EUR");
  EXPECT_FALSE(machine.program.fused_attention);
  EXPECT_TRUE(machine.program.overlaps_data);
  EXPECT_EQ(machine.program.loss_bytes, 52);
  EXPECT_EQ(machine.sources.at("matrix_share"), "measured in May");
  EXPECT_EQ(machine.sources.at("peak_flops"), base.sources.at("peak_flops"));
  EXPECT_FALSE(machine.sources.contains("network_bandwidth")) << "the base's source is of another number";
}

TEST(Machine, AFileMayStandOnTheFileBesideIt) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "espalier_machine_test";
  std::filesystem::create_directories(folder);
  write_file_atomically(folder / "one.toml", "base = \"a100-80gb\"\ndevice_watts = 500\n");
  write_file_atomically(folder / "two.toml", "base = \"one.toml\"\nnode_watts = 1000\n");
  write_file_atomically(folder / "loop.toml", "base = \"loop.toml\"\n");
  const Machine machine = find_machine(folder / "two.toml");
  EXPECT_EQ(machine.device_watts, 500);
  EXPECT_EQ(machine.node_watts, 1000);
  EXPECT_EQ(machine.name, (folder / "two.toml").string());
  EXPECT_THROW(find_machine(folder / "loop.toml"), UserError);
  std::filesystem::remove_all(folder);
}

TEST(Machine, WhatIsWrongInAFileIsSaidWithItsLine) {
  const std::string message = message_of(
      "base = \"a100-80gb\"\nmatrix_shore = 0.5\npeak_flops = \"fast\"\n[program]\nfused_attention = 1\nfused = true\n"
      "[sources]\npeak_flops = 3\n");
  for (const char* part : {"mine.toml:2: a machine has no 'matrix_shore'; did you mean matrix_share?",
                           "mine.toml:3: peak_flops is a number", "mine.toml:5: fused_attention is true or false",
                           "mine.toml:6: a machine has no 'fused'", "mine.toml:8: the source of peak_flops is a text"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
  EXPECT_NE(message_of("base = \"b100\"").find("base = \"b100\" is neither built in (a100-80gb, h100) nor a file"),
            std::string::npos);
  EXPECT_NE(message_of("base = \"h100\"\nmatrix_share = 1.5").find("matrix_share is 1.5; it is share of the peak"),
            std::string::npos);
  EXPECT_NE(message_of("peak_flops = 1e12").find("memory_bandwidth is 0"), std::string::npos) << "nothing is guessed";
  EXPECT_NE(message_of("peak_flops = = 1").find("mine.toml:1: not TOML"), std::string::npos);
  EXPECT_THROW(find_machine("a100"), UserError);
}

}  // namespace
}  // namespace espalier::plan
