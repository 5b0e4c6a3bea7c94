#include "launch/internal/table.h"

#include <algorithm>
#include <charconv>

namespace espalier::launch::internal {
namespace {

Table::Outcome bad_request() { return {Status::kBadRequest, "", {}}; }

std::string number_payload(int64_t value) {
  MessageWriter writer;
  writer.number(value);
  return writer.text();
}

}  // namespace

bool Table::has_all(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return values_.contains(key); });
}

std::string Table::values_payload(const std::vector<std::string>& keys) const {
  MessageWriter writer;
  writer.number(static_cast<int64_t>(keys.size()));
  for (const std::string& key : keys) writer.bytes(values_.at(key));
  return writer.text();
}

// Counters are kept as decimal text, as c10d's stores do, so that get() reads them.
Table::Outcome Table::add(MessageReader& request) {
  const std::string key = request.bytes();
  const int64_t amount = request.number();
  if (!request.at_end()) return bad_request();
  std::string& text = values_[key];
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!text.empty() && (error != std::errc() || end != text.data() + text.size())) return bad_request();
  if (__builtin_add_overflow(value, amount, &value)) return bad_request();
  text = std::to_string(value);
  return {Status::kOk, number_payload(value), {key}};
}

// An empty expectation also fits a key that is not there; c10d's rule.
Table::Outcome Table::compare_set(MessageReader& request) {
  const std::string key = request.bytes(), expected = request.bytes(), desired = request.bytes();
  if (!request.at_end()) return bad_request();
  const auto found = values_.find(key);
  const bool fits = found == values_.end() ? expected.empty() : found->second == expected;
  MessageWriter writer;
  if (!fits) {
    writer.bytes(found == values_.end() ? expected : found->second);
    return {Status::kOk, writer.text(), {}};
  }
  values_[key] = desired;
  writer.bytes(desired);
  return {Status::kOk, writer.text(), {key}};
}

Table::Outcome Table::multi_set(MessageReader& request) {
  const std::vector<std::string> keys = request.list(), values = request.list();
  if (!request.at_end() || keys.size() != values.size()) return bad_request();
  for (size_t at = 0; at < keys.size(); ++at) values_[keys[at]] = values[at];
  return {Status::kOk, "", keys};
}

Table::Outcome Table::apply(Operation operation, MessageReader& request) {
  switch (operation) {
    case Operation::kSet:
    case Operation::kAppend: {
      const std::string key = request.bytes(), value = request.bytes();
      if (!request.at_end()) return bad_request();
      if (operation == Operation::kSet)
        values_[key] = value;
      else
        values_[key] += value;
      return {Status::kOk, "", {key}};
    }
    case Operation::kMultiSet: return multi_set(request);
    case Operation::kAdd: return add(request);
    case Operation::kCompareSet: return compare_set(request);
    case Operation::kDelete: {
      const std::string key = request.bytes();
      if (!request.at_end()) return bad_request();
      return {Status::kOk, number_payload(static_cast<int64_t>(values_.erase(key))), {}};
    }
    case Operation::kNumKeys:
      if (!request.at_end()) return bad_request();
      return {Status::kOk, number_payload(static_cast<int64_t>(values_.size())), {}};
    case Operation::kCheck: {
      const std::vector<std::string> keys = request.list();
      if (!request.at_end()) return bad_request();
      return {Status::kOk, number_payload(has_all(keys) ? 1 : 0), {}};
    }
    case Operation::kListKeys: {
      if (!request.at_end()) return bad_request();
      MessageWriter writer;
      writer.number(static_cast<int64_t>(values_.size()));
      for (const auto& [key, value] : values_) writer.bytes(key);
      return {Status::kOk, writer.text(), {}};
    }
    case Operation::kGet:
    case Operation::kWait:
    case Operation::kLastWill: break;  // the server's: they take effect later
  }
  return bad_request();
}

}  // namespace espalier::launch::internal
