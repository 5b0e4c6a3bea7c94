// A socket in a run's folder through which a person on the same machine, as the same user, queries the run.
//
// It is FOLDER/control.<node>.<host>. Where that path is too long for a socket, or the file system allows none, the
// socket is in the temporary directory and the file names it. One request and one answer per connection: a line of JSON
// each, {"command": "status"} and what answers it, or {"error": "..."}.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace espalier::launch {

using ControlMessage = nlohmann::ordered_json;

struct ControlAnswer {
  ControlMessage message;
  std::function<void()> afterwards;  // once it is sent; may be empty
};

class ControlServer {
 public:
  // `folder` is asked until it names one. The handler is called by the server's thread, for one request after another;
  // a UserError of it is answered.
  struct Options {
    std::function<std::string()> folder;
    int64_t node = 0;
    std::function<ControlAnswer(const ControlMessage& request)> handler;
  };
  explicit ControlServer(Options options);
  ~ControlServer();  // removes the files
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

 private:
  class Socket;
  void serve();
  bool open();
  void answer(int connection) const;

  Options options_;
  std::unique_ptr<Socket> socket_;
  int wake_ = -1;
  std::thread thread_;
};

// The sockets in a run's folder.
struct ControlPlace {
  int64_t node = 0;
  std::string host, file;
  bool is_here = false;  // on this machine
};
std::vector<ControlPlace> control_places(const std::string& folder);  // in the order of nodes

enum class ControlOutcome { kAnswered, kStale, kTrouble };
struct ControlReply {
  ControlOutcome outcome = ControlOutcome::kTrouble;
  ControlMessage message;
  std::string trouble;  // in words, for kTrouble
};
// kStale: nobody serves this socket any more.
ControlReply ask_control(const ControlPlace& place, const ControlMessage& request, double seconds);

}  // namespace espalier::launch
