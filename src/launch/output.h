// What ranks print, on its way to files and to the launcher's own streams.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace espalier::launch {

// Copies pipes line by line, in a thread of its own: each line whole, after its prefix. An unfinished last line gets
// its prefix and no newline.
class OutputPump {
 public:
  OutputPump();
  ~OutputPump();  // finish()
  OutputPump(const OutputPump&) = delete;
  OutputPump& operator=(const OutputPump&) = delete;

  struct Target {
    int file = -1;    // receives the bytes unchanged; closed by the pump
    int stream = -1;  // 1 or 2: also copied there, line by line; -1: not
    std::string prefix;
  };
  // The end to write to, for the rank. The caller closes it once the rank has it.
  int add(const Target& target);

  // To be called when the ranks have ended: copies what is still there and closes everything. A grandchild that still
  // holds a pipe open is not waited for.
  void finish();

 private:
  class Thread;
  std::unique_ptr<Thread> thread_;
};

// The last `count` lines of a file, as far as its last 8 KiB hold them; empty if there is no file.
std::string last_lines_of(const std::string& path, int count);

}  // namespace espalier::launch
