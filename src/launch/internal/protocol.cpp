#include "launch/internal/protocol.h"

#include "base/error.h"
#include "base/sha256.h"

namespace espalier::launch::internal {
namespace {

std::string little_endian(uint64_t value, size_t num_bytes) {
  std::string text;
  for (size_t at = 0; at < num_bytes; ++at) text += static_cast<char>(value >> (8 * at));
  return text;
}

uint64_t from_little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t at = 0; at < bytes.size(); ++at) value |= uint64_t{static_cast<uint8_t>(bytes[at])} << (8 * at);
  return value;
}

std::string keyed(std::string_view secret, const std::string& purpose, const Nonces& nonces) {
  const Sha256Digest sum = hmac_sha256(secret, purpose + nonces.server + nonces.client);
  return {sum.begin(), sum.end()};
}

}  // namespace

std::string proof(std::string_view secret, Side side, const Nonces& nonces) {
  return keyed(secret, side == Side::kServer ? "server proves " : "client proves ", nonces);
}

Seal::Seal(std::string_view secret, Side sender, const Nonces& nonces)
    : key_(keyed(secret, sender == Side::kServer ? "server sends " : "client sends ", nonces)) {}

std::string Seal::next_tag(std::string_view payload) {
  HmacSha256 sum(key_);
  sum.update(little_endian(number_++, 8));
  sum.update(payload);
  const Sha256Digest digest = sum.digest();
  return {digest.begin(), digest.begin() + kTagBytes};
}

std::string Seal::seal(std::string_view payload) {
  ESPALIER_CHECK(payload.size() <= kMaxPayloadBytes, payload.size(), " bytes in one message of the rendezvous store");
  std::string message = little_endian(payload.size(), 4);
  message += next_tag(payload);
  message += payload;
  return message;
}

bool Seal::is_genuine(std::string_view tag, std::string_view payload) {
  return equal_in_constant_time(tag, next_tag(payload));
}

uint32_t payload_size(std::string_view header) {
  return static_cast<uint32_t>(from_little_endian(header.substr(0, 4)));
}

void MessageWriter::number(int64_t value) { text_ += little_endian(static_cast<uint64_t>(value), 8); }

void MessageWriter::bytes(std::string_view value) {
  number(static_cast<int64_t>(value.size()));
  text_ += value;
}

void MessageWriter::list(const std::vector<std::string>& values) {
  number(static_cast<int64_t>(values.size()));
  for (const std::string& value : values) bytes(value);
}

std::string_view MessageReader::take(size_t count) {
  ok_ = ok_ && count <= text_.size();
  if (!ok_) return {};
  const std::string_view taken = text_.substr(0, count);
  text_.remove_prefix(count);
  return taken;
}

uint8_t MessageReader::byte() {
  const std::string_view taken = take(1);
  return taken.empty() ? 0 : static_cast<uint8_t>(taken[0]);
}

int64_t MessageReader::number() { return static_cast<int64_t>(from_little_endian(take(8))); }

std::string MessageReader::bytes() { return std::string(take(static_cast<uint64_t>(number()))); }

std::vector<std::string> MessageReader::list() {
  std::vector<std::string> values;
  for (int64_t count = number(); count > 0 && ok_; --count) values.push_back(bytes());
  if (!ok_) values.clear();
  return values;
}

}  // namespace espalier::launch::internal
