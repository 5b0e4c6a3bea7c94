#include "train/order_record.h"

#include <map>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/order_fingerprint.h"

namespace espalier::train {
namespace {

constexpr int kFingerprintProbes = 8;

}  // namespace

std::string evaluation_data(const std::vector<const std::vector<Loader>*>& groups) {
  nlohmann::json sets = nlohmann::json::array();
  for (const std::vector<Loader>* loaders : groups)
    for (const Loader& loader : *loaders)
      sets.push_back(
          {{"set", loader.source().name()}, {"order", data::to_text(loader.source().fingerprint(loader.order()))}});
  return sets.dump();
}

std::vector<std::string> evaluation_changes(const std::string& saved, const std::string& present) {
  if (saved.empty()) return {};  // of a checkpoint that does not say
  std::map<std::string, std::string> then;
  for (const auto& set : parse_json<nlohmann::json>(saved, "the checkpoint's evaluation_data"))
    then.emplace(set.at("set").get<std::string>(), set.at("order").get<std::string>());
  std::vector<std::string> lines;
  for (const auto& set : parse_json<nlohmann::json>(present, "evaluation_data")) {
    const std::string name = set.at("set");
    const auto before = then.find(name);
    if (before == then.end()) continue;
    for (const std::string& change : data::content_changes(data::parse_order(before->second),
                                                           data::parse_order(set.at("order").get<std::string>())))
      lines.push_back(concat("evaluations of ", name, " cannot be compared with those before this start: ", change));
  }
  return lines;
}

std::string old_order_fingerprint(const data::SampleSource& source, int64_t consumed) {
  Hasher hasher;
  data::Sample sample;
  const auto probe = [&](int64_t number) {
    source.read(number % source.size(), sample);
    hasher.update(sample.arrays[0].data(), sample.arrays[0].size() * sizeof(int64_t));
  };
  for (int64_t at = 0; at < kFingerprintProbes; ++at) {
    if (consumed > 0) probe(consumed * at / kFingerprintProbes);
    if (consumed + at < source.size()) probe(consumed + at);
  }
  return hex64(hasher.digest());
}

}  // namespace espalier::train
