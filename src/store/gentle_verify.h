// Reads a step back beside a run that needs disk and memory: no more than so many bytes a second, and past the page
// cache. Otherwise as verify_step (step_reader.h) does, on one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace espalier::store {

// `bytes_per_second` is above 0.
std::vector<std::string> verify_step_gently(const std::filesystem::path& step_folder, double bytes_per_second);

}  // namespace espalier::store
