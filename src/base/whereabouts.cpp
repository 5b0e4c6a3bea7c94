#include "base/whereabouts.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "base/stretches.h"

namespace espalier {
namespace {

// One writer, one reader in another process. Numbers are read one by one: a look between two of them is off by one sign
// of progress, which does not matter. Texts have a version that is odd while one is written.
struct Slot {
  std::atomic<int32_t> is_open, phase, waiting;
  std::atomic<int64_t> step, micro_batch, since_ns;
  std::atomic<uint64_t> progress;
  std::atomic<uint32_t> text_version;
  char operation[32], whom[128];  // what it waits for
  char folder[1024];
  std::atomic<int64_t> waited_ns;  // for peers
  std::atomic<uint32_t> saves_wished;
  std::atomic<int32_t> pause_wished, log_level_wished;  // a level and 1; 0: none
  StackRecord stack;
  Stretches stretches[kNumRunPhases][kNumWaitings];
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

constexpr size_t kSlotBytes = 8192;
static_assert(sizeof(Slot) <= kSlotBytes);

// The monotonic clock is the same in all processes of a machine, and stands still while it sleeps.
int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Slot* own_slot = nullptr;  // of this process
std::thread::id own_thread;

std::atomic<bool> peers_are_lost{false};

Slot* writable() { return own_slot != nullptr && std::this_thread::get_id() == own_thread ? own_slot : nullptr; }

void open_slot(void* memory) {
  own_slot = static_cast<Slot*>(memory);
  own_thread = std::this_thread::get_id();
  own_slot->since_ns = now_ns();
  answer_stack_requests(own_slot->stack);
  own_slot->is_open = 1;
}

Wishes wishes_in(const Slot& slot) {
  const int level = slot.log_level_wished;
  Wishes wishes{.num_saves = slot.saves_wished, .pause = slot.pause_wished != 0, .log_level = {}};
  if (level > 0) wishes.log_level = static_cast<LogLevel>(level - 1);
  return wishes;
}

// Ends the stretch since the last sign of progress.
void advance(Slot& slot) {
  const int64_t now = now_ns(), length = std::max<int64_t>(0, now - slot.since_ns.load(std::memory_order_relaxed));
  Stretches& stretches =
      slot.stretches[slot.phase.load(std::memory_order_relaxed)][slot.waiting.load(std::memory_order_relaxed)];
  stretches.add(length);
  if (slot.waiting.load(std::memory_order_relaxed) == static_cast<int32_t>(Waiting::kPeers))
    slot.waited_ns.fetch_add(length, std::memory_order_relaxed);
  slot.since_ns.store(now, std::memory_order_relaxed);
  slot.progress.fetch_add(1, std::memory_order_release);
}

template <size_t size>
void write_text(Slot& slot, char (&to)[size], std::string_view text) {
  slot.text_version.fetch_add(1, std::memory_order_acq_rel);
  const size_t count = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), count);
  to[count] = 0;
  slot.text_version.fetch_add(1, std::memory_order_acq_rel);
}

template <size_t size>
std::string read_text(const Slot& slot, const char (&from)[size]) {
  char text[size];
  for (int tries = 0; tries < 100; ++tries) {  // a rank that was killed while it wrote leaves the version odd
    const uint32_t before = slot.text_version.load(std::memory_order_acquire);
    std::memcpy(text, from, size);
    if (before % 2 == 0 && slot.text_version.load(std::memory_order_acquire) == before) break;
  }
  text[size - 1] = 0;
  return text;
}

}  // namespace

std::string to_string(RunPhase phase) {
  constexpr const char* kNames[kNumRunPhases] = {"start", "load", "train", "evaluate", "save", "exit"};
  return kNames[static_cast<int>(phase)];
}

void open_whereabouts() {
  const char* const text = std::getenv(kWhereaboutsVariable);
  if (text == nullptr) return;
  int descriptor = -1;
  long slot = -1;
  const bool is_good = std::sscanf(text, "%d:%ld", &descriptor, &slot) == 2 && slot >= 0;
  unsetenv(kWhereaboutsVariable);  // not for what this process starts
  if (!is_good) return;
  void* const memory = mmap(nullptr, kSlotBytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor,
                            static_cast<off_t>(slot) * static_cast<off_t>(kSlotBytes));
  if (memory == MAP_FAILED) return;  // the launcher is another program's, or of another version
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  open_slot(memory);
}

bool whereabouts_are_open() { return own_slot != nullptr; }

void set_phase(RunPhase phase, int64_t step) {
  Slot* const slot = writable();
  if (slot == nullptr) return;
  advance(*slot);
  slot->micro_batch = -1;
  slot->step = step;
  slot->phase = static_cast<int32_t>(phase);
}

void note_progress(int64_t micro_batch) {
  Slot* const slot = writable();
  if (slot == nullptr) return;
  if (peers_are_lost) throw UserError("another rank has ended", ExitCode::kLostPeer);
  advance(*slot);
  if (micro_batch >= 0) slot->micro_batch = micro_batch;
}

void lose_peers(bool lost) { peers_are_lost = lost; }

void note_run_folder(const std::string& folder) {
  if (Slot* const slot = writable()) write_text(*slot, slot->folder, folder);
}

Wishes wishes() { return own_slot == nullptr ? Wishes{} : wishes_in(*own_slot); }

double seconds_waited_for_peers() {
  return own_slot == nullptr ? 0 : static_cast<double>(own_slot->waited_ns.load(std::memory_order_relaxed)) / 1e9;
}

WaitsFor::WaitsFor(Waiting what, const char* operation, const std::string& whom) : counts_(false) {
  Slot* const slot = writable();
  if (slot == nullptr || slot->waiting.load(std::memory_order_relaxed) != 0) return;
  counts_ = true;
  advance(*slot);
  write_text(*slot, slot->operation, operation);
  write_text(*slot, slot->whom, whom);
  slot->waiting = static_cast<int32_t>(what);
}

WaitsFor::~WaitsFor() {
  if (!counts_) return;
  advance(*own_slot);
  own_slot->waiting = static_cast<int32_t>(Waiting::kNothing);
}

WhereaboutsBoard::WhereaboutsBoard(int64_t num_ranks) : num_ranks_(num_ranks) {
  const size_t size = static_cast<size_t>(num_ranks) * kSlotBytes;
  descriptor_ = memfd_create("espalier-whereabouts", 0);  // stays open in the ranks
  if (descriptor_ >= 0 && ftruncate(descriptor_, static_cast<off_t>(size)) == 0)
    memory_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory_ == nullptr || memory_ == MAP_FAILED) {
    const int reason = errno;
    if (descriptor_ >= 0) close(descriptor_);
    throw UserError(concat("no memory to watch the ranks in: ", std::strerror(reason)));
  }
}

WhereaboutsBoard::~WhereaboutsBoard() {
  munmap(memory_, static_cast<size_t>(num_ranks_) * kSlotBytes);
  close(descriptor_);
}

std::string WhereaboutsBoard::variable(int64_t local_rank) const { return concat(descriptor_, ":", local_rank); }

const WhereaboutsBoard& WhereaboutsBoard::of_this_process() {
  static const WhereaboutsBoard* const board = [] {
    const auto* const fresh = new WhereaboutsBoard(1);
    open_slot(fresh->slot_of(0));
    return fresh;
  }();
  return *board;
}

void* WhereaboutsBoard::slot_of(int64_t local_rank) const {
  ESPALIER_CHECK(local_rank >= 0 && local_rank < num_ranks_, local_rank, " of ", num_ranks_);
  return std::launder(
      reinterpret_cast<Slot*>(static_cast<char*>(memory_) + static_cast<size_t>(local_rank) * kSlotBytes));
}

StackRecord& WhereaboutsBoard::stack_record(int64_t local_rank) const {
  return static_cast<Slot*>(slot_of(local_rank))->stack;
}

void WhereaboutsBoard::ask_for_save(int64_t local_rank) const {
  static_cast<Slot*>(slot_of(local_rank))->saves_wished.fetch_add(1);
}

void WhereaboutsBoard::ask_for_pause(int64_t local_rank, bool pause) const {
  static_cast<Slot*>(slot_of(local_rank))->pause_wished = pause ? 1 : 0;
}

void WhereaboutsBoard::ask_for_log_level(int64_t local_rank, LogLevel level) const {
  static_cast<Slot*>(slot_of(local_rank))->log_level_wished = static_cast<int32_t>(level) + 1;
}

void WhereaboutsBoard::clear(int64_t local_rank) const { std::memset(slot_of(local_rank), 0, kSlotBytes); }

void WhereaboutsBoard::forget_wishes(int64_t local_rank) const {
  auto& slot = *static_cast<Slot*>(slot_of(local_rank));
  slot.saves_wished = 0, slot.pause_wished = 0, slot.log_level_wished = 0;
}

Wishes WhereaboutsBoard::wishes(int64_t local_rank) const {
  return wishes_in(*static_cast<const Slot*>(slot_of(local_rank)));
}

Sight WhereaboutsBoard::sight(int64_t local_rank) const {
  const auto& slot = *static_cast<const Slot*>(slot_of(local_rank));
  Sight sight;
  sight.is_open = slot.is_open != 0;
  if (!sight.is_open) return sight;
  sight.progress = slot.progress.load(std::memory_order_acquire);
  sight.phase = static_cast<RunPhase>(std::clamp<int32_t>(slot.phase, 0, kNumRunPhases - 1));
  sight.waiting = static_cast<Waiting>(std::clamp<int32_t>(slot.waiting, 0, kNumWaitings - 1));
  sight.step = slot.step, sight.micro_batch = slot.micro_batch;
  sight.seconds_since = static_cast<double>(now_ns() - slot.since_ns) / 1e9;
  sight.waits_for = concat(read_text(slot, slot.operation), " of ", read_text(slot, slot.whom));
  sight.folder = read_text(slot, slot.folder);
  const StretchSummary known = slot.stretches[static_cast<int>(sight.phase)][static_cast<int>(sight.waiting)].summary();
  sight.num_stretches = known.num, sight.percentile_99 = known.percentile_99, sight.longest = known.longest;
  return sight;
}

}  // namespace espalier
