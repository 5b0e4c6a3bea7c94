// Addresses in another process as names of functions: its map of memory (/proc), and the tables of the files in it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier::launch::internal {

struct Mapping {
  uint64_t begin = 0, end = 0, file_offset = 0;
  std::string path;
};
// Lines of /proc/PID/maps; those without a file are left out.
std::vector<Mapping> parse_mappings(std::string_view text);
std::vector<Mapping> read_mappings(pid_t pid);

// The function that has this address, as the symbol tables of an ELF file's content tell; empty where they do not.
std::string mangled_function(std::string_view elf, uint64_t file_offset);

// Without arguments of templates and parameters: "at::native::add", "espalier::(anonymous namespace)::step".
std::string short_function(const std::string& mangled);

// Remembers what it has found: ranks of one machine run the same files.
class Symbols {
 public:
  // "at::native::add (libtorch_cpu.so)", "0x1a2b (libfoo.so)" where there is no name.
  std::string name(const std::vector<Mapping>& mappings, uint64_t address);

 private:
  std::map<std::pair<std::string, uint64_t>, std::string> known_;
};

}  // namespace espalier::launch::internal
