#include "curate/compressed.h"

#include <zstd.h>

#include <new>

#include "base/error.h"
#include "base/file.h"

namespace espalier::curate {

std::string compress(std::string_view text) {
  constexpr int kLevel = 3;
  std::string result(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress(result.data(), result.size(), text.data(), text.size(), kLevel);
  if (ZSTD_isError(size)) throw std::bad_alloc();
  result.resize(size);
  return result;
}

std::string read_compressed(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  const auto damaged = [&] {
    return UserError(
        concat("'", path.string(), "' is damaged. Remove its folder, and the run starts from the beginning."),
        ExitCode::kBadData);
  };
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) throw damaged();
  std::string text(size, '\0');
  const size_t got = ZSTD_decompress(text.data(), text.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(got) || got != size) throw damaged();
  return text;
}

}  // namespace espalier::curate
