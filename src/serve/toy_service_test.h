// A whole server over the engine's toy model, with bytes as tokens, and a plain socket to talk to it. For the tests of
// this library.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "infer/engine/toy_model_test.h"
#include "serve/engine_thread.h"
#include "serve/service.h"

namespace espalier::serve {

// Ids are bytes; 256 ends a document.
class ByteTokenizer final : public text::Tokenizer {
 public:
  std::unique_ptr<text::Encoder> new_encoder() const override { return std::make_unique<Bytes>(); }
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const override {
    std::string bytes, storage;
    for (const int32_t id : ids)
      if (id < 256)
        bytes += static_cast<char>(id);
      else if (!skip_special_tokens)
        bytes += "<end>";
    int64_t num_replaced = 0;
    return std::string(text::repair_utf8(bytes, storage, num_replaced));
  }
  int64_t vocab_size() const override { return 257; }
  std::optional<int32_t> eod() const override { return 256; }
  std::string id_to_piece(int32_t id) const override { return id == 256 ? "<end>" : std::string(1, char(id)); }
  std::optional<int32_t> piece_to_id(std::string_view) const override { return std::nullopt; }
  text::TokenizerJson tokenizer_json() const override { return {}; }
  std::string description() const override { return "bytes"; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }

 private:
  class Bytes final : public text::Encoder {
   public:
    void encode(std::string_view text, std::vector<int32_t>& ids) override {
      for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    }
  };
};

class PlainClient {
 public:
  explicit PlainClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval limit = {.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~PlainClient() { close(); }
  PlainClient(const PlainClient&) = delete;
  PlainClient& operator=(const PlainClient&) = delete;

  // False where the server has closed.
  bool send(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t now = ::send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (now <= 0) return false;
      sent += static_cast<size_t>(now);
    }
    return true;
  }
  // Everything until the other side closes, or until `end` arrives.
  std::string receive(const std::string& end = "") {
    std::string all;
    char piece[4096];
    while (end.empty() || all.find(end) == std::string::npos) {
      const ssize_t got = ::recv(socket_, piece, sizeof piece, 0);
      if (got <= 0) break;
      all.append(piece, static_cast<size_t>(got));
    }
    return all;
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
};

struct PlainReply {
  int status = 0;
  std::string head, body;
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, /*allow_exceptions=*/false); }
  std::string message() const { return json().value("message", ""); }
};

inline PlainReply parsed_reply(const std::string& all) {
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos || all.size() < 12) return {};
  return {.status = std::stoi(all.substr(9, 3)), .head = all.substr(0, end), .body = all.substr(end + 4)};
}

inline std::string request_text(const std::string& line, const std::string& body, const std::string& more = "") {
  return concat(line, " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: ", body.size(), "\r\n",
                more, "\r\n", body);
}

// The data of the events of a chunked stream; chunks end where events do.
inline std::vector<std::string> events_of(const std::string& body) {
  std::vector<std::string> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    events.push_back(body.substr(at + 6, end - at - 6));
    at = end;
  }
  return events;
}

class ToyService : public testing::Test {
 protected:
  explicit ToyService(DeskOptions options = {.model_name = "toy", .max_texts = 64}, const HttpOptions& http = {})
      : model_({.vocab_size = 257,
                .page_tokens = 8,
                .num_pages = 64,
                .max_positions = 100,
                .has_encoder = options.text_ends.has_value(),
                .encoder_positions = options.text_ends ? 50 : 0}),
        desk_(engine_, tokenizer_, std::move(options)),
        service_(desk_, http) {}

  void start() {
    thread_.emplace(engine_, [this](const std::exception_ptr&) { service_.fail(); });
  }
  PlainReply ask(const std::string& line, const std::string& body = "", const std::string& more = "") const {
    PlainClient client(service_.port());
    client.send(request_text(line, body, more));
    return parsed_reply(client.receive());
  }
  PlainReply complete(const nlohmann::json& body) const { return ask("POST /v1/completions", body.dump()); }
  PlainReply megatron(const nlohmann::json& body) const { return ask("PUT /api", body.dump()); }
  // Until `holds`, for at most ten seconds.
  template <class Holds>
  bool comes(Holds holds) const {
    for (int turn = 0; turn < 1000 && !holds(); ++turn) ::usleep(10'000);
    return holds();
  }

  ByteTokenizer tokenizer_;
  infer::toy::ToyModel model_;
  infer::Engine engine_{model_, &tokenizer_, {.scheduler = {.max_sequences = 16}}};
  Desk desk_;
  Service service_;
  std::optional<EngineThread> thread_;
};

}  // namespace espalier::serve
