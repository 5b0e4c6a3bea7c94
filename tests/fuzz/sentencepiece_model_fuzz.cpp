// A SentencePiece .model: read, then a text encoded and decoded with what came of it.
#include "tests/fuzz/reader_fuzz.h"
#include "text/sentencepiece_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using espalier::text::SentencePieceWrapper;
  return espalier::fuzz::try_reader([&] {
    const auto file = espalier::fuzz::written(data, size, "fuzz.model");
    const auto tokenizer = load_sentencepiece_tokenizer(file, SentencePieceWrapper::kMegatron, 2);
    const std::vector<int32_t> ids =
        tokenizer->encode("  The caf\u00e9's 12 \u4f60\u597d\u3002 <s> a\u0301bc <EOD> \n ab");
    tokenizer->decode(ids);
  });
}
