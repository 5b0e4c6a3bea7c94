#include "store/torch_file_writer.h"

#include <cstdlib>

#include "store/internal/described_torch_value.h"
#include "store/internal/test_folder.h"
#include "store/torch_file.h"

namespace espalier::store::torch_file_writer_test {
namespace {

using test::described;
using test::error_of;

const std::filesystem::path kFolder = "tests/data/torch_files";

class TorchFileWriter : public test::TestFolder {};

// With ESPALIER_WRITTEN_TORCH_FILES the files stay in that folder, where tests/oracle/torch_files_oracle.py gives them
// to torch.load.
TEST_F(TorchFileWriter, WhatWasReadIsWrittenAgainWithTheSameValues) {
  const char* kept = std::getenv("ESPALIER_WRITTEN_TORCH_FILES");
  const std::filesystem::path folder = kept == nullptr ? folder_ : std::filesystem::path(kept);
  for (const char* name : {"small.pt", "types.pt", "views.pt", "objects.pt"}) {
    const TorchValue root = read_torch_file(kFolder / name);
    write_torch_file(folder / name, root);
    const TorchValue again = read_torch_file(folder / name);
    EXPECT_EQ(described(again).dump(), described(root).dump()) << name;
    EXPECT_FALSE(std::filesystem::exists(folder / (std::string(name) + ".tmp")));
  }
}

TEST_F(TorchFileWriter, TensorsAreAlignedAndStoredOnceWhereTheyAreShared) {
  const std::vector<float> numbers = {1, 2, 3, 4, 5, 6, 7};
  const TorchValue tensor = TorchValue::tensor(source_of(DType::kFloat32, {7}, numbers.data()));
  write_torch_file(folder_ / "made.pt", TorchValue::ordered_dict({{TorchValue::string("a"), tensor},
                                                                  {TorchValue::string("b"), tensor},
                                                                  {TorchValue::integer(2), TorchValue::size({7})}}));
  const TorchValue root = read_torch_file(folder_ / "made.pt");
  EXPECT_EQ(root.class_name(), "collections.OrderedDict");
  EXPECT_EQ(root.at("a").view().offset % 64, 0);
  EXPECT_EQ(root.at("a").view().offset, root.at("b").view().offset);
  EXPECT_EQ(root.find(2)->as_ints("size"), std::vector<int64_t>{7});
  std::vector<float> found(7);
  TensorReader(root.at("b").view()).read(found.data());
  EXPECT_EQ(found, numbers);
}

TEST_F(TorchFileWriter, AFolderThatDoesNotExistIsNamed) {
  EXPECT_EQ(error_of([&] { write_torch_file(folder_ / "none" / "a.pt", TorchValue()); }),
            "cannot create '" + (folder_ / "none" / "a.pt.tmp").string() + "': No such file or directory");
}

TEST_F(TorchFileWriter, AFailureOfASourceLeavesNoFile) {
  const TensorSource broken = {DType::kUInt8, {1}, [](const ByteSink&) { throw UserError("no disk"); }};
  EXPECT_EQ(error_of([&] { write_torch_file(folder_ / "a.pt", TorchValue::tensor(broken)); }), "no disk");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace espalier::store::torch_file_writer_test
