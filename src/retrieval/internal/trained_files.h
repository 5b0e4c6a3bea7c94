// Names and descriptions of the files of a trained index, shared by those who make and who read it.
#pragma once

#include <filesystem>
#include <string>

#include "base/json_fields.h"
#include "retrieval/index_folder.h"

namespace espalier::retrieval::internal {

using TrainedJson = nlohmann::ordered_json;

inline constexpr int64_t kTrainedFormat = 1;

inline std::filesystem::path trained_json(const std::filesystem::path& folder) { return folder / "trained.json"; }
inline std::filesystem::path training_json(const std::filesystem::path& folder) { return folder / "training.json"; }
inline std::filesystem::path trained_file(const std::filesystem::path& folder) { return folder / "trained.faiss"; }
inline std::filesystem::path empty_file(const std::filesystem::path& folder) { return folder / "trained-empty.faiss"; }

// Of the shards: their sizes and checksums.
std::string rows_checksum(const IndexFacts& index);

// XXH3 of a whole file.
uint64_t file_checksum(const std::filesystem::path& path);

}  // namespace espalier::retrieval::internal
