#include "convert/hf/input_files.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 7> kExtensions = {".json",  ".safetensors", ".bin",     ".txt",
                                                    ".model", ".jinja",       ".tiktoken"};

[[noreturn]] void refuse_input(const fs::path& path, const std::string& what) {
  throw UserError(concat("'", path.string(), "' ", what), ExitCode::kBadData);
}

std::string kind_of(fs::file_type type) {
  const std::string kind = kind_of_no_file(type);
  return kind.empty() ? "no regular file" : kind;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// models--X/blobs for models--X/snapshots/REVISION; empty elsewhere.
fs::path blobs_of(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path(), model = snapshots.parent_path();
  const bool is_cache = snapshots.filename() == "snapshots" && model.filename().string().starts_with("models--");
  return is_cache ? model / "blobs" : fs::path();
}

}  // namespace

std::optional<fs::path> file_of_folder(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / name;
  std::error_code error;
  const fs::file_status entry = fs::symlink_status(path, error);
  if (entry.type() == fs::file_type::not_found || entry.type() == fs::file_type::none) return std::nullopt;
  if (entry.type() == fs::file_type::symlink) {
    const fs::path target = fs::canonical(path, error);
    if (error)
      refuse_input(path,
                   concat("is a link to '", fs::read_symlink(path, error).string(), "', which cannot be followed"));
    const fs::path home = fs::canonical(folder), blobs = blobs_of(home);
    if (!lies_in(target, home) && (blobs.empty() || !lies_in(target, blobs)))
      refuse_input(path, concat("is a link to '", target.string(),
                                "', outside the folder that is imported. Replace the link by a copy of the file if it "
                                "belongs to the model."));
  }
  const fs::file_type type = fs::status(path, error).type();
  if (type != fs::file_type::regular) refuse_input(path, concat("is ", kind_of(type), "; expected a file"));
  return path;
}

void check_files_of_folder(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension();
    if (std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end())
      file_of_folder(folder, entry.path().filename());
  }
}

}  // namespace espalier::convert
