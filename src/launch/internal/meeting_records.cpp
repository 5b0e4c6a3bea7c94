#include "launch/internal/meeting_records.h"

#include <nlohmann/json.hpp>

namespace espalier::launch::internal {
namespace {

using Json = nlohmann::json;

Json json_of(const Node& node) {
  return {{"id", node.id},
          {"address", node.address},
          {"pid", node.pid},
          {"node_rank", node.node_rank},
          {"num_ranks", node.num_ranks},
          {"free_port", node.free_port}};
}

Node node_of(const Json& json) {
  Node node;
  json.at("id").get_to(node.id);
  json.at("address").get_to(node.address);
  json.at("pid").get_to(node.pid);
  json.at("node_rank").get_to(node.node_rank);
  json.at("num_ranks").get_to(node.num_ranks);
  json.at("free_port").get_to(node.free_port);
  return node;
}

}  // namespace

std::string to_json(const World& world) {
  Json nodes = Json::array();
  for (const Node& node : world.nodes) nodes.push_back(json_of(node));
  const Json json = {{"nodes", std::move(nodes)}, {"last_begun", world.last_begun}, {"history", world.history}};
  return json.dump();
}

World world_from_json(const std::string& text) {
  const Json json = Json::parse(text);
  World world;
  for (const Json& node : json.at("nodes")) world.nodes.push_back(node_of(node));
  json.at("last_begun").get_to(world.last_begun);
  json.at("history").get_to(world.history);
  return world;
}

std::string to_json(const EndRecord& record) {
  const Json json = {{"outcome", record.outcome}, {"stopped", record.stopped}, {"told", record.told}};
  return json.dump();
}

EndRecord end_record_from_json(const std::string& text) {
  const Json json = Json::parse(text);
  EndRecord record;
  json.at("outcome").get_to(record.outcome);
  json.at("stopped").get_to(record.stopped);
  json.at("told").get_to(record.told);
  return record;
}

std::string to_json(const Node& node) { return json_of(node).dump(); }

Node node_from_json(const std::string& text) { return node_of(Json::parse(text)); }

}  // namespace espalier::launch::internal
