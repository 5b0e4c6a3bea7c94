#include "curate/compressed.h"

#include <zstd.h>

#include <memory>
#include <new>

#include "base/file.h"

namespace espalier::curate {

std::string compress(std::string_view text) {
  constexpr int kLevel = 3;
  std::string result(ZSTD_compressBound(text.size()), '\0');
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (context == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);  // else damage may decompress to another text
  const size_t size = ZSTD_compress2(context.get(), result.data(), result.size(), text.data(), text.size());
  if (ZSTD_isError(size)) throw std::bad_alloc();
  result.resize(size);
  return result;
}

UserError damaged(const std::filesystem::path& path) {
  return UserError(concat("'", path.string(), "' is damaged. Remove its folder, and the same recipe makes it again."),
                   ExitCode::kBadData);
}

std::string decompress(std::string_view bytes, const std::filesystem::path& path) {
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR) throw damaged(path);
  constexpr unsigned long long kMostOfAByte = 1 << 17;  // a block of 128 KiB takes some bytes
  if (size > kMostOfAByte * (bytes.size() + 1)) throw damaged(path);
  std::string text(size, '\0');
  const size_t got = ZSTD_decompress(text.data(), text.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(got) || got != size) throw damaged(path);
  return text;
}

std::string read_compressed(const std::filesystem::path& path) { return decompress(read_file(path), path); }

}  // namespace espalier::curate
