#include "launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.h"
#include "launch/internal/socket.h"

namespace espalier::launch {

using internal::Descriptor;

namespace {

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // somebody made our stdout non-blocking
      pollfd entry = {descriptor, POLLOUT, 0};
      poll(&entry, 1, 1000);
      continue;
    }
    if (written <= 0) return;  // a full disk or a closed terminal: the ranks go on
    text.remove_prefix(static_cast<size_t>(written));
  }
}

struct Source {
  Descriptor pipe, file;
  int stream = -1;
  std::string prefix, partial;

  // Whole lines go out in one write, so that lines of different ranks do not mix.
  void take(std::string_view data) {
    if (file.valid()) write_all(file.get(), data);
    if (stream < 0) return;
    partial += data;
    const size_t end = partial.rfind('\n');
    if (end == std::string::npos) return;
    std::string lines;
    for (size_t at = 0; at <= end;) {
      const size_t next = partial.find('\n', at) + 1;
      lines += prefix;
      lines.append(partial, at, next - at);
      at = next;
    }
    partial.erase(0, end + 1);
    write_all(stream, lines);
  }

  void close() {
    if (stream >= 0 && !partial.empty()) write_all(stream, prefix + partial);
    partial.clear();
    pipe.reset();
    file.reset();
  }

  // False at the end of the pipe.
  bool copy() {
    char buffer[1 << 16];
    while (true) {
      const ssize_t got = read(pipe.get(), buffer, sizeof buffer);
      if (got > 0) {
        take({buffer, static_cast<size_t>(got)});
        continue;
      }
      return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
  }
};

}  // namespace

class OutputPump::Thread {
 public:
  Thread() : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    ESPALIER_CHECK(wake_.valid(), std::strerror(errno));
    sigset_t all, before;  // the launcher handles signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  int add(const Target& target) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw UserError(concat("cannot make a pipe: ", std::strerror(errno)));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    auto source = std::make_unique<Source>();
    source->pipe = Descriptor(ends[0]);
    source->file = Descriptor(target.file);
    source->stream = target.stream;
    source->prefix = target.prefix;
    {
      const std::lock_guard lock(mutex_);
      sources_.push_back(std::move(source));
    }
    wake();
    return ends[1];
  }

  void finish() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      finishing_ = true;
    }
    wake();
    thread_.join();
  }

 private:
  void wake() {
    const uint64_t one = 1;
    const ssize_t written = write(wake_.get(), &one, sizeof one);
    static_cast<void>(written);  // full means that it is awake
  }

  void run() {
    while (true) {
      std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
      std::vector<Source*> sources;
      bool finishing = false;
      {
        const std::lock_guard lock(mutex_);
        finishing = finishing_;
        std::erase_if(sources_, [](const auto& source) { return !source->pipe.valid(); });
        for (const auto& source : sources_) {
          sources.push_back(source.get());
          entries.push_back({source->pipe.get(), POLLIN, 0});
        }
      }
      if (!finishing) poll(entries.data(), entries.size(), -1);
      uint64_t count = 0;
      const ssize_t got = read(wake_.get(), &count, sizeof count);
      static_cast<void>(got);
      for (size_t at = 0; at < sources.size(); ++at)
        if ((finishing || entries[at + 1].revents != 0) && !sources[at]->copy()) sources[at]->close();
      if (!finishing) continue;
      for (Source* source : sources) source->close();
      return;
    }
  }

  Descriptor wake_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Source>> sources_;
  bool finishing_ = false;
  std::thread thread_;
};

OutputPump::OutputPump() : thread_(std::make_unique<Thread>()) {}
OutputPump::~OutputPump() { finish(); }
int OutputPump::add(const Target& target) { return thread_->add(target); }
void OutputPump::finish() { thread_->finish(); }

std::string last_lines_of(const std::string& path, int count) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  constexpr std::streamoff kMost = 8192;
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kMost));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  size_t at = text.size();
  if (at > 0 && text[at - 1] == '\n') --at;
  for (; at > 0; --at)
    if (text[at - 1] == '\n' && --count == 0) break;
  return text.substr(at);
}

}  // namespace espalier::launch
