// A range of a file as a pickle reads it: front to back, in small pieces.
//
// What is wrong with a pickle is thrown as a Refusal, which has no path yet; read_torch_file adds it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace espalier::store {

struct Refusal {
  std::string what;
};

template <class... Parts>
[[noreturn]] void refuse_file(const Parts&... parts) {
  throw Refusal{concat(parts...)};
}

class PickleInput {
 public:
  PickleInput(const InputFile& file, int64_t begin, int64_t end)
      : file_(file), begin_(begin), end_(end), window_begin_(begin), position_(begin) {}

  int64_t position() const { return position_; }  // in the file
  int64_t left() const { return end_ - position_; }
  int64_t consumed() const { return position_ - begin_; }

  uint8_t byte();
  template <class Number>
  Number number();  // little endian
  std::string text(uint64_t size);
  std::string line();  // without its end

 private:
  void copy(void* destination, size_t size);

  const InputFile& file_;
  int64_t begin_, end_;
  int64_t window_begin_, position_;
  std::vector<char> window_;
};

}  // namespace espalier::store
