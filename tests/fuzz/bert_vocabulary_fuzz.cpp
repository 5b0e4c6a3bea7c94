// vocab.txt of BERT: read, then a text encoded and decoded with what came of it.
#include "tests/fuzz/reader_fuzz.h"
#include "text/bert_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return espalier::fuzz::try_reader([&] {
    const auto tokenizer =
        espalier::text::load_bert_tokenizer(espalier::fuzz::written(data, size, "vocab.txt"), true, 1);
    tokenizer->decode(tokenizer->encode("The CAF\u00c9's 12 \u4f60\u597d. a\u0301bc\n"));
  });
}
