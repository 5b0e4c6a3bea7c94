#include "launch/node_meeting.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "launch/internal/meeting_records.h"
#include "launch/peer_watch.h"
#include "launch/wait_report.h"

namespace espalier::launch {
namespace {

using internal::World;
using Time = Surroundings::Time;
using namespace std::chrono_literals;

constexpr Surroundings::Seconds kLook = 50ms;  // between looks at who has come
constexpr double kMachinesOfALook = 32;        // of more machines each looks less often: all ask one store
constexpr const char* kSomebodyLeft = "somebody-left";
constexpr const char* kForGood = "for good";
constexpr double kSecondsToConfirm = 60;  // for those who are to take part
constexpr double kSecondsToVanish = 70;   // the store's keepalive (prepare_connection) takes up to 60
constexpr const char* kRoundKey = "launch/round";
constexpr const char* kOverKey = "launch/over";
constexpr const char* kLaunchersKey = "launch/launchers";  // the cards of all that have come to any round, one a line

int64_t num_ranks(const std::vector<Node>& nodes) {
  int64_t count = 0;
  for (const Node& node : nodes) count += node.num_ranks;
  return count;
}

std::set<std::string> ids_of(const std::vector<Node>& nodes) {
  std::set<std::string> ids;
  for (const Node& node : nodes) ids.insert(node.id);
  return ids;
}

// By hand, as a look asks for many of them.
std::string key_of(int64_t round, const std::string& name) {
  std::string key = "launch/";
  key += std::to_string(round);
  key += '/';
  key += name;
  return key;
}

// Of a launcher that has left the run, in whatever round.
std::string gone_key(const std::string& id) { return "launch/gone/" + id; }

// `what`: "vanished: ...".
Failure lost_machine(const std::vector<Node>& nodes, size_t at, const std::string& what) {
  const Node& node = nodes[at];
  Failure failure;
  for (size_t before = 0; before < at; ++before) failure.rank += nodes[before].num_ranks;
  failure.host = node.address;
  failure.pid = node.pid;
  failure.exit_code = static_cast<int>(ExitCode::kFailed);
  failure.lost_machine = true;
  failure.message = concat("the launcher on ", node.address, " (pid ", node.pid, ") ", what);
  return failure;
}

}  // namespace

NodeMeeting::NodeMeeting(const LaunchOptions& options, const Means& means, Node self, FitsRanks fits)
    : options_(options),
      store_(means.store),
      watched_(means.watched),
      surroundings_(means.surroundings),
      self_(std::move(self)),
      fits_(std::move(fits)) {}

NodeMeeting::~NodeMeeting() {
  stop_watching();
  try {
    leave();
  } catch (const UserError&) {
    // The store is gone, and the last will with it.
  }
}

std::string NodeMeeting::key(const std::string& name) const { return key_of(round_, name); }
std::string NodeMeeting::stopped_key(size_t node) const { return key(concat("stopped/", node)); }

std::optional<Round> NodeMeeting::join(const std::function<bool()>& is_cancelled) {
  stop_watching();
  if (round_ >= 0) {
    ++round_;
  } else {
    round_ = store_.check({kRoundKey}) ? std::stoll(store_.get(kRoundKey, 10s)) : 0;
    leave_departure();
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
    leave_departure();
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
  leave_departure();
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
    store_.set(key_of(round, "left/" + self_.id), "");
    store_.set(key_of(round, kSomebodyLeft), "");
  }
  store_.set(gone_key(self_.id), "");
  if (outcome_ == RoundOutcome::kDone || outcome_ == RoundOutcome::kRegroups) store_.leave_will({}, {});
}

// Others learn from the store if this launcher goes before it has said something else.
void NodeMeeting::leave_departure(std::vector<std::string> keys, std::vector<std::string> values) {
  for (const std::string& mark : {key("left/" + self_.id), key(kSomebodyLeft), gone_key(self_.id)})
    keys.push_back(mark), values.push_back("");
  store_.leave_will(keys, values);
}

bool NodeMeeting::any_has_left(const std::vector<Node>& nodes) {
  const auto has_left = [this](const Node& node) { return store_.check({key("left/" + node.id)}); };
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
    if (!somebody_left || !store_.check({key("left/" + id)})) nodes.push_back(cards_.at(id));
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
      if (store_.check({key_of(round, "left/" + id)})) return true;
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
  std::vector<Node> waiting = nodes_in("waiting"), all = nodes_;
  bool is_time = false;
  for (const Node& node : waiting) {
    const Time now = surroundings_.now(), since = waiting_since_.try_emplace(node.id, now).first->second;
    is_time = is_time || Surroundings::Seconds(now - since).count() >= waited_seconds;
  }
  if (!is_time) return {};
  all.insert(all.end(), waiting.begin(), waiting.end());
  return num_ranks(largest_fitting(all, ids_of(nodes_))) > num_ranks(nodes_) ? waiting : std::vector<Node>{};
}

void NodeMeeting::ask_to_regroup() { store_.compare_set(key("regroup"), "", "yes"); }

void NodeMeeting::forget_to_regroup() { store_.set(key("regroup"), "no"); }

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
  stop_watching();
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
      report_failed();
      return false;
    }
  }
  throw UserError("a launcher left while the machines were meeting; start it again", ExitCode::kLostPeer);
}

// Nothing if the round is not to begin.
std::optional<Round> NodeMeeting::take_part(const World& world) {
  nodes_ = world.nodes;
  waiting_since_.clear();
  Round round;
  round.number = round_;
  round.nodes = nodes_;
  round.history = world.history;
  for (size_t at = 0; at < nodes_.size(); ++at) {
    if (nodes_[at].id == self_.id) round.node = at, round.first_rank = round.world_size;
    round.world_size += nodes_[at].num_ranks;
  }
  const std::string number = std::to_string(round.node);
  const Failure vanished =
      lost_machine(nodes_, round.node, "vanished: it was killed, ended by an error, or its machine or network is down");
  leave_departure({round_over_key(round_), stopped_key(round.node)},
                  {kRoundFailed, launch::to_json(std::vector<Failure>{vanished})});
  store_.set(key("ready/" + number), "");
  if (!all_are_ready(nodes_)) return std::nullopt;
  outcome_ = RoundOutcome::kRunning;
  leaving_ = false;
  watcher_ = surroundings_.start([this] { watch(); });
  return round;
}

void NodeMeeting::watch() {
  while (!leaving_) {
    try {
      const std::string how = watched_.get(round_over_key(round_), 500ms);
      // Where all are done, a launcher that dies after that changes nothing, though its last will says that it failed.
      outcome_ = how == kRoundDone        ? RoundOutcome::kDone
                 : how == kRoundRegroups  ? RoundOutcome::kRegroups
                 : all_are_done(watched_) ? end_well(watched_)
                                          : RoundOutcome::kFailed;
      return;
    } catch (const RendezvousTimeout&) {
      continue;  // they run
    } catch (const UserError&) {
      outcome_ = RoundOutcome::kLostStore;
      return;
    }
  }
}

void NodeMeeting::stop_watching() {
  leaving_ = true;
  watcher_.reset();
}

void NodeMeeting::report_done() {
  if (store_.add(key("done"), 1) != std::ssize(nodes_)) return;
  const RoundOutcome outcome = end_well(store_);
  if (outcome == RoundOutcome::kFailed) return;  // others have waited in vain until their time was over
  store_.compare_set(round_over_key(round_), "", outcome == RoundOutcome::kRegroups ? kRoundRegroups : kRoundDone);
}

void NodeMeeting::report_failed() { store_.compare_set(round_over_key(round_), "", kRoundFailed); }

// Its last will first: a launcher that dies between the two says the same, so that nobody has read anything else.
void NodeMeeting::report_stopped(const std::vector<Failure>& failures) {
  for (size_t at = 0; at < nodes_.size(); ++at)
    if (nodes_[at].id == self_.id) {
      const std::string stopped = stopped_key(at), text = launch::to_json(failures);
      leave_departure({stopped}, {text});
      store_.set(stopped, text);
    }
}

void NodeMeeting::report_told(bool for_good) {
  if (for_good)
    store_.set(key("told"), kForGood);
  else
    store_.compare_set(key("told"), "", "yes");
}

ToldAnywhere NodeMeeting::told() {
  if (!store_.check({key("told")})) return ToldAnywhere::kNot;
  return store_.get(key("told"), 10s) == kForGood ? ToldAnywhere::kToEndForGood : ToldAnywhere::kToEnd;
}

bool NodeMeeting::all_are_done(RendezvousStore& store) const { return store.add(key("done"), 0) == std::ssize(nodes_); }

RoundOutcome NodeMeeting::outcome_after_all(RendezvousStore& store) const {
  if (!all_are_done(store)) return RoundOutcome::kFailed;
  return store.compare_set(key("regroup"), "", "no") == "yes" ? RoundOutcome::kRegroups : RoundOutcome::kDone;
}

// Of the records of all machines the first holds.
internal::EndRecord NodeMeeting::agree(RendezvousStore& store, internal::EndRecord mine) const {
  internal::EndRecord agreed =
      internal::end_record_from_json(store.compare_set(key("end"), "", internal::to_json(mine)));
  if (agreed.outcome == RoundOutcome::kDone) store.compare_set(kOverKey, "", kRoundDone);
  return agreed;
}

RoundOutcome NodeMeeting::end_well(RendezvousStore& store) const {
  return agree(store, {.outcome = outcome_after_all(store), .stopped = {}, .told = ToldAnywhere::kNot}).outcome;
}

// Waits until all have, and no longer where that is of no use: a machine that has seen that all are done says nothing
// more, and once the end is written down it holds.
std::vector<size_t> NodeMeeting::those_that_have_stopped(Time deadline) {
  std::vector<std::string> keys;
  std::vector<size_t> all, stopped;
  for (size_t at = 0; at < nodes_.size(); ++at) keys.push_back(stopped_key(at)), all.push_back(at);
  while (true) {
    const auto left = std::chrono::duration_cast<RendezvousStore::Milliseconds>(deadline - surroundings_.now());
    try {
      store_.wait(keys, std::clamp<RendezvousStore::Milliseconds>(left, 0ms, 500ms));
      return all;
    } catch (const RendezvousTimeout&) {
      if (all_are_done(store_) || store_.check({key("end")})) return {};
      if (surroundings_.now() >= deadline) break;
    }
  }
  std::copy_if(all.begin(), all.end(), std::back_inserter(stopped),
               [&](size_t at) { return store_.check({keys[at]}); });
  return stopped;
}

// What a machine has said of its ranks stays as it is (report_stopped()), so that only whose words count has to be
// agreed on.
RoundEnd NodeMeeting::agree_on_end(double patience_seconds) {
  internal::EndRecord mine;
  mine.stopped = those_that_have_stopped(surroundings_.time_in(std::max(patience_seconds, kSecondsToVanish)));
  mine.outcome = outcome_after_all(store_);
  mine.told = told();
  const internal::EndRecord agreed = agree(store_, std::move(mine));
  RoundEnd end = {.outcome = agreed.outcome, .failures = {}, .told = agreed.told};
  if (end.outcome != RoundOutcome::kFailed) return end;
  std::vector<Failure> silent;
  for (size_t at = 0; at < nodes_.size(); ++at) {
    if (std::find(agreed.stopped.begin(), agreed.stopped.end(), at) != agreed.stopped.end()) continue;
    silent.push_back(lost_machine(nodes_, at, "has not said in time how its ranks ended"));
    if (nodes_[at].id == self_.id) {
      end.counts_own = false;
      log_warning("the ranks here took so long to stop that the other machines have decided without this one");
    } else {
      log_warning("the launcher on ", nodes_[at].address, " has not said how its ranks ended");
    }
  }
  std::vector<std::string> keys;
  for (const size_t at : agreed.stopped) keys.push_back(stopped_key(at));
  for (const std::string& text : store_.multi_get(keys, 10s))
    for (Failure& failure : failures_from_json(text)) end.failures.push_back(std::move(failure));
  if (end.failures.empty()) end.failures = std::move(silent);  // what else is known comes before a suspicion
  // A launcher that went away has no time of its own: its ranks died with it, before any other could fail of that.
  double first = surroundings_.seconds_since_1970();
  for (const Failure& failure : end.failures)
    if (failure.time > 0) first = std::min(first, failure.time - 1);
  for (Failure& failure : end.failures)
    if (failure.time == 0) failure.time = first - 1;
  sort_by_cause(end.failures);
  return end;
}

// Who waits may not have heard of this round yet, and be on none of its lists: launchers are known here from when they
// first came until they leave.
bool NodeMeeting::others_are_enough(size_t without) {
  if (store_.check({key("goes-on")})) return store_.get(key("goes-on"), 10s) == "yes";
  std::vector<Node> others = nodes_;
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(without));
  const std::set<std::string> members = ids_of(nodes_);
  for (const std::string& card : split(store_.get(kLaunchersKey, 10s), '\n')) {
    if (card.empty()) continue;
    Node node = internal::node_from_json(card);
    if (!members.contains(node.id) && !store_.check({gone_key(node.id)})) others.push_back(std::move(node));
  }
  const char* const answer = largest_fitting(others, members).empty() ? "no" : "yes";
  return store_.compare_set(key("goes-on"), "", answer) == "yes";  // others may have come or left for another launcher
}

}  // namespace espalier::launch
