#include "launch/control_socket.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/json.h"
#include "base/log.h"
#include "launch/internal/number.h"
#include "launch/internal/socket.h"

namespace espalier::launch {

using internal::Clock;
using internal::Descriptor;

namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestMessage = size_t{16} << 20;
constexpr size_t kLongestRequest = 4096;
constexpr const char* kPrefix = "control.";

std::optional<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

Descriptor new_socket() { return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// Not valid, with errno, where the path cannot be a socket's.
Descriptor listen_at(const std::string& path) {
  const auto address = address_of(path);
  if (!address) {
    errno = ENAMETOOLONG;
    return {};
  }
  Descriptor socket = new_socket();
  fchmod(socket.get(), 0600);  // before it has a name
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) return {};
  if (chmod(path.c_str(), 0600) != 0 || listen(socket.get(), 16) != 0) return {};
  return socket;
}

// Where the socket of this file is: here, or where the file says.
std::string socket_path(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return file;
  std::ifstream pointer(file);
  std::string path;
  std::getline(pointer, path);
  return path;
}

Descriptor connect_to(const std::string& file) {
  const std::string path = socket_path(file);
  const auto address = address_of(path);
  if (!address || path.empty()) {
    errno = ENOENT;
    return {};
  }
  Descriptor socket = new_socket();
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) return {};
  return socket;
}

// Up to a newline or the end. Nothing when it took too long or was too much.
std::optional<std::string> read_line(int socket, size_t longest, Clock::time_point deadline) {
  std::string text;
  while (text.size() <= longest) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry = {socket, POLLIN, 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) < 0) return std::nullopt;
    if (entry.revents == 0) continue;
    char buffer[4096];
    const ssize_t got = recv(socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.back() == '\n') return text;
  }
  return std::nullopt;
}

bool is_of_this_user(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

std::string line_of(const ControlMessage& message) {
  return message.dump(-1, ' ', false, ControlMessage::error_handler_t::replace) + "\n";
}

}  // namespace

// The socket, and the files by which it is found.
class ControlServer::Socket {
 public:
  // UserError if there can be none.
  explicit Socket(std::string file) : file_(std::move(file)) {
    if (connect_to(file_).valid()) throw UserError(concat("'", file_, "' is served by another process"));
    ::unlink(file_.c_str());  // left by a process that was killed
    socket_ = listen_at(file_);
    if (socket_.valid()) return;
    ::unlink(file_.c_str());
    open_elsewhere();
  }
  ~Socket() {
    ::unlink(file_.c_str());
    if (elsewhere_.empty()) return;
    ::unlink((elsewhere_ + "/socket").c_str());
    ::rmdir(elsewhere_.c_str());
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int get() const { return socket_.get(); }

 private:
  void open_elsewhere() {
    const char* const temporary = std::getenv("TMPDIR");
    for (const std::string& base : {std::string(temporary == nullptr ? "/tmp" : temporary), std::string("/tmp")}) {
      std::string folder = base + "/espalier-control-XXXXXX";
      if (mkdtemp(folder.data()) == nullptr) continue;
      socket_ = listen_at(folder + "/socket");
      if (socket_.valid()) {
        elsewhere_ = folder;
        // By a name that control_places() does not take for one, as it would the temporary file of this name.
        const fs::path file = file_, hidden = file.parent_path() / ("." + file.filename().string());
        write_file_atomically(hidden, folder + "/socket\n");
        fs::rename(hidden, file);
        return;
      }
      ::rmdir(folder.c_str());
    }
    throw UserError(
        concat("cannot create a socket at '", file_, "' or in the temporary directory: ", std::strerror(errno)));
  }

  std::string file_, elsewhere_;
  Descriptor socket_;
};

ControlServer::ControlServer(Options options)
    : options_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  ESPALIER_CHECK(wake_ >= 0, std::strerror(errno));
  sigset_t all, before;  // other threads handle signals
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ControlServer::~ControlServer() {
  const uint64_t one = 1;
  const ssize_t written = write(wake_, &one, sizeof one);
  static_cast<void>(written);
  thread_.join();
  close(wake_);
}

// False as long as the run has no folder.
bool ControlServer::open() {
  const std::string folder = options_.folder();
  if (folder.empty()) return false;
  socket_ = std::make_unique<Socket>(concat(folder, "/", kPrefix, options_.node, ".", host_name()));
  return true;
}

void ControlServer::serve() {
  try {
    while (true) {
      pollfd entries[] = {{wake_, POLLIN, 0}, {socket_ ? socket_->get() : -1, POLLIN, 0}};
      poll(entries, 2, socket_ ? -1 : 100);
      if (entries[0].revents != 0) break;
      if (!socket_ && !open()) continue;
      if (entries[1].revents == 0) continue;
      const Descriptor connection(accept4(socket_->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (connection.valid()) answer(connection.get());
    }
  } catch (const std::exception& error) {
    log_warning("espalier ctl does not work for this run: ", error.what());
  }
  socket_.reset();
}

void ControlServer::answer(int connection) const {
  if (!is_of_this_user(connection)) return;
  const auto request = read_line(connection, kLongestRequest, Clock::now() + std::chrono::seconds(2));
  if (!request) return;
  ControlAnswer answer;
  try {
    answer = options_.handler(parse_json<ControlMessage>(*request, "the request"));
  } catch (const std::exception& error) {
    answer = {{{"error", error.what()}}, {}};
  }
  internal::send_all(connection, line_of(answer.message), Clock::now() + std::chrono::seconds(5));
  if (answer.afterwards) answer.afterwards();
}

std::vector<ControlPlace> control_places(const std::string& folder) {
  std::vector<ControlPlace> places;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), last; !error && entry != last; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (!name.starts_with(kPrefix)) continue;
    const size_t start = std::strlen(kPrefix), dot = name.find('.', start);
    const auto node = dot == std::string::npos ? std::nullopt : parse_whole(name.substr(start, dot - start));
    const std::string host = dot == std::string::npos ? "" : name.substr(dot + 1);
    if (node) places.push_back({*node, host, entry->path(), host == host_name()});
  }
  std::sort(places.begin(), places.end(), [](const ControlPlace& left, const ControlPlace& right) {
    return std::pair(left.node, left.host) < std::pair(right.node, right.host);
  });
  return places;
}

ControlReply ask_control(const ControlPlace& place, const ControlMessage& request, double seconds) {
  const Descriptor socket = connect_to(place.file);
  if (!socket.valid()) {
    if (errno == ECONNREFUSED || errno == ENOENT) return {ControlOutcome::kStale, {}, ""};
    return {ControlOutcome::kTrouble, {}, concat("cannot connect to '", place.file, "': ", std::strerror(errno))};
  }
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const std::string text = line_of(request);
  if (internal::send_all(socket.get(), text, deadline) != internal::Transfer::kDone)
    return {ControlOutcome::kTrouble, {}, concat("'", place.file, "' did not accept the request")};
  const auto reply = read_line(socket.get(), kLongestMessage, deadline);
  if (!reply || reply->empty())
    return {
        ControlOutcome::kTrouble, {}, concat("'", place.file, "' did not answer within ", format_duration(seconds))};
  return {ControlOutcome::kAnswered, parse_json<ControlMessage>(*reply, place.file), ""};
}

}  // namespace espalier::launch
