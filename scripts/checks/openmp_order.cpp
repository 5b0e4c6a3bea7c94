// Tells ThreadSanitizer what the barriers of libgomp order, which it does not see: what was written before a parallel
// region is there in each of its threads, and what these wrote is there after it. Preloaded by scripts/check threads.
#include <dlfcn.h>

extern "C" {

void __tsan_acquire(void* address) __attribute__((weak));
void __tsan_release(void* address) __attribute__((weak));

using Body = void (*)(void*);

namespace {

struct Region {
  Body body;
  void* data;
  char begin, end;  // their addresses stand for the two barriers
};

void run_in_thread(void* pointer) {
  auto* const region = static_cast<Region*>(pointer);
  __tsan_acquire(&region->begin);
  region->body(region->data);
  __tsan_release(&region->end);
}

}  // namespace

void GOMP_parallel(Body body, void* data, unsigned num_threads, unsigned flags) {
  using Parallel = void (*)(Body, void*, unsigned, unsigned);
  static const auto real = reinterpret_cast<Parallel>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  if (__tsan_acquire == nullptr) return real(body, data, num_threads, flags);  // ctest, which is not instrumented
  Region region{body, data, 0, 0};
  __tsan_release(&region.begin);
  real(run_in_thread, &region, num_threads, flags);
  __tsan_acquire(&region.end);
}

}  // extern "C"
