// tokenizer.json: read, then a text encoded and decoded with what came of it.
#include "tests/fuzz/reader_fuzz.h"
#include "text/hf_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return espalier::fuzz::try_reader([&] {
    const auto tokenizer = espalier::text::load_hf_tokenizer(espalier::fuzz::written(data, size, "tokenizer.json"));
    const std::vector<int32_t> ids = tokenizer->encode("The caf\u00e9's 12 \u4f60\u597d\u3002 <s> a\u0301bc  \n");
    tokenizer->decode(ids);
  });
}
