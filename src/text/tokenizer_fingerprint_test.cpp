#include "text/tokenizer_fingerprint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace espalier::text {
namespace {

TEST(TokenizerFingerprint, DoesNotChangeFromOneReleaseToTheNext) {
  // Stored in files of users; only a new format of those may change it.
  EXPECT_EQ(hex64(fingerprint(*open_tokenizer("tests/data/gpt2-tiny/vocab.json"))), "ff14f7e263cba7e5");
}

TEST(TokenizerFingerprint, SeesAnotherOrderOfMerges) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / concat("espalier-fingerprint-", ::getpid());
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file("tests/data/gpt2-tiny/vocab.json", folder / "vocab.json");
  const std::string merges = read_file("tests/data/gpt2-tiny/merges.txt");
  const size_t first = merges.find('\n') + 1, second = merges.find('\n', merges.find('\n', first) + 1) + 1;
  std::ofstream(folder / "merges.txt") << merges.substr(0, first) << merges.substr(second);  // without the first two
  const auto other = open_tokenizer(folder / "vocab.json");
  EXPECT_NE(fingerprint(*other), fingerprint(*open_tokenizer("tests/data/gpt2-tiny/vocab.json")));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace espalier::text
