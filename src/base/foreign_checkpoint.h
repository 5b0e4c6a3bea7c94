// Folders of other programs' checkpoints, to be named where one of ours is expected.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace espalier {

// "it holds a Hugging Face model (config.json). Import it: ...", with the command; nullopt for any other folder.
std::optional<std::string> describe_foreign_checkpoint(const std::filesystem::path& folder);

}  // namespace espalier
