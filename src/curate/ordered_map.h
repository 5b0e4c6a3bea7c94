// Work on many threads, results in the order of the input, bounded by the bytes between.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <utility>

#include "base/thread_pool.h"

namespace espalier::curate {

// next(item): false at the end; size_of(item): its bytes; work(item) on any thread; take(result) in order.
template <class Item, class Next, class SizeOf, class Work, class Take>
void map_in_order(int64_t workers, Next next, SizeOf size_of, Work work, Take take) {
  constexpr int64_t kBytesPerWorker = int64_t{8} << 20;
  using Result = decltype(work(std::declval<const Item&>()));
  struct InFlight {
    int64_t bytes;
    std::future<Result> result;
  };
  std::deque<InFlight> in_flight;
  int64_t bytes_in_flight = 0;
  ThreadPool pool(static_cast<int>(workers));
  const auto take_oldest = [&] {
    Result result = in_flight.front().result.get();
    bytes_in_flight -= in_flight.front().bytes;
    in_flight.pop_front();
    take(std::move(result));
  };
  for (;;) {
    Item item;
    if (!next(item)) break;
    const int64_t bytes = size_of(item);
    while (!in_flight.empty() && bytes_in_flight + bytes > workers * kBytesPerWorker) take_oldest();
    bytes_in_flight += bytes;
    in_flight.push_back({bytes, pool.submit([&work, item = std::move(item)] { return work(item); })});
  }
  while (!in_flight.empty()) take_oldest();
}

}  // namespace espalier::curate
