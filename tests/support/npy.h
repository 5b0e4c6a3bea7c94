// Reads .npy files that numpy wrote, for tests that compare with another implementation.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace espalier::test {

struct Npy {
  std::string descr;  // "<i4"
  std::vector<int64_t> shape;
  std::string bytes;  // the numbers, in C order

  // The numbers, whatever their width, converted.
  template <class T>
  std::vector<T> as() const {
    if (descr == "|u1") return converted<T, uint8_t>();
    if (descr == "<u2") return converted<T, uint16_t>();
    if (descr == "<u4") return converted<T, uint32_t>();
    if (descr == "<i4") return converted<T, int32_t>();
    if (descr == "<i8") return converted<T, int64_t>();
    if (descr == "<f4") return converted<T, float>();
    if (descr == "<f8") return converted<T, double>();
    throw std::runtime_error("npy type " + descr);
  }

 private:
  template <class T, class Stored>
  std::vector<T> converted() const {
    std::vector<Stored> stored(bytes.size() / sizeof(Stored));
    std::memcpy(stored.data(), bytes.data(), stored.size() * sizeof(Stored));
    return std::vector<T>(stored.begin(), stored.end());
  }
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Npy read_npy(const std::filesystem::path& path) {
  const std::string file = read_bytes(path);
  if (file.size() < 10 || file.compare(0, 8, std::string("\x93NUMPY\x01\x00", 8)) != 0)
    throw std::runtime_error("not a npy file of version 1.0: " + path.string());
  const size_t length = static_cast<uint8_t>(file[8]) + 256u * static_cast<uint8_t>(file[9]);
  const std::string header = file.substr(10, length);
  Npy npy;
  const size_t type = header.find("'descr': '") + 10;
  npy.descr = header.substr(type, header.find('\'', type) - type);
  for (size_t at = header.find("'shape': (") + 10; header[at] != ')';) {
    size_t used = 0;
    if (header[at] == ',' || header[at] == ' ') {
      ++at;
      continue;
    }
    npy.shape.push_back(std::stoll(header.substr(at), &used));
    at += used;
  }
  npy.bytes = file.substr(10 + length);
  return npy;
}

}  // namespace espalier::test
