// The keys and values of a rendezvous store server, and what each operation does to them. No sockets, no threads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/internal/protocol.h"

namespace espalier::launch::internal {

class Table {
 public:
  struct Outcome {
    Status status = Status::kOk;
    std::string payload;                  // after the status
    std::vector<std::string> new_values;  // keys that waiting clients may now have
  };
  // Any operation but kGet, kWait and kLastWill. Anything malformed is kBadRequest.
  Outcome apply(Operation operation, MessageReader& request);

  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  bool has_all(const std::vector<std::string>& keys) const;
  // Of keys that are all there.
  std::string values_payload(const std::vector<std::string>& keys) const;

 private:
  Outcome add(MessageReader& request);
  Outcome compare_set(MessageReader& request);
  Outcome multi_set(MessageReader& request);

  std::map<std::string, std::string> values_;
};

}  // namespace espalier::launch::internal
