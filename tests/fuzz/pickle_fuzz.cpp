// A pickle, in the old format of torch.save: no checksum or directory is before it, so mutations reach its steps.
#include <string>

#include "store/torch_file.h"
#include "tests/fuzz/reader_fuzz.h"
#include "tests/fuzz/use_torch_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr char kStart[] =
      "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."  // the magic number
      "\x80\x02M\xe9\x03."                                         // version 1001
      "\x80\x02}X\x0d\0\0\0little_endian\x88s.";
  std::string content(kStart, sizeof kStart - 1);
  content.append(reinterpret_cast<const char*>(data), size);
  const auto file =
      espalier::fuzz::written(reinterpret_cast<const uint8_t*>(content.data()), content.size(), "fuzz_old.pt");
  return espalier::fuzz::try_reader([&] { espalier::fuzz::use_value(espalier::store::read_torch_file(file)); });
}
