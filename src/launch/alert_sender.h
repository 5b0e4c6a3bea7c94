// Runs the user's command for each alert, on a thread of its own: one at a time, in order, retrying those that fail.
//
//   AlertSender sender({.command = "curl -fsS -d @- https://chat.example/hook", .on_failure = say});
//   sender.send(R"({"incident": "hang", ...})");   // the command gets it on its standard input
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace espalier::launch {

struct AlertSenderOptions {
  std::string command;  // for sh
  // Before it is tried again.
  std::vector<double> pauses_seconds = {1, 5, 30};
  double timeout_seconds = 60;  // of one try; then it and what it started are killed
  // On the sender's thread, both: an alert that the command took; one that no try delivered, and how the last one
  // ended.
  std::function<void(const std::string& alert)> on_delivered = {};
  std::function<void(const std::string& alert, const std::string& why)> on_failure;
};

class AlertSender {
 public:
  explicit AlertSender(AlertSenderOptions options);
  // Waits until all are sent, for ten seconds at most; what is left then has failed.
  ~AlertSender();
  AlertSender(const AlertSender&) = delete;
  AlertSender& operator=(const AlertSender&) = delete;

  void send(const std::string& alert);

 private:
  void run();
  void deliver(const std::string& alert);
  std::string try_once(const std::string& alert) const;  // "": delivered
  bool pause(double seconds);                            // false: there is no more time
  bool is_late() const;

  AlertSenderOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> waiting_;
  double last_moment_ = 0;  // seconds of the monotonic clock; 0: not ending
  std::thread thread_;
};

}  // namespace espalier::launch
