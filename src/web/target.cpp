#include <arpa/inet.h>

#include <algorithm>

#include "web/server.h"

namespace espalier::web {
namespace {

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

bool decode(std::string_view text, std::string& decoded) {
  decoded.clear();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded += text[at];
      continue;
    }
    if (at + 2 >= text.size()) return false;
    const int high = digit_of(text[at + 1]), low = digit_of(text[at + 2]);
    if (high < 0 || low < 0) return false;
    decoded += static_cast<char>(high * 16 + low);
    at += 2;
  }
  return true;
}

}  // namespace

bool parse_target(std::string_view target, Request& request) {
  request = {};
  if (target.empty() || target[0] != '/') return false;
  const size_t question = std::min(target.find('?'), target.size());
  if (!decode(target.substr(1, question - 1), request.path)) return false;
  for (size_t begin = question + 1; begin < target.size();) {
    const size_t end = std::min(target.find('&', begin), target.size());
    const std::string_view pair = target.substr(begin, end - begin);
    const size_t equals = std::min(pair.find('='), pair.size());
    std::string key, value;
    if (!decode(pair.substr(0, equals), key)) return false;
    if (equals < pair.size() && !decode(pair.substr(equals + 1), value)) return false;
    request.query[key] = value;
    begin = end + 1;
  }
  return true;
}

bool is_own_host(const std::string& header, const std::vector<std::string>& names) {
  std::string host = header;
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string::npos) return false;
    host = host.substr(1, end - 1);
  } else {
    host = host.substr(0, host.find(':'));
  }
  unsigned char address[sizeof(in6_addr)];
  if (inet_pton(AF_INET, host.c_str(), address) == 1 || inet_pton(AF_INET6, host.c_str(), address) == 1) return true;
  std::transform(host.begin(), host.end(), host.begin(),
                 [](char letter) { return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter; });
  return host == "localhost" || std::find(names.begin(), names.end(), host) != names.end();
}

bool equal_in_constant_time(std::string_view left, std::string_view right) {
  if (left.size() != right.size()) return false;
  unsigned difference = 0;
  for (size_t at = 0; at < left.size(); ++at)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(left[at]) ^ static_cast<unsigned char>(right[at]));
  return difference == 0;
}

}  // namespace espalier::web
