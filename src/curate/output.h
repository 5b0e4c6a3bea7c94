// Where curated documents go. Files appear whole, when finish() returns.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.h"
#include "curate/document.h"

namespace espalier::curate {

class Output {
 public:
  virtual ~Output() = default;
  virtual void write(const Document& document) = 0;  // in order
  // Makes all ready, so that move_into_place() only renames.
  virtual void prepare() = 0;
  virtual void move_into_place() = 0;
  virtual int64_t num_documents() const = 0;
};

// JSONL, compressed as the end of the name says: .gz, .zst, .xz, .bz2, else plain.
std::unique_ptr<Output> jsonl_output(const std::filesystem::path& path, std::string text_key);

}  // namespace espalier::curate
