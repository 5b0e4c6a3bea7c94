#include "tests/support/kernel_accesses.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

// Of the program, by its linker: constants, then variables.
extern "C" const char __executable_start, __data_start, _end;

namespace espalier::cuda {
namespace {

thread_local bool recording = false;

bool is_constant(const void* address) { return address >= &__executable_start && address < &__data_start; }

}  // namespace

KernelAccesses& KernelAccesses::instance() {
  static KernelAccesses instance;
  return instance;
}

KernelAccesses::KernelAccesses()
    : shared_{"shared memory", /*of_block=*/true},
      static_{"shared variables", /*of_block=*/true},
      device_{"the device's memory", /*of_block=*/false} {
  static_.place({&__data_start, static_cast<size_t>(&_end - &__data_start)});
}

// Most of it is never touched, and takes no memory.
void KernelAccesses::Area::place(const Memory& now) {
  memory = now;
  if (memory.bytes <= capacity) return;
  if (words != nullptr) ::munmap(words, capacity / 4 * sizeof(Word));
  capacity = (memory.bytes + 3) / 4 * 4;
  void* const mapped = ::mmap(nullptr, capacity / 4 * sizeof(Word), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ESPALIER_CHECK(mapped != MAP_FAILED, "accesses to ", capacity, " bytes: ", std::strerror(errno));
  words = static_cast<Word*>(mapped);
}

void KernelAccesses::begin_launch(const Memory& device, const std::array<Memory, 2>& own) {
  device_.place(device);
  own_ = own;
  trouble_.clear();
  launch_begin_ = now_ + 1;
  block_ = 0;
}

void KernelAccesses::begin_block(const Memory& shared) {
  shared_.place(shared);
  block_begin_ = ++now_;
  ++block_;
}

KernelAccesses::Area* KernelAccesses::area_of(const void* address, size_t bytes) {
  for (Area* area : {&shared_, &device_, &static_})
    if (area->memory.has(address) && area->offset(address) + bytes <= area->memory.bytes) return area;
  return nullptr;
}

inline bool KernelAccesses::is_unordered(const Access& other, uint32_t first, const Moment& begin) const {
  if (other.interval < first) return false;
  if (other.interval < block_begin_ || other.who == kOfBlocks) return true;
  if (other.interval < begin.interval || other.who == thread_) return false;
  // Numbers of exchanges go round.
  const bool before = other.interval == begin.interval && static_cast<int16_t>(begin.exchange - other.exchange) > 0;
  return !(before && warp_of(other.who) == warp_of(thread_));
}

inline void KernelAccesses::add_reader(Access& readers, uint32_t first) const {
  uint16_t who = thread_;
  if (readers.interval >= first) {
    if (readers.interval < block_begin_ || readers.who == kOfBlocks)
      who = kOfBlocks;
    else if (readers.interval == now_ && warp_of(readers.who) != warp_of(thread_))
      who = kOfWarps;
    else if (readers.interval == now_ && readers.exchange == exchange_ && readers.who != thread_)
      who = kOfWarp + warp_of(thread_);
  }
  readers = {now_, who, exchange_};
}

inline const KernelAccesses::Access* KernelAccesses::add(Accesses& accesses, bool writes, uint32_t first,
                                                         const Moment& begin) const {
  if (is_unordered(accesses.write, first, begin)) return &accesses.write;
  if (!writes) {
    add_reader(accesses.read, first);
    return nullptr;
  }
  if (is_unordered(accesses.read, first, begin)) return &accesses.read;
  accesses.write = {now_, thread_, exchange_};
  return nullptr;
}

void KernelAccesses::touch(const void* address, size_t bytes, bool writes, const Moment& begin) {
  if (own_[0].has(address) || own_[1].has(address) || !trouble_.empty()) return;
  const Area* const area = area_of(address, bytes);
  if (area == nullptr) {
    if (writes || !is_constant(address))
      trouble_ = concat("thread ", thread_, " of block ", block_ - 1, writes ? " writes " : " reads ", bytes,
                        " bytes at ", address, ", which is the host's memory");
    return;
  }
  const uint32_t first = area->of_block ? block_begin_ : launch_begin_;
  const size_t offset = area->offset(address), end = offset + bytes;
  for (size_t at = offset; at < end;) {
    Word& word = area->words[at / 4];
    const bool whole = at % 4 == 0 && end - at >= 4 && !word.is_divided;
    if (!whole && !word.is_divided) {
      std::fill_n(word.bytes, 4, word.whole);
      word.is_divided = true;
    }
    if (const Access* const other = add(whole ? word.whole : word.bytes[at % 4], writes, first, begin))
      return refuse(*area, address, bytes, writes, *other);
    at += whole ? 4 : 1;
  }
}

void KernelAccesses::refuse(const Area& area, const void* address, size_t bytes, bool writes, const Access& other) {
  std::string whom = concat("thread ", other.who);
  if (other.who == kOfBlocks || other.interval < block_begin_)
    whom = "another block";
  else if (other.who >= kMostThreads)
    whom = "other threads";
  trouble_ = concat("thread ", thread_, " of block ", block_ - 1, writes ? " writes " : " reads ", bytes, " bytes of ",
                    area.name, " at ", area.offset(address), ", to which ", whom, " may come before or after it");
}

bool record_accesses(bool on) {
  const bool before = recording;
  recording = on;
  return before;
}

// Not recorded meanwhile: the linker may have taken what is inline here from an object with the option.
void note_read(const void* from, size_t bytes) {
  if (!recording) return;
  recording = false;
  KernelAccesses::instance().read(from, bytes);
  recording = true;
}
void note_write(const void* to, size_t bytes) {
  if (!recording) return;
  recording = false;
  KernelAccesses& accesses = KernelAccesses::instance();
  accesses.write(to, bytes, accesses.now());
  recording = true;
}

}  // namespace espalier::cuda

// What GCC calls with -fsanitize=thread. Where the whole program is compiled with that, its own library is there.
#ifndef __SANITIZE_THREAD__
extern "C" {
// NOLINTBEGIN(readability-identifier-naming)
using espalier::cuda::note_read;
using espalier::cuda::note_write;
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read1(void* from) { note_read(from, 1); }
void __tsan_read2(void* from) { note_read(from, 2); }
void __tsan_read4(void* from) { note_read(from, 4); }
void __tsan_read8(void* from) { note_read(from, 8); }
void __tsan_read16(void* from) { note_read(from, 16); }
void __tsan_unaligned_read2(void* from) { note_read(from, 2); }
void __tsan_unaligned_read4(void* from) { note_read(from, 4); }
void __tsan_unaligned_read8(void* from) { note_read(from, 8); }
void __tsan_unaligned_read16(void* from) { note_read(from, 16); }
void __tsan_read_range(void* from, size_t bytes) { note_read(from, bytes); }
void __tsan_write1(void* to) { note_write(to, 1); }
void __tsan_write2(void* to) { note_write(to, 2); }
void __tsan_write4(void* to) { note_write(to, 4); }
void __tsan_write8(void* to) { note_write(to, 8); }
void __tsan_write16(void* to) { note_write(to, 16); }
void __tsan_unaligned_write2(void* to) { note_write(to, 2); }
void __tsan_unaligned_write4(void* to) { note_write(to, 4); }
void __tsan_unaligned_write8(void* to) { note_write(to, 8); }
void __tsan_unaligned_write16(void* to) { note_write(to, 16); }
void __tsan_write_range(void* to, size_t bytes) { note_write(to, bytes); }
void __tsan_vptr_update(void**, void*) {}
// Of the host's code beside kernels: what is made once, and counts of who holds a thing.
uint8_t __tsan_atomic8_load(const volatile uint8_t* from, int) { return __atomic_load_n(from, __ATOMIC_SEQ_CST); }
uint32_t __tsan_atomic32_fetch_add(volatile uint32_t* to, uint32_t count, int) {
  return __atomic_fetch_add(to, count, __ATOMIC_SEQ_CST);
}
uint32_t __tsan_atomic32_fetch_sub(volatile uint32_t* to, uint32_t count, int) {
  return __atomic_fetch_sub(to, count, __ATOMIC_SEQ_CST);
}
// NOLINTEND(readability-identifier-naming)
}
#endif
