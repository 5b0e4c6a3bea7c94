#include "curate/file_version.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace espalier::curate {

std::string file_version(const std::filesystem::path& file) {
  constexpr int64_t kPieces = 8, kPieceBytes = 4096;
  const InputFile input(file);
  const int64_t size = input.size_bytes(), piece_bytes = std::min(size, kPieceBytes);
  Hasher hasher;
  std::string piece(static_cast<size_t>(piece_bytes), '\0');
  for (int64_t at = 0; at < kPieces; ++at) {
    input.read_at(piece.data(), piece.size(), (size - piece_bytes) / (kPieces - 1) * at);
    hasher.update(piece.data(), piece.size());
  }
  // The remainder of the division above would leave the end out.
  input.read_at(piece.data(), piece.size(), size - piece_bytes);
  hasher.update(piece.data(), piece.size());
  const auto written = std::filesystem::last_write_time(file).time_since_epoch().count();
  return concat(size, " ", written, " ", hex64(hasher.digest()));
}

}  // namespace espalier::curate
