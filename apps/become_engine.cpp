#include "become_engine.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace espalier {

std::string path_beside_this_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

void become_engine(const std::string& command, const std::vector<std::string>& arguments) {
  const std::string engine = path_beside_this_program("espalier-engine");
  std::vector<std::string> words = {engine, command};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(engine.c_str(), pointers.data());
  throw UserError(concat("cannot start ", engine, ": ", std::strerror(errno),
                         ". It is built and installed beside espalier; build it with scripts/setup."));
}

}  // namespace espalier
