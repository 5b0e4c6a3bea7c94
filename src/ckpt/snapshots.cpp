#include "ckpt/snapshots.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/whereabouts.h"
#include "ckpt/save_plan.h"
#include "ckpt/together.h"

namespace espalier::ckpt {
namespace {

using launch::CopyLink;
using launch::kSnapshotBlockBytes;
using launch::SlotsOf;
using launch::SnapshotHead;

constexpr int64_t kLineBytes = 64;
constexpr int64_t kCopyMessageBytes = int64_t{64} << 20;  // from rank to rank, when copies are fetched
constexpr int kCopyTag = 1;
constexpr int64_t kFirstKeepsBetweenTries = 10, kMostKeepsBetweenTries = 1000;  // to send again, after trouble

using Clock = std::chrono::steady_clock;
double age_of(Clock::time_point time) { return std::chrono::duration<double>(Clock::now() - time).count(); }

static_assert(kSnapshotBlockBytes % kLineBytes == 0);

int64_t num_bytes(const at::Tensor& values) { return static_cast<int64_t>(values.nbytes()); }
int64_t in_lines(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

at::Tensor as_tensor(const void* data, int64_t bytes) {
  return at::from_blob(const_cast<void*>(data), {bytes}, at::TensorOptions().dtype(at::kByte));
}

// snapshot_checksum by all threads.
uint64_t checksum_of(const uint8_t* data, int64_t bytes) {
  std::vector<uint64_t> sums(static_cast<size_t>((bytes + kSnapshotBlockBytes - 1) / kSnapshotBlockBytes));
  at::parallel_for(0, std::ssize(sums), 1, [&](int64_t first, int64_t end) {
    for (int64_t block = first; block < end; ++block) {
      const int64_t begin = block * kSnapshotBlockBytes;
      sums[static_cast<size_t>(block)] =
          hash64(data + begin, static_cast<size_t>(std::min(kSnapshotBlockBytes, bytes - begin)));
    }
  });
  return hash64(sums.data(), sums.size() * sizeof(uint64_t));
}

std::string text_of(const SnapshotHead& head) { return concat("the copy of step ", head.step, " in memory"); }

}  // namespace

Snapshots::Snapshots(const Options& options, dist::Group group, const std::vector<TensorToSave>& tensors)
    : options_(options), group_(std::move(group)) {
  divide(tensors);
  const int64_t jump = options_.replication ? options_.replication->jump.value_or(0) : 0;
  for (const std::string& text :
       group_.gather_texts(concat(hash64(describe_parts(tensors)), " ", bytes_, " ", options_.machine, " ", jump))) {
    const std::vector<std::string> words = split_blanks(text);
    ranks_.push_back({std::stoull(words[0]), std::stoll(words[1]), std::stoll(words[2]), std::stoll(words[3])});
  }
  first_has_twin_ = std::any_of(ranks_.begin() + 1, ranks_.end(),
                                [this](const RankFacts& one) { return one.identity == facts(0).identity; });
  sends_.assign(ranks_.size(), false);
  if (options_.replication) plan_replication();
  // One after the other: those of another machine's do not take what a neighbour's own need.
  together(group_, [&] { options_.own.reserve(bytes_); });
  if (!options_.replication) return;
  const std::optional<int64_t> from = source();
  together(group_, [&] { options_.replication->slots.reserve(from ? facts(*from).bytes : 0); });
}

void Snapshots::divide(const std::vector<TensorToSave>& tensors) {
  for (size_t number = 0; number < tensors.size(); ++number) {
    const int64_t bytes = num_bytes(tensors[number].value);
    begins_.push_back(bytes_);
    for (int64_t begin = 0; begin < bytes;) {
      const int64_t to = bytes_ + begin, left_in_block = kSnapshotBlockBytes - to % kSnapshotBlockBytes;
      if (to % kSnapshotBlockBytes == 0) first_pieces_.push_back(pieces_.size());
      const int64_t length = std::min(left_in_block, bytes - begin);
      const bool is_last = begin + length == bytes;
      pieces_.push_back({number, begin, length, to, is_last ? in_lines(bytes) - bytes : 0});
      begin += length;
    }
    bytes_ += in_lines(bytes);
  }
  first_pieces_.push_back(pieces_.size());
}

std::optional<int64_t> Snapshots::source() const {
  for (int64_t other = 0; other < group_.size(); ++other)
    if (sends(other) && target(other) == rank()) return other;
  return std::nullopt;
}

void Snapshots::plan_replication() {
  std::set<int64_t> machines;
  std::map<uint64_t, std::set<int64_t>> machines_of;  // by what their ranks hold
  for (const RankFacts& one : ranks_) machines.insert(one.machine), machines_of[one.identity].insert(one.machine);
  if (machines.size() == 1) {
    log_warning("--replication has no effect: all ranks are on one machine, and there is no other to hold copies");
    return;
  }
  for (int64_t one = 0; one < group_.size(); ++one) {
    if (machines_of[facts(one).identity].size() > 1) continue;  // a replica holds the same
    sends_[static_cast<size_t>(one)] = replicates_ = true;
  }
  if (replicates_)
    choose_jump(facts(0).jump);
  else
    log_info("--replication: each rank has a replica on another machine that holds the same state; no copies are sent");
}

bool Snapshots::stays_at_home(int64_t rank) const {
  return sends(rank) && facts(target(rank)).machine == facts(rank).machine;
}

// Machines may be fewer after a restart than before, and have other numbers of ranks: a run that goes on from copies
// does not end because the next ones have no place.
void Snapshots::choose_jump(int64_t asked) {
  std::map<int64_t, int64_t> num_ranks;
  int64_t largest = 0;
  for (const RankFacts& one : ranks_) largest = std::max(largest, ++num_ranks[one.machine]);
  const auto first_at_home = [this]() -> std::optional<int64_t> {
    for (int64_t one = 0; one < group_.size(); ++one)
      if (stays_at_home(one)) return one;
    return std::nullopt;
  };
  jump_ = asked > 0 ? asked : largest;
  if (const auto one = first_at_home(); one && asked > 0) {
    const std::string what = concat("--replication-jump ", asked, ": the copies of rank ", *one, " would go to rank ",
                                    target(*one), ", which is on the same machine. ");
    if (options_.replication->is_first_start)
      throw UserError(concat(what, "Give the number of ranks of a machine, or leave it out."), ExitCode::kUsage);
    jump_ = largest;
    log_warning(what, "They go ", jump_, " ranks further now, as without that option");
  }
  if (!first_at_home()) return;
  const std::string what = concat("--replication: a machine has ", largest, " of the ", group_.size(),
                                  " ranks, and the other machines cannot hold a copy of each. ");
  if (options_.replication->is_first_start)
    throw UserError(concat(what, "Start as many ranks on each machine, or leave out --replication."), ExitCode::kUsage);
  std::vector<std::string> at_home;
  for (int64_t one = 0; one < group_.size(); ++one)
    if (stays_at_home(one)) at_home.push_back(std::to_string(one));
  for (const std::string& one : at_home) sends_[static_cast<size_t>(std::stoll(one))] = false;
  replicates_ = std::find(sends_.begin(), sends_.end(), true) != sends_.end();
  log_warning(what, "Copies of these ranks stay on their own machine, and are lost with it: ", join(at_home, ", "));
}

launch::SnapshotSlots& Snapshots::slots_of(SlotsOf whose) const {
  return whose == SlotsOf::kRank ? options_.own : options_.replication->slots;
}

SnapshotHead Snapshots::head_of(const HeldCopy& copy) const {
  for (const SnapshotHead& head : slots_of(copy.slots).heads())
    if (head.slot == copy.slot && head.step == copy.step && head.identity == copy.identity) return head;
  ESPALIER_CHECK(false, "no such copy of step ", copy.step, " in slot ", copy.slot);
  return {};
}

std::vector<HeldCopy> Snapshots::held_here() const {
  std::vector<HeldCopy> held;
  for (const SlotsOf whose : {SlotsOf::kRank, SlotsOf::kPeer}) {
    if (whose == SlotsOf::kPeer && !options_.replication) continue;
    for (const SnapshotHead& head : slots_of(whose).heads())
      held.push_back({rank(), whose, head.slot, head.step, head.identity});
  }
  return held;
}

// Of those that are to be taken from here.
std::vector<HeldCopy> Snapshots::damaged_here(const CopyChoice& choice) const {
  std::vector<HeldCopy> seen, damaged;
  for (const HeldCopy& copy : choice.of_ranks) {
    if (copy.holder != rank() || std::find(seen.begin(), seen.end(), copy) != seen.end()) continue;
    seen.push_back(copy);
    const SnapshotHead head = head_of(copy);
    if (checksum_of(slots_of(copy.slots).data(copy.slot), head.bytes) != head.checksum) damaged.push_back(copy);
  }
  return damaged;
}

std::vector<HeldCopy> Snapshots::of_all(const std::vector<HeldCopy>& here) const {
  std::vector<HeldCopy> all;
  for (const std::string& text : group_.gather_texts(to_text(here)))
    for (const HeldCopy& copy : copies_from_text(text)) all.push_back(copy);
  return all;
}

std::optional<int64_t> Snapshots::newest() {
  std::vector<uint64_t> wanted;
  for (const RankFacts& one : ranks_) wanted.push_back(one.identity);
  std::vector<HeldCopy> left_out;
  while (true) {
    std::vector<HeldCopy> held = of_all(held_here());
    std::erase_if(held, [&](const HeldCopy& copy) {
      return std::find(left_out.begin(), left_out.end(), copy) != left_out.end();
    });
    choice_ = choose_copies(held, wanted);
    if (!choice_ && !held.empty())
      log_warning("the copies of the state in memory are not those of all ranks of this layout: they are not taken");
    if (!choice_) return std::nullopt;
    std::vector<HeldCopy> damaged = of_all(damaged_here(*choice_));
    const bool is_good_there = damaged.empty();
    if (is_good_there) damaged = of_all(fetch_copies());
    if (damaged.empty()) return choice_->step;
    for (const HeldCopy& copy : damaged) {
      left_out.push_back(copy);
      log_warning("the copy of the state at iteration ", copy.step, " in memory of rank ", copy.holder,
                  copy.slots == SlotsOf::kRank ? "" : ", of a rank of another machine,",
                  is_good_there ? " has arrived damaged where it is wanted" : " is damaged",
                  " (its checksum differs), and is not taken");
    }
  }
}

// An own slot that no rank takes its state from. -1: there is none, as after a renumbering both may hold copies of this
// step, of two ranks.
int Snapshots::slot_nobody_wants() const {
  std::vector<bool> is_wanted(2);
  for (const HeldCopy& copy : choice_->of_ranks)
    if (copy.holder == rank() && copy.slots == SlotsOf::kRank) is_wanted[static_cast<size_t>(copy.slot)] = true;
  if (is_wanted[0] && is_wanted[1]) return -1;
  if (is_wanted[0] || is_wanted[1]) return is_wanted[0] ? 1 : 0;
  return options_.own.slot_to_write();
}

// Each into a slot of the rank that wants it. Every rank goes through the same list, so that nobody waits in a circle.
// What somebody wants is overwritten when everybody has what he wants. Returns what has arrived damaged here.
std::vector<HeldCopy> Snapshots::fetch_copies() {
  Fetched fetched{.is_whole = true};
  for (int64_t wants = 0; wants < group_.size(); ++wants) {
    const HeldCopy& copy = choice_->of_ranks[static_cast<size_t>(wants)];
    if (copy.holder == wants && copy.slots == SlotsOf::kRank) {
      if (wants == rank()) newest_slot_ = copy.slot;
    } else if (wants == rank()) {
      fetched = fetch(copy);
    } else if (copy.holder == rank()) {
      give(copy, wants);
    }
  }
  group_.barrier();
  if (!fetched.is_whole) return {choice_->of_ranks[static_cast<size_t>(rank())]};
  if (!fetched.buffer.defined()) return {};
  newest_slot_ = options_.own.slot_to_write();
  std::memcpy(options_.own.begin(newest_slot_), fetched.buffer.const_data_ptr(), static_cast<size_t>(bytes_));
  options_.own.finish(newest_slot_, fetched.head);
  return {};
}

void Snapshots::give(const HeldCopy& copy, int64_t to) const {
  const SnapshotHead head = head_of(copy);
  const at::Tensor numbers = at::empty({2}, at::kLong);
  numbers.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(head.checksum);
  numbers.mutable_data_ptr<int64_t>()[1] = std::ssize(head.text);
  group_.start_send(numbers, to, kCopyTag).wait();
  group_.start_send(as_tensor(head.text.data(), std::ssize(head.text)), to, kCopyTag).wait();
  const uint8_t* const data = slots_of(copy.slots).data(copy.slot);
  for (int64_t begin = 0; begin < head.bytes; begin += kCopyMessageBytes)
    group_.start_send(as_tensor(data + begin, std::min(kCopyMessageBytes, head.bytes - begin)), to, kCopyTag).wait();
}

Snapshots::Fetched Snapshots::fetch(const HeldCopy& copy) {
  Fetched fetched{.head = {.step = copy.step, .bytes = bytes_, .identity = copy.identity}};
  SnapshotHead& head = fetched.head;
  newest_slot_ = slot_nobody_wants();
  if (newest_slot_ < 0) fetched.buffer = at::empty({bytes_}, at::kByte);
  uint8_t* const to = newest_slot_ < 0 ? fetched.buffer.mutable_data_ptr<uint8_t>() : options_.own.begin(newest_slot_);
  if (copy.holder == rank()) {
    const SnapshotHead there = head_of(copy);
    head.checksum = there.checksum, head.text = there.text;
    std::memcpy(to, slots_of(copy.slots).data(copy.slot), static_cast<size_t>(bytes_));
  } else {
    const at::Tensor numbers = at::empty({2}, at::kLong);
    group_.start_receive(numbers, copy.holder, kCopyTag).wait();
    head.checksum = static_cast<uint64_t>(numbers.const_data_ptr<int64_t>()[0]);
    head.text.resize(static_cast<size_t>(numbers.const_data_ptr<int64_t>()[1]));
    group_.start_receive(as_tensor(head.text.data(), std::ssize(head.text)), copy.holder, kCopyTag).wait();
    for (int64_t begin = 0; begin < bytes_; begin += kCopyMessageBytes)
      group_.start_receive(as_tensor(to + begin, std::min(kCopyMessageBytes, bytes_ - begin)), copy.holder, kCopyTag)
          .wait();
  }
  fetched.is_whole = checksum_of(to, bytes_) == head.checksum;
  if (newest_slot_ >= 0 && fetched.is_whole) options_.own.finish(newest_slot_, head);
  return fetched;
}

store::TrainingState Snapshots::load(int64_t step, const std::vector<TensorRequest>& requests) {
  ESPALIER_CHECK(choice_ && choice_->step == step, step);
  ESPALIER_CHECK(requests.size() == begins_.size(), requests.size(), " of ", begins_.size());
  const uint8_t* const data = options_.own.data(newest_slot_);
  std::vector<uint8_t*> to;
  for (size_t number = 0; number < requests.size(); ++number) {
    const at::Tensor& values = requests[number].destination;
    const int64_t end = number + 1 < begins_.size() ? begins_[number + 1] : bytes_;
    ESPALIER_CHECK(begins_[number] + in_lines(num_bytes(values)) == end, requests[number].name, " of ",
                   num_bytes(values), " bytes");
    to.push_back(static_cast<uint8_t*>(values.mutable_data_ptr()));
  }
  at::parallel_for(0, std::ssize(pieces_), 1, [&](int64_t begin, int64_t end) {
    for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at) {
      const Piece& piece = pieces_[at];
      std::memcpy(to[piece.tensor] + piece.begin, data + piece.to, static_cast<size_t>(piece.bytes));
    }
  });
  const SnapshotHead head = head_of({rank(), SlotsOf::kRank, newest_slot_, step, facts(rank()).identity});
  safe_slot_ = newest_slot_;
  forget_after(step);
  return store::manifest_from_json(head.text, text_of(head)).state;
}

void Snapshots::clear() {
  link_.reset();
  is_under_way_ = false;
  choice_.reset();
  newest_slot_ = safe_slot_ = -1;
  forget_after(0);
}

void Snapshots::forget_after(int64_t step) {
  options_.own.forget_after(step);
  if (!options_.replication) return;
  launch::SnapshotSlots& of_peer = options_.replication->slots;
  of_peer.forget_after(source() ? step : 0);
  if (!source()) of_peer.reserve(0);  // what they took up is given back
}

void Snapshots::replicate() {
  if (!replicates_) return;
  connect();
  keeps_between_tries_ = kFirstKeepsBetweenTries;
  if (choice_) send_newest();  // also where there is one already: nobody has checked it
}

void Snapshots::connect() {
  together(group_, [&] { link_ = std::make_unique<CopyLink>(options_.replication->link); });
  const CopyLink::End own = link_->end();
  ends_.clear();
  for (const std::string& text : group_.gather_texts(concat(own.address, " ", own.name))) {
    const size_t blank = text.find(' ');
    ends_.push_back({text.substr(0, blank), text.substr(blank + 1)});
  }
  if (const auto from = source()) link_->receive_into(options_.replication->slots, ends_[static_cast<size_t>(*from)]);
  if (sends(rank())) link_->send_to(ends_[static_cast<size_t>(target(rank()))]);
}

void Snapshots::send_newest() {
  is_under_way_ = true;
  sent_at_ = Clock::now();
  if (!sends(rank())) return;
  SnapshotHead newest;
  int64_t safe_step = 0;
  for (const SnapshotHead& head : options_.own.heads()) {
    if (head.slot == newest_slot_) newest = head;
    if (head.slot == safe_slot_) safe_step = head.step;
  }
  link_->send(newest, options_.own.data(newest_slot_), safe_step);
}

int64_t Snapshots::newest_step() const {
  for (const SnapshotHead& head : options_.own.heads())
    if (head.slot == newest_slot_) return head.step;
  return 0;
}

// All ranks decide alike: then the newest copies that have reached their peers are of one step.
void Snapshots::settle() {
  if (!std::exchange(is_under_way_, false)) return;
  const double interval = age_of(sent_at_);  // that was left to it
  CopyLink::State state = CopyLink::State::kIdle;
  {
    const WaitsFor waits(Waiting::kPeers, "copy of the state", "another machine");
    state = link_->wait(options_.replication->longest_wait_seconds);
  }
  const bool is_late = state == CopyLink::State::kUnderWay, has_waited = age_of(sent_at_) > 1.1 * interval;
  const std::vector<bool> any = group_.any({state == CopyLink::State::kDamaged, state == CopyLink::State::kBroken,
                                            is_late, state == CopyLink::State::kArrived, has_waited});
  if (any[1] || any[2]) {
    stop_sending(state == CopyLink::State::kBroken ? link_->trouble()
                 : is_late ? concat("the copy to ", address_of_target(), " has been under way for ",
                                    format_duration(age_of(sent_at_)),
                                    ": with a larger --non-persistent-save-interval it has more time")
                           : "");
    return;
  }
  if (any[4] && !std::exchange(said_wait_, true))
    log_info("training waits until the copy of the state before has reached another machine: it took ",
             format_printf("%.0f ms, and the next was due after %.0f ms", 1000 * age_of(sent_at_), 1000 * interval),
             ". A larger --non-persistent-save-interval makes fewer of them");
  if (any[0]) {
    for (const std::string& whose :
         group_.gather_texts(state == CopyLink::State::kDamaged
                                 ? concat("rank ", rank(), " has arrived damaged at ", address_of_target())
                                 : ""))
      if (!whose.empty())
        log_warning("the copy of the state of ", whose, " (its checksum differs): that step does not count there");
    return;
  }
  safe_slot_ = newest_slot_;
  if (any[3]) say_arrived();
}

void Snapshots::say_arrived() {
  arrived_ = {.step = newest_step(), .sent_at = sent_at_};
  keeps_between_tries_ = kFirstKeepsBetweenTries;
  if (std::exchange(is_resuming_, false)) {
    log_info("copies of the state reach another machine again, first that of iteration ", arrived_.step);
    if (const auto& tell = options_.replication->on_change)
      tell("replication resumed", arrived_.step, "copies of the state reach another machine again");
  }
  if (sends(rank()) && !std::exchange(said_arrival_, true))
    log_info("the copy of the state was at another machine after ", format_printf("%.1f ms", 1000 * link_->seconds()));
}

// Copies in memory of the own machine go on, and after some of them the others are tried again.
void Snapshots::stop_sending(const std::string& trouble) {
  std::vector<std::string> troubles;
  for (const std::string& text : group_.gather_texts(trouble.empty() ? "" : concat("rank ", rank(), ": ", trouble)))
    if (!text.empty()) troubles.push_back(text);
  const std::string what =
      concat("copies of the state do not reach another machine (", join(troubles, "; "),
             "): they are kept in memory of their ", "own machine only, and sending is tried again after ",
             keeps_between_tries_, " of them. ",
             arrived_.step == 0 ? "None has reached another machine since this start"
                                : concat("The newest that is at another machine is of iteration ", arrived_.step, ", ",
                                         format_duration(age_of(arrived_.sent_at)), " old"));
  log_warning(what);
  if (const auto& tell = options_.replication->on_change) tell("replication stopped", newest_step(), what);
  link_.reset();
  keeps_to_next_try_ = keeps_between_tries_;
  keeps_between_tries_ = std::min(2 * keeps_between_tries_, kMostKeepsBetweenTries);
  safe_slot_ = newest_slot_;
}

void Snapshots::try_again() {
  try {
    connect();
    is_resuming_ = true;
  } catch (const UserError& error) {  // the same on all ranks
    link_.reset();
    log_warning(error.what());
    keeps_to_next_try_ = keeps_between_tries_;
  }
}

// The copy's checksum.
uint64_t Snapshots::fill(uint8_t* copy, const std::vector<TensorToSave>& tensors) const {
  std::vector<const uint8_t*> from(tensors.size());  // null: in place already
  for (size_t number = 0; number < tensors.size(); ++number) {
    const at::Tensor& values = tensors[number].value;
    if (values.is_cpu())
      from[number] = static_cast<const uint8_t*>(values.const_data_ptr());
    else
      at::from_blob(copy + begins_[number], values.sizes(), at::TensorOptions().dtype(values.scalar_type()))
          .copy_(values);
  }
  std::vector<uint64_t> sums(first_pieces_.size() - 1);  // of blocks
  at::parallel_for(0, std::ssize(sums), 1, [&](int64_t first, int64_t end) {
    for (auto block = static_cast<size_t>(first); block < static_cast<size_t>(end); ++block) {
      for (size_t at = first_pieces_[block]; at < first_pieces_[block + 1]; ++at) {
        const Piece& piece = pieces_[at];
        if (from[piece.tensor] != nullptr)
          std::memcpy(copy + piece.to, from[piece.tensor] + piece.begin, static_cast<size_t>(piece.bytes));
        std::memset(copy + piece.to + piece.bytes, 0, static_cast<size_t>(piece.padding));
      }
      const int64_t begin = static_cast<int64_t>(block) * kSnapshotBlockBytes;
      sums[block] = hash64(copy + begin, static_cast<size_t>(std::min(kSnapshotBlockBytes, bytes_ - begin)));
    }
  });
  return hash64(sums.data(), sums.size() * sizeof(uint64_t));
}

void Snapshots::keep(const store::TrainingState& numbers, const std::vector<TensorToSave>& tensors) {
  ESPALIER_CHECK(tensors.size() == begins_.size(), tensors.size(), " of ", begins_.size());
  settle();
  if (first_has_twin_) group_.barrier();
  if (!link_) {
    ESPALIER_CHECK(!replicates_ || keeps_to_next_try_ > 0, "replicate() comes before keep()");
    safe_slot_ = newest_slot_;
    if (replicates_ && --keeps_to_next_try_ == 0) try_again();
  }
  const int slot = options_.own.slot_to_write(safe_slot_);
  const uint64_t sum = fill(options_.own.begin(slot), tensors);
  store::Manifest manifest;
  manifest.state = numbers;
  options_.own.finish(slot, {.step = numbers.step,
                             .bytes = bytes_,
                             .identity = facts(rank()).identity,
                             .checksum = sum,
                             .text = store::to_json(manifest)});
  newest_slot_ = slot;
  if (link_) send_newest();
}

}  // namespace espalier::ckpt
