#include "launch/node_meeting.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/internal/meeting_keys.h"
#include "launch/internal/meeting_records.h"
#include "launch/peer_watch.h"
#include "launch/wait_report.h"

namespace espalier::launch {
namespace {

using internal::gone_key;
using internal::key_of;
using internal::kLaunchersKey;
using internal::kOverKey;
using internal::kRoundKey;
using internal::kSomebodyLeft;
using internal::left_key;
using internal::World;
using Time = Surroundings::Time;
using namespace std::chrono_literals;

constexpr Surroundings::Seconds kLook = 50ms;  // between looks at who has come
constexpr double kMachinesOfALook = 32;        // of more machines each looks less often: all ask one store
constexpr double kSecondsToConfirm = 60;       // for those who are to take part

std::set<std::string> ids_of(const std::vector<Node>& nodes) {
  std::set<std::string> ids;
  for (const Node& node : nodes) ids.insert(node.id);
  return ids;
}

}  // namespace

NodeMeeting::NodeMeeting(const LaunchOptions& options, const RoundEnding::Means& means, Node self, FitsRanks fits)
    : options_(options),
      means_(means),
      store_(means.store),
      surroundings_(means.surroundings),
      self_(std::move(self)),
      fits_(std::move(fits)) {}

NodeMeeting::~NodeMeeting() {
  if (ending_) ending_->stop_watching();
  try {
    leave();
  } catch (const UserError&) {
    // The store is gone, and the last will with it.
  }
}

std::string NodeMeeting::key(const std::string& name) const { return key_of(round_, name); }

std::optional<Round> NodeMeeting::join(const std::function<bool()>& is_cancelled) {
  if (ending_) ending_->stop_watching();
  if (round_ >= 0) {
    ++round_;
  } else {
    round_ = store_.check({kRoundKey}) ? std::stoll(store_.get(kRoundKey, 10s)) : 0;
    internal::leave_departure(store_, round_, self_.id);
    store_.append(kLaunchersKey, internal::to_json(self_) + "\n");
  }
  bool was_without = false;
  while (!is_cancelled() && !store_.check({kOverKey})) {
    if (store_.check({key("world")})) {  // too late for this one
      if (!next_round_comes(is_cancelled)) return std::nullopt;
      was_without = was_without || has_begun(round_ - 1);
      continue;
    }
    store_.set(kRoundKey, std::to_string(round_));
    self_.free_port = surroundings_.free_port();
    store_.set(key("node/" + self_.id), internal::to_json(self_));
    internal::leave_departure(store_, round_, self_.id);
    store_.append(key("arrived"), self_.id + "\n");
    const World world = meet(is_cancelled);
    if (store_.check({kOverKey})) break;  // since whoever closed the list last looked
    const auto is_self = [&](const Node& node) { return node.id == self_.id; };
    if (std::none_of(world.nodes.begin(), world.nodes.end(), is_self)) continue;
    if (std::optional<Round> round = take_part(world)) {
      round->was_without_this_node = was_without;
      return round;
    }
    ++round_;
  }
  return std::nullopt;
}

// False if the job is over, or this launcher is told to stop.
bool NodeMeeting::next_round_comes(const std::function<bool()>& is_cancelled) {
  log_info("the ranks are already running; this machine (", self_.address, ") waits for their next start");
  store_.set(key("node/" + self_.id), internal::to_json(self_));
  internal::leave_departure(store_, round_, self_.id);
  store_.append(key("waiting"), self_.id + "\n");
  bool is_over = false;
  while (!is_over && !is_cancelled()) {
    try {
      if (store_.get(round_over_key(round_), 500ms) == kRoundDone) return false;
      is_over = true;
    } catch (const RendezvousTimeout&) {
      is_over = all_have_left();  // before it began
    }
  }
  // The machines of that round may still be stopping their ranks, and may end the run: they go first, if any is left.
  while (!is_cancelled() && !store_.check({kOverKey})) {
    if (store_.check({key_of(round_ + 1, "arrived")}) || all_have_left()) {
      ++round_;
      return true;
    }
    surroundings_.sleep_for(kLook);
  }
  return false;
}

// Also one that left on its way to the next round.
bool NodeMeeting::all_have_left() {
  const std::vector<Node> nodes = world_of(round_).nodes;
  return std::all_of(nodes.begin(), nodes.end(),
                     [this](const Node& node) { return store_.check({gone_key(node.id)}); });
}

// Also the round before, on whose lists it is while it is not yet on those of the next. Where an error
// ends this launcher in the middle of a round, its last will stays: it says that the round has failed, and why.
void NodeMeeting::leave() {
  for (int64_t round = std::max<int64_t>(round_ - 1, 0); round <= round_; ++round) {
    store_.set(left_key(round, self_.id), "");
    store_.set(key_of(round, kSomebodyLeft), "");
  }
  store_.set(gone_key(self_.id), "");
  const RoundOutcome last = ending_ ? ending_->outcome() : RoundOutcome::kRunning;
  if (last == RoundOutcome::kDone || last == RoundOutcome::kRegroups) store_.leave_will({}, {});
}

bool NodeMeeting::any_has_left(const std::vector<Node>& nodes) {
  const auto has_left = [this](const Node& node) { return store_.check({left_key(round_, node.id)}); };
  return store_.check({key(kSomebodyLeft)}) && std::any_of(nodes.begin(), nodes.end(), has_left);
}

// A launcher's card does not change within a round and is fetched once; who has left is asked only once somebody has:
// of n machines each would otherwise ask 2 n times at each look.
std::vector<Node> NodeMeeting::nodes_in(const std::string& list) {
  if (std::exchange(round_of_cards_, round_) != round_) cards_.clear();
  std::vector<std::string> ids, unknown, keys;
  for (std::string& id : split(store_.get(key(list), 10s), '\n')) {
    if (id.empty()) continue;
    if (!cards_.contains(id)) unknown.push_back(id), keys.push_back(key("node/" + id));
    ids.push_back(std::move(id));
  }
  if (!keys.empty()) {
    const std::vector<std::string> texts = store_.multi_get(keys, 10s);
    for (size_t at = 0; at < texts.size(); ++at)
      cards_.insert_or_assign(unknown[at], internal::node_from_json(texts[at]));
  }
  const bool somebody_left = store_.check({key(kSomebodyLeft)});
  std::vector<Node> nodes;
  for (const std::string& id : ids)
    if (!somebody_left || !store_.check({left_key(round_, id)})) nodes.push_back(cards_.at(id));
  return nodes;
}

// Static: by --node-rank. Otherwise by address, then process, as torchrun does.
std::vector<Node> NodeMeeting::number_nodes(std::vector<Node> nodes) const {
  if (options_.rendezvous == Rendezvous::kC10d || options_.is_single_node()) {
    std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) {
      return std::tie(a.address, a.pid, a.id) < std::tie(b.address, b.pid, b.id);
    });
    return nodes;
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node& a, const Node& b) { return a.node_rank < b.node_rank; });
  for (size_t at = 1; at < nodes.size(); ++at)
    if (nodes[at].node_rank == nodes[at - 1].node_rank)
      throw UserError(concat("two machines say --node-rank ", nodes[at].node_rank, ": ", nodes[at - 1].address, " and ",
                             nodes[at].address, ". Give each of the ", options_.max_nodes, " its own, from 0."),
                      ExitCode::kUsage);
  return nodes;
}

// Which machines have not come, as the user named them: by number, or only how many.
std::string NodeMeeting::missing(const std::vector<Node>& nodes) const {
  const int64_t count = std::ssize(nodes);
  std::string who;
  if (options_.rendezvous == Rendezvous::kStatic) {
    for (int64_t number = 0; number < options_.max_nodes; ++number)
      if (std::none_of(nodes.begin(), nodes.end(), [&](const Node& node) { return node.node_rank == number; }))
        who += concat(who.empty() ? "--node-rank " : ", ", number);
  } else {
    const bool are_enough = count >= options_.min_nodes;
    const int64_t wanted = are_enough ? options_.max_nodes - count : options_.min_nodes - count;
    who = concat(are_enough ? "up to " : "", wanted, wanted == 1 ? " more machine" : " more machines");
  }
  std::string here;
  for (const Node& node : nodes) here += concat(here.empty() ? "" : ", ", node.address);
  const std::string all = options_.min_nodes == options_.max_nodes
                              ? concat(options_.max_nodes)
                              : concat("at least ", options_.min_nodes, " and at most ", options_.max_nodes);
  return concat(who, " (", count, " of ", all, " here: ", here, ")");
}

World NodeMeeting::world_of(int64_t round) {
  return internal::world_from_json(store_.get(key_of(round, "world"), 10s));
}

// Once its launchers meet for the next one, or have left.
bool NodeMeeting::has_begun(int64_t round) {
  const std::string begins = key_of(round, "begins");
  return store_.check({begins}) && store_.get(begins, 10s) == "yes";
}

// What is known for good once anybody meets for this round: who comes from the last one has left its history by then.
const NodeMeeting::Before& NodeMeeting::before() {
  if (std::exchange(round_of_before_, round_) == round_) return before_;
  before_ = {};
  if (round_ == 0) return before_;
  const World last = world_of(round_ - 1);
  const bool began = has_begun(round_ - 1);
  before_.last_begun = began ? round_ - 1 : last.last_begun;
  if (before_.last_begun >= 0) before_.members = ids_of(began ? last.nodes : world_of(before_.last_begun).nodes);
  const std::string history = key_of(round_ - 1, "history");
  before_.history = store_.check({history}) ? store_.get(history, 10s) : last.history;
  return before_;
}

void NodeMeeting::leave_history(const std::string& text) { store_.compare_set(key("history"), "", text); }

// Whether a machine of the last round that began may still come: its ranks are stopping. Its launcher holds what the
// others want to go on from, which one that waits for a place does not.
bool NodeMeeting::awaits_former(const std::vector<Node>& nodes) {
  std::set<std::string> missing = before().members;
  for (const std::string& id : ids_of(nodes)) missing.erase(id);
  const auto has_left = [this](const std::string& id) {
    for (int64_t round = std::max<int64_t>(before().last_begun, 0); round <= round_; ++round)
      if (store_.check({left_key(round, id)})) return true;
    return false;
  };
  return !std::all_of(missing.begin(), missing.end(), has_left);
}

// In the order of their ranks: as many as the program can run on, the `preferred` before others; none if it cannot run
// on as many as have to be there.
std::vector<Node> NodeMeeting::largest_fitting(std::vector<Node> nodes, const std::set<std::string>& preferred) const {
  nodes = number_nodes(std::move(nodes));
  std::stable_partition(nodes.begin(), nodes.end(), [&](const Node& node) { return preferred.contains(node.id); });
  if (std::ssize(nodes) > options_.max_nodes) nodes.resize(static_cast<size_t>(options_.max_nodes));
  for (; std::ssize(nodes) >= options_.min_nodes; nodes.pop_back())
    if (!fits_ || fits_(num_ranks(nodes))) return number_nodes(std::move(nodes));
  return {};
}

std::vector<Node> NodeMeeting::larger_group(double waited_seconds) {
  if (!store_.check({key("waiting")})) return {};
  const std::vector<Node>& members = ending_->round().nodes;
  std::vector<Node> waiting = nodes_in("waiting"), all = members;
  bool is_time = false;
  for (const Node& node : waiting) {
    const Time now = surroundings_.now(), since = waiting_since_.try_emplace(node.id, now).first->second;
    is_time = is_time || Surroundings::Seconds(now - since).count() >= waited_seconds;
  }
  if (!is_time) return {};
  all.insert(all.end(), waiting.begin(), waiting.end());
  return num_ranks(largest_fitting(all, ids_of(members))) > num_ranks(members) ? waiting : std::vector<Node>{};
}

void NodeMeeting::report_over(bool well) {
  if (store_.check({key_of(round_ + 1, "world")})) return;
  store_.compare_set(kOverKey, "", well ? kRoundDone : kRoundFailed);
}

bool NodeMeeting::is_awaited() {
  if (!store_.check({key("world")})) return true;
  const World world = world_of(round_);
  return std::any_of(world.nodes.begin(), world.nodes.end(), [&](const Node& node) { return node.id == self_.id; });
}

bool NodeMeeting::is_over_badly() { return store_.check({kOverKey}) && store_.get(kOverKey, 10s) == kRoundFailed; }

void NodeMeeting::wait_until_over(const std::function<bool()>& is_cancelled) {
  if (ending_) ending_->stop_watching();
  leave();
  Time give_up = Time::max();  // once nobody is left: one of them may be started again
  while (!is_cancelled() && !store_.check({kOverKey})) {
    if (is_anybody_in_the_run())
      give_up = Time::max();
    else if (give_up == Time::max())
      give_up = surroundings_.time_in(options_.join_timeout_seconds);
    else if (surroundings_.now() >= give_up)
      return report_over(/*well=*/false);
    surroundings_.sleep_for(200ms);
  }
}

bool NodeMeeting::is_anybody_in_the_run() {
  round_ = std::stoll(store_.get(kRoundKey, 10s));
  for (const char* list : {"arrived", "waiting"})
    if (store_.check({key(list)}) && !nodes_in(list).empty()) return true;
  return false;
}

// Whoever first sees that enough have come closes the list; what it wrote holds for all.
World NodeMeeting::meet(const std::function<bool()>& is_cancelled) {
  const Time give_up = surroundings_.time_in(options_.join_timeout_seconds);
  Time last_call = Time::max();
  WaitReport report(std::chrono::duration<double>(options_.join_timeout_seconds));
  while (!is_cancelled() && !store_.check({kOverKey})) {
    if (store_.check({key("world")})) return world_of(round_);
    const std::vector<Node> nodes = nodes_in("arrived");
    const int64_t count = std::ssize(nodes);
    if (count < options_.min_nodes)
      last_call = Time::max();
    else if (last_call == Time::max())
      last_call = surroundings_.time_in(options_.last_call_seconds);
    if ((count >= options_.max_nodes && !awaits_former(nodes)) || surroundings_.now() >= last_call)
      if (std::vector<Node> chosen = largest_fitting(nodes, before().members); !chosen.empty()) {
        const World world = {std::move(chosen), before().last_begun, before().history};
        return internal::world_from_json(store_.compare_set(key("world"), "", internal::to_json(world)));
      }
    if (surroundings_.now() <= give_up) {
      // Of a run that has enough machines and starts without the others.
      const Surroundings::Seconds to_start = last_call == Time::max() ? -1s : last_call - surroundings_.now();
      const bool may_start = to_start > 0s, awaits = may_start && awaits_former(nodes);
      if (report.is_time() && may_start)
        report.look(awaits ? "machines of the start before, whose ranks are still stopping" : missing(nodes),
                    concat("the run starts without at ", WaitReport::wall_clock(to_start)));
      else if (report.is_time())
        report.look(missing(nodes));
      surroundings_.sleep_for(kLook * std::max(1.0, static_cast<double>(count) / kMachinesOfALook));
      continue;
    }
    if (count >= options_.min_nodes)
      throw UserError(
          concat(count, " machines are here, and the run cannot be divided over them, nor over fewer down to ",
                 options_.min_nodes, " (--nnodes): its global batch has to be a multiple of the micro-batch ",
                 "size times the replicas"),
          ExitCode::kUsage);
    throw UserError(
        concat("only ", count, " of ", options_.min_nodes, " machines came within ",
               format_duration(options_.join_timeout_seconds), " (--rdzv-conf join_timeout): missing are ",
               missing(nodes), ". Start espalier launch on all of them, with the same --rdzv-endpoint and --rdzv-id, ",
               "and check that they reach ", options_.store_host, ":", options_.store_port, "."),
        ExitCode::kLostPeer);
  }
  return {};
}

// Not if one has left before all were ready: nobody runs this round then, and all meet again. Whoever first sees either
// decides for all.
bool NodeMeeting::all_are_ready(const std::vector<Node>& nodes) {
  std::vector<std::string> ready;
  for (size_t at = 0; at < nodes.size(); ++at) ready.push_back(key(concat("ready/", at)));
  const Time give_up = surroundings_.time_in(kSecondsToConfirm);
  while (surroundings_.now() < give_up) {
    try {
      store_.wait(ready, 500ms);
      return store_.compare_set(key("begins"), "", "yes") == "yes";
    } catch (const RendezvousTimeout&) {
      const bool is_over = store_.check({round_over_key(round_)});
      if (!is_over && !any_has_left(nodes)) continue;
      if (store_.compare_set(key("begins"), "", "no") == "yes") return true;  // the round begins, and fails
      ending_->report_failed();
      return false;
    }
  }
  throw UserError("a launcher left while the machines were meeting; start it again", ExitCode::kLostPeer);
}

// Nothing if the round is not to begin.
std::optional<Round> NodeMeeting::take_part(const World& world) {
  waiting_since_.clear();
  ending_.emplace(means_, make_round(round_, world.nodes, self_.id, world.history));
  const Round& round = ending_->round();
  store_.set(key(concat("ready/", round.node)), "");
  if (!all_are_ready(round.nodes)) return std::nullopt;
  ending_->watch();
  return round;
}

// Who waits may not have heard of this round yet, and be on none of its lists: launchers are known here from when they
// first came until they leave.
bool NodeMeeting::others_are_enough(size_t without) {
  if (store_.check({key("goes-on")})) return store_.get(key("goes-on"), 10s) == "yes";
  std::vector<Node> others = ending_->round().nodes;
  const std::set<std::string> members = ids_of(others);
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(without));
  for (const std::string& card : split(store_.get(kLaunchersKey, 10s), '\n')) {
    if (card.empty()) continue;
    Node node = internal::node_from_json(card);
    if (!members.contains(node.id) && !store_.check({gone_key(node.id)})) others.push_back(std::move(node));
  }
  const char* const answer = largest_fitting(others, members).empty() ? "no" : "yes";
  return store_.compare_set(key("goes-on"), "", answer) == "yes";  // others may have come or left for another launcher
}

}  // namespace espalier::launch
