#include "store/torch_file.h"

#include <nlohmann/json.hpp>

#include "store/internal/described_torch_value.h"
#include "store/internal/test_folder.h"

namespace espalier::store::torch_file_test {
namespace {

using nlohmann::json;
using test::described;
using test::error_of;
using test::write_text;
using Kind = TorchValue::Kind;

const std::filesystem::path kFolder = "tests/data/torch_files";  // tests/oracle/torch_files_oracle.py

// Each value of the dict by itself, so that a difference has a name.
void expect_same(const std::string& file, const std::string& expected_name) {
  const json expected = json::parse(read_file(kFolder / "expected.json")).at(expected_name);
  const json found = described(read_torch_file(kFolder / file));
  ASSERT_EQ(found.at("dict").size(), expected.at("dict").size());
  for (size_t i = 0; i < expected["dict"].size(); ++i) {
    EXPECT_EQ(found["dict"][i].dump(), expected["dict"][i].dump()) << file;
  }
}

std::string refusal_of(const std::string& file) {
  const std::string message = error_of([&] { read_torch_file(kFolder / file); });
  const std::string prefix = (kFolder / file).string() + ": ";
  EXPECT_EQ(message.substr(0, prefix.size()), prefix);
  return message.substr(std::min(prefix.size(), message.size()));
}

class TorchFile : public test::TestFolder {};

TEST_F(TorchFile, AllTypesAndSizesAreReadFromBothFormats) {
  expect_same("types.pt", "types");
  expect_same("types_old.pt", "types");
}

TEST_F(TorchFile, ViewsOfSharedStoragesAreReadFromBothFormats) {
  expect_same("views.pt", "views");
  expect_same("views_old.pt", "views");
  const TorchValue root = read_torch_file(kFolder / "views.pt");
  EXPECT_EQ(root.at("base").view().offset, root.at("transposed").view().offset);
  EXPECT_EQ(root.at("rows").view().offset, root.at("base").view().offset + int64_t{2} * 33 * 4);
  EXPECT_TRUE(root.at("rows").view().contiguous());
  EXPECT_FALSE(root.at("columns").view().contiguous());
  EXPECT_TRUE(root.at("base").is(root.at("same")));
}

TEST_F(TorchFile, ValuesAndClassesOfCheckpointsAreReadFromAllProtocols) {
  for (const char* file : {"objects.pt", "objects_old.pt", "objects_protocol3.pt", "objects_protocol5.pt"})
    expect_same(file, "objects");
}

TEST_F(TorchFile, ValuesAreTakenByNameAndTheirTypesChecked) {
  const TorchValue root = read_torch_file(kFolder / "objects.pt");
  EXPECT_EQ(root.at("namespace").at("num_layers").as_int("num_layers"), 4);
  EXPECT_EQ(root.at("size").as_ints("size"), (std::vector<int64_t>{7, 33}));
  EXPECT_EQ(root.find(3)->as_string("3"), "int key");
  EXPECT_EQ(root.find("absent"), nullptr);
  EXPECT_EQ(error_of([&] { root.at("namespace").at("num_layer"); }),
            "object of argparse.Namespace has no 'num_layer'; nearest is 'num_layers'");
  EXPECT_EQ(error_of([&] { root.at("text").as_int("args.x"); }),
            "args.x: expected an int, found str 'caf\u00e9 \u4f60 \U0001f600'");
  EXPECT_EQ(error_of([&] { root.at("true").as_int("x"); }), "x: expected an int, found True");
  EXPECT_EQ(error_of([&] { root.at("size").as_view("x"); }), "x: expected a tensor, found torch.Size of 2");
}

TEST_F(TorchFile, AStateDictGivesItsTensors) {
  const auto tensors = read_torch_state_dict(kFolder / "views.pt");
  EXPECT_EQ(tensors.size(), 15u);
  EXPECT_EQ(error_of([] { read_torch_state_dict(kFolder / "small.pt"); }),
            "tests/data/torch_files/small.pt: 'step': expected a tensor, found int 3");
}

TEST_F(TorchFile, WhatWouldRunIsRefusedByItsName) {
  const std::string message = refusal_of("refused_os_system.pt");
  EXPECT_TRUE(message.starts_with("byte ")) << message;
  EXPECT_NE(
      message.find(": expected a class that checkpoints hold, found the global 'posix.system', which is not accepted "
                   "(and nothing of it is run)"),
      std::string::npos)
      << message;
  EXPECT_NE(refusal_of("refused_old_os_system.pt").find("'posix.system'"), std::string::npos);
  EXPECT_NE(refusal_of("refused_class.pt").find("'somebody.model.Net'"), std::string::npos);
  EXPECT_NE(refusal_of("refused_complex.pt").find("'torch.ComplexFloatStorage'"), std::string::npos);
  EXPECT_NE(refusal_of("refused_sparse.pt").find("'torch._utils._rebuild_sparse_tensor'"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists("torch_file_ran_this"));
}

TEST_F(TorchFile, ValuesWithoutEndAreRefused) {
  EXPECT_EQ(refusal_of("refused_loop.pt"), "expected a tree of values, found a list of 2 that contains itself");
  EXPECT_EQ(refusal_of("refused_deep.pt"), "expected at most 100 levels of values, found more");
  EXPECT_NE(refusal_of("refused_int.pt").find("expected an int of at most 64 bits, found one of 9 bytes"),
            std::string::npos);
}

TEST_F(TorchFile, ContainersThatTorchDoesNotWriteAreRefused) {
  EXPECT_NE(refusal_of("refused_compressed.pt").find("expected stored content, found compression method 8"),
            std::string::npos);
  EXPECT_EQ(refusal_of("refused_big_endian.pt"), "byteorder: expected little, found big");
  EXPECT_EQ(refusal_of("refused_no_storage.pt"), "expected the storage 'small/data/0', found none");
  EXPECT_EQ(refusal_of("refused_short_storage.pt"), "storage 'small/data/0': expected 28 bytes for 7 of F32, found 24");
  write_text(folder_ / "empty", "");
  EXPECT_EQ(error_of([&] { read_torch_file(folder_ / "empty"); }),
            (folder_ / "empty").string() + ": expected a file of torch.save, found an empty file");
  write_text(folder_ / "lfs", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_NE(error_of([&] { read_torch_file(folder_ / "lfs"); }).find("git lfs pull"), std::string::npos);
  EXPECT_EQ(error_of([&] { read_torch_file(folder_ / "none"); }),
            "cannot open '" + (folder_ / "none").string() + "': No such file or directory");
}

TEST_F(TorchFile, AFileThatIsCutOffIsRefusedWhereverItEnds) {
  for (const char* name : {"small.pt", "small_old.pt"}) {
    const std::string whole = read_file(kFolder / name);
    for (size_t size = 0; size < whole.size(); ++size) {
      write_text(folder_ / "cut", whole.substr(0, size));
      ASSERT_NE(error_of([&] { read_torch_file(folder_ / "cut"); }), "no error") << name << " of " << size;
    }
  }
}

// A wrong byte gives an error, or another value of a tree that can be read.
TEST_F(TorchFile, NoFlippedBitIsMoreThanAnErrorOrAnotherValue) {
  for (const char* name : {"small.pt", "small_old.pt"}) {
    const std::string whole = read_file(kFolder / name);
    int64_t refused = 0;
    for (size_t bit = 0; bit < 8 * whole.size(); bit += 13) {
      std::string changed = whole;
      changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
      write_text(folder_ / "changed", changed);
      refused += error_of([&] { described(read_torch_file(folder_ / "changed")); }) != "no error";
    }
    EXPECT_GT(refused, static_cast<int64_t>(whole.size()) / 13) << name;
  }
}

TEST_F(TorchFile, ADamagedPickleOfAZipFileDoesNotPassForAnotherValue) {
  std::string changed = read_file(kFolder / "small.pt");
  const size_t step = changed.find("step");
  ASSERT_NE(step, std::string::npos);
  changed[step] = 'S';
  write_text(folder_ / "changed", changed);
  EXPECT_NE(error_of([&] { read_torch_file(folder_ / "changed"); }).find("data.pkl: expected checksum "),
            std::string::npos);
}

}  // namespace
}  // namespace espalier::store::torch_file_test
