#include "report/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace espalier::report {
namespace {

class Descriptor {
 public:
  // Without waiting for the other end of a pipe that has the name.
  explicit Descriptor(const std::filesystem::path& path)
      : number_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

std::string read_from(int descriptor, int64_t offset, int64_t size) {
  std::string text(static_cast<size_t>(size), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t now = ::pread(descriptor, text.data() + got, text.size() - got, offset + static_cast<int64_t>(got));
    if (now <= 0) break;  // cut off meanwhile
    got += static_cast<size_t>(now);
  }
  text.resize(got);
  return text;
}

}  // namespace

LogPiece read_log_tail(const std::filesystem::path& path, const LogPlace& since, int64_t most_bytes) {
  const Descriptor file(path);
  struct stat facts = {};
  if (file.number() < 0 || ::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {.end = since};
  const int64_t size = facts.st_size;
  const bool follows = since.file == facts.st_ino && since.bytes <= size && size - since.bytes <= most_bytes;
  LogPiece piece{.anew = !follows, .end = {.file = facts.st_ino, .bytes = since.bytes}};
  int64_t begin = follows ? since.bytes : std::max<int64_t>(0, size - most_bytes);
  piece.text = read_from(file.number(), begin, size - begin);
  if (!follows && begin > 0) {  // in the middle of a line
    const size_t first = piece.text.find('\n');
    const size_t dropped = first == std::string::npos ? 0 : first + 1;
    piece.text.erase(0, dropped);
    begin += static_cast<int64_t>(dropped);
  }
  const size_t last = piece.text.rfind('\n');
  if (last != std::string::npos)
    piece.text.resize(last + 1);
  else if (static_cast<int64_t>(piece.text.size()) < most_bytes)
    piece.text.clear();
  piece.end.bytes = begin + static_cast<int64_t>(piece.text.size());
  return piece;
}

}  // namespace espalier::report
