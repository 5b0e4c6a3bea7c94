#include "launch/internal/meeting_keys.h"

namespace espalier::launch::internal {

// By hand, as a look asks for many of them.
std::string key_of(int64_t round, const std::string& name) {
  std::string key = "launch/";
  key += std::to_string(round);
  key += '/';
  key += name;
  return key;
}

std::string left_key(int64_t round, const std::string& id) { return key_of(round, "left/" + id); }

std::string gone_key(const std::string& id) { return "launch/gone/" + id; }

void leave_departure(RendezvousStore& store, int64_t round, const std::string& id, std::vector<std::string> keys,
                     std::vector<std::string> values) {
  for (const std::string& mark : {left_key(round, id), key_of(round, kSomebodyLeft), gone_key(id)})
    keys.push_back(mark), values.push_back("");
  store.leave_will(keys, values);
}

}  // namespace espalier::launch::internal
