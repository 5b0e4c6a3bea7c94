#include "text/internal/serde_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace espalier::text::internal {

namespace {

using nlohmann::json;

constexpr int kLargestPower = 308;
constexpr size_t kDeepest = 127;

double power_of_ten(int exponent) {
  static const std::array<double, kLargestPower + 1> powers = [] {
    std::array<double, kLargestPower + 1> made{};
    for (int i = 0; i <= kLargestPower; ++i) {
      made[static_cast<size_t>(i)] = std::strtod(concat("1e", i).c_str(), nullptr);
    }
    return made;
  }();
  return powers[static_cast<size_t>(exponent)];
}

// `significand` times ten to `exponent`, rounded as often as serde_json does.
double scaled(uint64_t significand, int64_t exponent) {
  auto value = static_cast<double>(significand);
  if (value == 0) return 0;
  if (exponent >= 0) return value * power_of_ten(static_cast<int>(std::min<int64_t>(exponent, kLargestPower)));
  for (; exponent < -kLargestPower && value != 0; exponent += kLargestPower) value /= power_of_ten(kLargestPower);
  return value == 0 ? 0 : value / power_of_ten(static_cast<int>(-exponent));
}

// What follows the e; one without end is as good as ten digits.
int64_t exponent_of(std::string_view digits) {
  if (digits.empty()) return 0;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  constexpr int64_t kEndless = 9'999'999'999;
  int64_t exponent = 0;
  const bool fits = std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec == std::errc();
  if (!fits) return digits.starts_with('-') ? -kEndless : kEndless;
  return std::clamp(exponent, -kEndless, kEndless);
}

// Builds the value from the parser's events.
class Builder final : public nlohmann::json_sax<json> {
 public:
  Builder(std::string_view text, std::string_view where) : text_(text), where_(where) {}
  json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t, const string_t& text) override { return put(serde_number(text)); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in JSON texts
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    throw UserError(concat("'", where_, "': ", json_complaint(text_, byte)), ExitCode::kBadData);
  }

 private:
  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
    return (*open_.back())[key_] = std::move(value);
  }
  bool put(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == kDeepest) {
      throw UserError(concat("'", where_, "' is nested more than ", kDeepest, " deep"), ExitCode::kBadData);
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::string_view text_, where_;
  json root_;
  std::vector<json*> open_;  // from the root; only the last one grows, so that the others stay where they are
  std::string key_;
};

}  // namespace

double serde_number(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  const size_t mantissa_end = std::min(text.find_first_of("eE"), text.size());
  uint64_t significand = 0;
  int64_t exponent = 0;
  bool is_fraction = false, is_full = false;
  for (const char c : text.substr(0, mantissa_end)) {
    if (c == '.') {
      is_fraction = true;
      is_full = false;
      continue;
    }
    const auto digit = static_cast<uint64_t>(c - '0');
    is_full = is_full || significand > (UINT64_MAX - digit) / 10;
    if (is_full) {
      exponent += is_fraction ? 0 : 1;
    } else {
      significand = 10 * significand + digit;
      exponent -= is_fraction ? 1 : 0;
    }
  }
  exponent += exponent_of(text.substr(std::min(mantissa_end + 1, text.size())));
  const double value = scaled(significand, exponent);
  return is_negative ? -value : value;
}

nlohmann::json parse_serde_json(std::string_view text, std::string_view where) {
  Builder builder(text, where);
  json::sax_parse(text, &builder);
  return builder.take();
}

}  // namespace espalier::text::internal
