// What store server and client say to each other: proof of the secret first, then sealed messages.
//
// On connecting the server sends kMagic and 32 random bytes; the client 32 random bytes and its proof, an HMAC of both
// under the secret; the server kAccepted and its own proof, or kRefused. Each message then is 4 bytes of length, a
// 16-byte tag (an HMAC over a running number and the payload, under a key of this connection and direction) and the
// payload. Nothing is encrypted: the secret itself is never sent, and nobody on the way can add or change a message.
// Numbers are little-endian.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::launch::internal {

inline constexpr std::string_view kMagic = "espalier store 1";  // 16 bytes
inline constexpr size_t kNonceBytes = 32, kProofBytes = 32, kTagBytes = 16;
inline constexpr size_t kHelloBytes = kMagic.size() + kNonceBytes, kAnswerBytes = kNonceBytes + kProofBytes;
inline constexpr size_t kHeaderBytes = 4 + kTagBytes;
inline constexpr size_t kMaxPayloadBytes = size_t{256} << 20;
inline constexpr char kAccepted = 'Y', kRefused = 'N';

enum class Operation : uint8_t {
  kSet = 1,     // key, value
  kMultiSet,    // count, (key, value)...
  kGet,         // milliseconds, count, keys...: waits until all exist; their values
  kWait,        // the same, without values
  kAdd,         // key, number: the sum
  kCompareSet,  // key, expected, desired: the value afterwards
  kDelete,      // key: 1 if it was there
  kNumKeys,     // the number
  kCheck,       // count, keys...: 1 if all exist
  kListKeys,    // count, keys...
  kAppend,      // key, value
  kLastWill,    // keys..., values...: set when this connection ends, however it ends
};

enum class Status : uint8_t { kOk = 0, kTimedOut, kBadRequest };

struct Nonces {
  std::string server, client;
};

enum class Side { kServer, kClient };

std::string proof(std::string_view secret, Side side, const Nonces& nonces);

// One direction of a connection. Sender and receiver each hold one and count alike.
class Seal {
 public:
  Seal() = default;
  Seal(std::string_view secret, Side sender, const Nonces& nonces);
  std::string seal(std::string_view payload);                       // header and payload
  bool is_genuine(std::string_view tag, std::string_view payload);  // of the next message

 private:
  std::string next_tag(std::string_view payload);
  std::string key_;
  uint64_t number_ = 0;
};

uint32_t payload_size(std::string_view header);

class MessageWriter {
 public:
  void byte(uint8_t value) { text_ += static_cast<char>(value); }
  void number(int64_t value);
  void bytes(std::string_view value);
  void list(const std::vector<std::string>& values);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// ok() turns false, and stays so, when something is missing; what is read then is empty.
class MessageReader {
 public:
  explicit MessageReader(std::string_view text) : text_(text) {}
  uint8_t byte();
  int64_t number();
  std::string bytes();
  std::vector<std::string> list();
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && text_.empty(); }

 private:
  std::string_view take(size_t count);
  std::string_view text_;
  bool ok_ = true;
};

}  // namespace espalier::launch::internal
