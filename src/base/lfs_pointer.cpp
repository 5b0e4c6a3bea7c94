#include "base/lfs_pointer.h"

#include "base/error.h"

namespace espalier {

std::optional<std::string> describe_lfs_pointer(const std::filesystem::path& path, std::string_view first_bytes) {
  if (!first_bytes.starts_with("version https://git-lfs.github.com/spec/")) return std::nullopt;
  const size_t size = first_bytes.find("\nsize ");
  const std::string_view digits = size == std::string_view::npos ? "" : first_bytes.substr(size + 6);
  const std::string_view number = digits.substr(0, digits.find_first_not_of("0123456789"));
  return concat("'", path.string(), "' is a pointer of Git LFS to a file",
                number.empty() ? "" : concat(" of ", number, " bytes"),
                ", which was not fetched. Run 'git lfs pull' in its repository, or download the file itself.");
}

}  // namespace espalier
