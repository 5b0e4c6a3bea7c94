#include "launch/round.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace espalier::launch {
namespace {

int64_t plus_ranks(int64_t count, const Node& node) { return count + node.num_ranks; }

}  // namespace

int64_t num_ranks(const std::vector<Node>& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), int64_t{0}, plus_ranks);
}

int64_t first_rank_of(const Round& round, size_t node) {
  const auto first = round.nodes.begin();
  return std::accumulate(first, first + static_cast<std::ptrdiff_t>(node), int64_t{0}, plus_ranks);
}

Round make_round(int64_t number, std::vector<Node> nodes, const std::string& id, std::string history) {
  Round round;
  round.number = number;
  round.nodes = std::move(nodes);
  round.history = std::move(history);
  const auto is_this = [&](const Node& node) { return node.id == id; };
  const auto self = std::find_if(round.nodes.begin(), round.nodes.end(), is_this);
  round.node = static_cast<size_t>(self - round.nodes.begin());
  round.first_rank = first_rank_of(round, round.node);
  round.world_size = num_ranks(round.nodes);
  return round;
}

}  // namespace espalier::launch
