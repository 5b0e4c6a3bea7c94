// config.json: read, and where it is a model, written and read again.
#include "convert/hf/config.h"
#include "tests/fuzz/reader_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  return espalier::fuzz::try_reader([&] {
    using namespace espalier::convert;
    const std::string text(reinterpret_cast<const char*>(input), size);
    const HfModel model = read_hf_config(text, "config.json", {});
    if (model.codec->obstacles(model.config).empty()) read_hf_config(hf_config_json(model, text), "written", {});
  });
}
