// What cuDNN takes from CUDA's driver (libcuda.so.1) while it makes a plan, where there is no driver: kernels can be
// loaded, nothing can be run. The test program names this library, so that it is there before cuDNN looks for one.
namespace {

constexpr int kSuccess = 0, kNoDevice = 100, kNotSupported = 801;
int handle;  // stands for every library and kernel

}  // namespace

extern "C" {

int cuInit(unsigned) { return kNoDevice; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  *count = 0;
  return kSuccess;
}
int cuGetErrorString(int, const char** text) {
  *text = "there is no driver";
  return kSuccess;
}
int cuGetErrorName(int, const char** text) {
  *text = "NO_DRIVER";
  return kSuccess;
}
int cuLibraryLoadData(void** library, ...) {
  *library = &handle;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel, ...) {
  *kernel = &handle;
  return kSuccess;
}
int cuLibraryUnload(void*) { return kSuccess; }

// Asked for by name, and not called.
int cuGetExportTable() { return kNotSupported; }
int cuCtxGetCurrent() { return kNotSupported; }
int cuCtxGetLimit() { return kNotSupported; }
int cuCtxPopCurrent() { return kNotSupported; }
int cuCtxPushCurrent() { return kNotSupported; }
int cuDeviceGet() { return kNotSupported; }
int cuKernelGetAttribute() { return kNotSupported; }
int cuKernelSetAttribute() { return kNotSupported; }
int cuLaunchCooperativeKernel() { return kNotSupported; }
int cuLaunchKernel() { return kNotSupported; }
int cuLaunchKernelEx() { return kNotSupported; }
int cuLibraryLoadFromFile() { return kNotSupported; }
int cuLinkAddData() { return kNotSupported; }
int cuLinkComplete() { return kNotSupported; }
int cuLinkCreate() { return kNotSupported; }
int cuLinkDestroy() { return kNotSupported; }
int cuOccupancyMaxPotentialClusterSize() { return kNotSupported; }
int cuStreamGetCtx() { return kNotSupported; }

}  // extern "C"
