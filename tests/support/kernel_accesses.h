// What the threads of a launch on the host (device_on_host.h) read and write, byte by byte, and who comes to the same
// byte without order: a race, whether or not it changed the result.
//
// Kernels are compiled with -fsanitize=thread, which puts a call before each access; kernel_accesses.cpp is there in
// the place of that option's own library. What the stand-in does for a kernel, it notes by name. Refused are
//   - two threads at one byte, one of them to write, if no barrier of the block is between them, nor, of one warp, an
//     exchange of its lanes (whose values then depend on one another);
//   - two blocks of a launch at one byte, one of them to write;
//   - memory that is neither the device's, nor the block's, nor the thread's own, nor constant.
// Whatever order the threads ran in, all of that shows, for the branches that were taken. Not seen: the inside of
// functions that are not the kernel's own, such as memcpy where it stays a call; that a compiler may move an access
// across an exchange on whose values it does not depend. Shared variables are known as the program's own writable ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace espalier::cuda {

class KernelAccesses {
 public:
  static KernelAccesses& instance();

  struct Memory {
    const void* begin;
    size_t bytes;
    bool has(const void* address) const {
      return static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(begin)) < bytes;
    }
  };
  // own: what is a thread's alone.
  void begin_launch(const Memory& device, const std::array<Memory, 2>& own);
  void begin_block(const Memory& shared);
  void begin_interval() { ++now_; }  // a barrier of the block
  // From now on this one runs, which has come to so many exchanges of its warp.
  void run_thread(size_t thread, size_t exchanges) {
    thread_ = static_cast<uint16_t>(thread);
    exchange_ = static_cast<uint16_t>(exchanges);
  }
  // The first thing in the launch that is refused; empty: nothing.
  const std::string& trouble() const { return trouble_; }

  // Of the thread that runs.
  struct Moment {
    uint32_t interval;
    uint16_t exchange;
  };
  Moment now() const { return {now_, exchange_}; }
  void read(const void* from, size_t bytes) { touch(from, bytes, false, now()); }
  // That may have happened at any time since `begin`.
  void write(const void* to, size_t bytes, const Moment& begin) { touch(to, bytes, true, begin); }

 private:
  static constexpr uint16_t kMostThreads = 1024;
  // Readers beside one another: of one warp (its number is added), of several, of several blocks.
  static constexpr uint16_t kOfWarp = kMostThreads, kOfWarps = kOfWarp + 32, kOfBlocks = kOfWarps + 1;
  struct Access {
    uint32_t interval;  // 0: none
    uint16_t who, exchange;
  };
  struct Accesses {
    Access read, write;  // the last ones
  };
  // Of four bytes together, until some of them are accessed without the others.
  struct Word {
    Accesses whole;
    bool is_divided;
    Accesses bytes[4];
  };
  struct Area {
    const char* name;
    bool of_block;
    Memory memory{};
    Word* words = nullptr;
    size_t capacity = 0;  // bytes that they are for

    void place(const Memory& now);
    size_t offset(const void* address) const {
      return static_cast<size_t>(static_cast<const char*>(address) - static_cast<const char*>(memory.begin));
    }
  };

  KernelAccesses();
  void touch(const void* address, size_t bytes, bool writes, const Moment& begin);
  Area* area_of(const void* address, size_t bytes);
  // The access that is not in order with this one; nullptr: none, and this one is among them.
  const Access* add(Accesses& accesses, bool writes, uint32_t first, const Moment& begin) const;
  bool is_unordered(const Access& other, uint32_t first, const Moment& begin) const;
  void add_reader(Access& readers, uint32_t first) const;
  void refuse(const Area& area, const void* address, size_t bytes, bool writes, const Access& other);
  static uint16_t warp_of(uint16_t who) { return who < kMostThreads ? who / 32 : who - kOfWarp; }

  Area shared_, static_, device_;
  std::array<Memory, 2> own_{};
  // Intervals are numbered through all launches.
  uint32_t now_ = 0, launch_begin_ = 0, block_begin_ = 0;
  size_t block_ = 0;
  uint16_t thread_ = 0, exchange_ = 0;
  std::string trouble_;
};

// Whether accesses of this thread of the host are a kernel's; returns what it was before.
bool record_accesses(bool on);

// Where the stand-in does something of its own in the midst of a kernel.
class Unrecorded {
 public:
  Unrecorded() : before_(record_accesses(false)) {}
  ~Unrecorded() { record_accesses(before_); }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;
  bool was_recording() const { return before_; }

 private:
  bool before_;
};

// Of a kernel, or of what the stand-in does for it; where nothing is recorded, nothing.
void note_read(const void* from, size_t bytes);
void note_write(const void* to, size_t bytes);

}  // namespace espalier::cuda
