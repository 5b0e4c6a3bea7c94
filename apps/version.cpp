// espalier version: what this is, and what it was built with.
#include "base/version.h"

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/become_engine.h"
#include "apps/commands.h"
#include "base/error.h"
#include "base/options.h"

namespace espalier {

int version_main(const std::vector<std::string>& arguments) {
  bool json = false;
  OptionTable table("espalier version", "Shows the versions of the program and of what it was built with.");
  table.add("--json", json, "one JSON object");
  if (!table.parse(arguments)) return 0;
  const bool has_engine = std::filesystem::exists(path_beside_this_program("espalier-engine"));
  const bool has_plugin = std::filesystem::exists(path_beside_this_program("libespalier_cuda.so"));
  if (json) {
    const nlohmann::ordered_json object = {
        {"version", kVersion},
        {"compiler", kCompiler},
        {"build_type", kBuildType},
        {"libtorch", kLibtorchVersion},
        {"engine", has_engine},
        {"cuda_plugin", has_plugin},
        {"folder", std::filesystem::path(path_beside_this_program("x")).parent_path().string()}};
    std::printf("%s\n", object.dump().c_str());
    return 0;
  }
  std::printf("espalier %s\n  built with   %s, %s\n  libtorch     %s\n  engine       %s\n  CUDA plugin  %s\n", kVersion,
              kCompiler, kBuildType, *kLibtorchVersion != '\0' ? kLibtorchVersion : "unknown",
              has_engine ? "next to this program" : "missing: espalier-engine should be next to this program",
              has_plugin ? "next to this program (espalier doctor says whether it loads)"
                         : "none: this build has no CUDA part");
  return 0;
}

}  // namespace espalier
