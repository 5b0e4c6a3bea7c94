// The readers of files over what their fuzz targets have found, and over simple changes of it: each input is read, or
// refused by a UserError. tests/fuzz/run, with sanitizers and guided by what code an input reaches, looks further.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/format.h"
#include "fuzz_readers.h"  // kFuzzReaders: name and function of each target (tests/CMakeLists.txt)
#include "tests/support/long_version.h"

namespace espalier::test {
namespace corpus_test {

// A bit, a byte, the end, or a piece that comes twice.
std::string changed(std::string input, std::mt19937& random) {
  if (input.empty()) return std::string(1, static_cast<char>(random()));
  const size_t at = random() % input.size();
  switch (random() % 4) {
    case 0: input[at] = static_cast<char>(input[at] ^ (1 << random() % 8)); break;
    case 1: input[at] = static_cast<char>(random()); break;
    case 2: input.resize(at); break;
    default: input.insert(at, input.substr(at, 1 + random() % 16));
  }
  return input;
}

class Corpus : public testing::TestWithParam<FuzzReader> {};

TEST_P(Corpus, IsReadOrRefusedWithAReason) {
  const auto try_input = [](const std::string& input) {
    GetParam().try_input(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  };
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(concat("tests/fuzz/corpus/", GetParam().name)))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  ASSERT_FALSE(files.empty());
  const int changes = in_suite_or_all(300, 3000);
  std::mt19937 random(1);
  for (const std::filesystem::path& file : files) {
    std::string input = read_file(file);
    EXPECT_NO_THROW(try_input(input)) << file;
    for (int number = 0; number < changes; ++number) {
      // Now and then from the input itself, else from what it has become.
      input = number % 8 == 0 ? changed(read_file(file), random) : changed(input, random);
      EXPECT_NO_THROW(try_input(input)) << file << " changed " << number + 1 << " times";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Corpus, testing::ValuesIn(kFuzzReaders),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace corpus_test
}  // namespace espalier::test
