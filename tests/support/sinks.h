// Where alerts go, on 127.0.0.1: a web server and a mail server that keep what they are sent, and refuse the first.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace espalier::test {

// Serves one connection after the other.
class Sink {
 public:
  explicit Sink(int num_refusals) : refusals_(num_refusals) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 16);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
  }
  virtual ~Sink() { ::close(listener_); }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  int port() const { return port_; }
  int num_refused() const { return num_refused_; }
  std::vector<std::string> taken() const {  // bodies
    const std::lock_guard lock(mutex_);
    return taken_;
  }

 protected:
  class Line {
   public:
    explicit Line(int socket) : socket_(socket) {}
    // Without its end; false at the end of the connection.
    bool read(std::string& line) {
      line.clear();
      for (char byte = 0; read_bytes(&byte, 1); line += byte) {
        if (byte != '\n') continue;
        if (!line.empty() && line.back() == '\r') line.pop_back();
        return true;
      }
      return false;
    }
    bool read_bytes(char* to, size_t size) {
      for (size_t got = 0; got < size;) {
        const ssize_t now = ::recv(socket_, to + got, size - got, 0);
        if (now <= 0) return false;
        got += static_cast<size_t>(now);
      }
      return true;
    }
    void say(const std::string& text) {
      const std::string line = text + "\r\n";
      for (size_t sent = 0; sent < line.size();) {
        const ssize_t now = ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
        if (now <= 0) return;
        sent += static_cast<size_t>(now);
      }
    }

   private:
    int socket_;
  };

  virtual void talk(Line line) = 0;
  void begin() {
    thread_ = std::thread([this] {
      while (!ends_) {
        pollfd ready = {listener_, POLLIN, 0};
        if (::poll(&ready, 1, 50) <= 0) continue;
        const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client < 0) continue;
        const timeval patience = {10, 0};
        ::setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        talk(Line(client));
        ::close(client);
      }
    });
  }
  void end() {
    ends_ = true;
    thread_.join();
  }
  bool refuses() {
    if (refusals_ == 0) return false;
    --refusals_, ++num_refused_;
    return true;
  }
  void keep(const std::string& body) {
    const std::lock_guard lock(mutex_);
    taken_.push_back(body);
  }

 private:
  int refusals_, listener_ = -1, port_ = 0;
  std::atomic<int> num_refused_{0};
  std::atomic<bool> ends_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> taken_;
  std::thread thread_;
};

// Takes what is posted.
class HttpSink : public Sink {
 public:
  explicit HttpSink(int num_refusals) : Sink(num_refusals) { begin(); }
  ~HttpSink() override { end(); }

 private:
  void talk(Line line) override {
    size_t size = 0;
    bool is_json = false;
    std::string text;
    if (!line.read(text) || !text.starts_with("POST ")) return line.say("HTTP/1.1 405 No\r\nContent-Length: 0\r\n");
    while (line.read(text) && !text.empty()) {
      for (char& letter : text) letter = static_cast<char>(std::tolower(letter));
      if (text.starts_with("content-length:")) size = std::stoul(text.substr(15));
      is_json = is_json || text == "content-type: application/json";
    }
    std::string body(size, 0);
    if (!line.read_bytes(body.data(), size)) return;
    if (refuses() || !is_json) return line.say("HTTP/1.1 503 Not now\r\nContent-Length: 0\r\n");
    keep(body);
    line.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n");
  }
};

// Takes messages (RFC 5321), without their headers.
class SmtpSink : public Sink {
 public:
  explicit SmtpSink(int num_refusals) : Sink(num_refusals) { begin(); }
  ~SmtpSink() override { end(); }

 private:
  void talk(Line line) override {
    line.say("220 sink");
    for (std::string command; line.read(command);) {
      if (command.starts_with("QUIT")) return line.say("221 bye");
      if (command.starts_with("MAIL") && refuses()) {
        line.say("451 try again later");
      } else if (command.starts_with("DATA")) {
        line.say("354 go on");
        std::string body;
        for (std::string text; line.read(text) && text != ".";) body += text + "\n";
        keep(body);
        line.say("250 taken");
      } else {
        line.say("250 sink");
      }
    }
  }
};

}  // namespace espalier::test
