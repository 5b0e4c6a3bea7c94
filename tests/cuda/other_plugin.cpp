// A plugin that was made from other sources.
extern "C" const char* espalier_cuda_interface() { return "espalier 0.0.0 made elsewhere"; }
extern "C" const void* espalier_cuda_table() { return nullptr; }
