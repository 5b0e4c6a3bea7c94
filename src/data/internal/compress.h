// For the tests of this library: what gzip, zstd, xz and bzip2 make of some bytes, written with their own libraries.
#pragma once

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <string>

#include "base/error.h"

namespace espalier::data::test_files {

inline std::string gzipped(const std::string& bytes) {
  z_stream stream{};
  ESPALIER_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  ESPALIER_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string zstandard(const std::string& bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3));
  return packed;
}

inline std::string xzipped(const std::string& bytes) {
  std::string packed(lzma_stream_buffer_bound(bytes.size()), '\0');
  size_t size = 0;
  ESPALIER_CHECK(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(bytes.data()),
                                         bytes.size(), reinterpret_cast<uint8_t*>(packed.data()), &size,
                                         packed.size()) == LZMA_OK);
  packed.resize(size);
  return packed;
}

inline std::string bzip2ed(const std::string& bytes) {
  std::string packed(bytes.size() + bytes.size() / 100 + 600, '\0');
  auto size = static_cast<unsigned>(packed.size());
  ESPALIER_CHECK(BZ2_bzBuffToBuffCompress(packed.data(), &size, const_cast<char*>(bytes.data()),
                                          static_cast<unsigned>(bytes.size()), 9, 0, 0) == BZ_OK);
  packed.resize(size);
  return packed;
}

}  // namespace espalier::data::test_files
