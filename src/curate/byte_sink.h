// Bytes into a file, compressed as its name says.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"

namespace espalier::curate {

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(std::string_view bytes) = 0;
  virtual void finish() = 0;  // the end of the compressed stream; the file is synced and closed
};

// Writes to `file`; `name` is the final one, whose extension decides: .gz, .zst, .xz, .bz2, else plain.
std::unique_ptr<ByteSink> byte_sink(const std::string& file, const std::string& name);

}  // namespace espalier::curate
