// Stands for NVIDIA's libnvidia-ml.so.1: as many GPUs as FAKE_GPUS says, with FAKE_GPU_MEMORY bytes each, under the
// driver FAKE_GPU_DRIVER. Variables of the process with that rank, FAKE_GPUS_2 and so on, count before these.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string setting(const char* name, const char* otherwise) {
  const char* const rank = std::getenv("RANK");
  const std::string own = std::string(name) + "_" + (rank == nullptr ? "" : rank);
  if (const char* const value = std::getenv(own.c_str())) return value;
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

constexpr int kNotFound = 6, kUnknown = 999;
bool is_ready = false;

}  // namespace

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() {
  is_ready = setting("FAKE_GPU_DRIVER", "550.90.07") != "gone";
  return is_ready ? 0 : kUnknown;
}
int nvmlShutdown() {
  is_ready = false;
  return 0;
}
const char* nvmlErrorString(int code) { return code == kNotFound ? "Not Found" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  if (!is_ready) return kUnknown;
  std::snprintf(text, size, "%s", setting("FAKE_GPU_DRIVER", "550.90.07").c_str());
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(std::atoi(setting("FAKE_GPUS", "2").c_str()));
  return is_ready ? 0 : kUnknown;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void** device) {
  *device = reinterpret_cast<void*>(static_cast<unsigned long>(number) + 1);
  return std::to_string(number) == setting("FAKE_GPU_LOST", "") ? kNotFound : 0;
}
int nvmlDeviceGetName(void*, char* text, unsigned size) {
  std::snprintf(text, size, "%s", setting("FAKE_GPU_NAME", "Planted GPU").c_str());
  return 0;
}
int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  const unsigned long long total = std::strtoull(setting("FAKE_GPU_MEMORY", "85899345920").c_str(), nullptr, 10);
  *memory = {total, total, 0};
  return 0;
}

}  // extern "C"
