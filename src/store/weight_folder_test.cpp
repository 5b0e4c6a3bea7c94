#include "store/weight_folder.h"

#include <nlohmann/json.hpp>

#include "store/internal/test_folder.h"

namespace espalier::store::weight_folder_test {
namespace {

using test::error_of;
using test::write_text;

class WeightFolder : public test::TestFolder {
 protected:
  // Tensors of 28, 4, 0 and 132 bytes, each byte the number of its tensor.
  std::vector<std::pair<std::string, TensorSource>> tensors() {
    contents_ = {std::string(28, '\0'), std::string(4, '\1'), "", std::string(132, '\3')};
    return {{"b", source_of(DType::kFloat32, {7}, contents_[0].data())},
            {"a", source_of(DType::kInt16, {1, 2}, contents_[1].data())},
            {"none", source_of(DType::kFloat64, {0, 3}, contents_[2].data())},
            {"large", source_of(DType::kBFloat16, {33, 2}, contents_[3].data())}};
  }

  void expect_read_back() {
    const auto views = open_weights(folder_);
    ASSERT_EQ(views.size(), 4u);
    for (const auto& [name, source] : tensors()) {
      const TensorView& view = views.at(name);
      EXPECT_EQ(view.shape, source.shape) << name;
      EXPECT_EQ(view.dtype, source.dtype) << name;
      std::string bytes(static_cast<size_t>(view.num_bytes()), 'x'), expected;
      TensorReader(view).read(bytes.data());
      source.produce([&](const void* data, size_t size) { expected.append(static_cast<const char*>(data), size); });
      EXPECT_EQ(bytes, expected) << name;
    }
  }

  std::string refusal() {
    const std::string message = error_of([&] { open_weights(folder_); });
    const std::string prefix = folder_.string() + "/";
    std::string without;
    for (size_t at = 0; at < message.size();) {
      const bool here = message.compare(at, prefix.size(), prefix) == 0;
      if (here) at += prefix.size();
      if (at < message.size()) without += message[at++];
    }
    return without;
  }

  void write_index(const std::string& weight_map) {
    write_text(folder_ / "model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + weight_map + "}");
  }

  std::vector<std::string> contents_;
};

TEST_F(WeightFolder, OneFileIsWrittenWhenAllFits) {
  EXPECT_EQ(write_weights(folder_, tensors(), 164), std::vector<std::string>{"model.safetensors"});
  expect_read_back();
  EXPECT_EQ(SafetensorsFile(folder_ / "model.safetensors").metadata().at("format"), "pt");
}

TEST_F(WeightFolder, ShardsAreFilledInOrderAndListed) {
  const std::vector<std::string> expected = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                                             "model.safetensors.index.json"};
  EXPECT_EQ(write_weights(folder_, tensors(), 40), expected);
  expect_read_back();
  const auto index = nlohmann::json::parse(read_file(folder_ / expected[2]));
  EXPECT_EQ(index.at("metadata").at("total_size"), 28 + 4 + 132);
  EXPECT_EQ(index.at("weight_map").at("none"), expected[0]);
  EXPECT_EQ(index.at("weight_map").at("large"), expected[1]);
  EXPECT_EQ(index.at("weight_map").size(), 4u);
  EXPECT_FALSE(std::filesystem::exists(folder_ / (expected[0] + ".tmp")));
}

TEST_F(WeightFolder, NothingIsWrittenOverWeights) {
  write_text(folder_ / "pytorch_model.bin", "");
  EXPECT_EQ(error_of([&] { write_weights(folder_, tensors(), 164); }),
            folder_.string() + ": expected no weights yet, found pytorch_model.bin. Choose another folder");
}

TEST_F(WeightFolder, AFileOfTorchIsReadWhereThereAreNoSafetensors) {
  std::filesystem::copy_file("tests/data/torch_files/views_old.pt", folder_ / "pytorch_model.bin");
  EXPECT_EQ(open_weights(folder_).at("columns").shape, (std::vector<int64_t>{7, 4}));
  std::filesystem::rename(folder_ / "pytorch_model.bin", folder_ / "shard.bin");
  write_text(folder_ / "pytorch_model.bin.index.json", R"({"weight_map":{"columns":"shard.bin"}})");
  EXPECT_EQ(open_weights(folder_).at("columns").shape, (std::vector<int64_t>{7, 4}));
}

TEST_F(WeightFolder, AFolderWithoutWeightsSaysWhatWouldBeTaken) {
  EXPECT_EQ(error_of([&] { open_weights(folder_); }),
            folder_.string() +
                ": expected model.safetensors, model.safetensors.index.json, pytorch_model.bin or "
                "pytorch_model.bin.index.json, found none of them");
}

TEST_F(WeightFolder, ShardsThatAreMissingAreAllNamed) {
  write_index(R"({"a":"x.safetensors","b":"y.safetensors"})");
  const std::string message = refusal();
  EXPECT_NE(message.find("expected the file 'x.safetensors' next to it, found none"), std::string::npos) << message;
  EXPECT_NE(message.find("expected the file 'y.safetensors' next to it, found none"), std::string::npos) << message;
}

TEST_F(WeightFolder, NamesThatDoNotAgreeWithTheIndexAreNamed) {
  write_weights(folder_, tensors(), 40);
  const std::string one = "model-00001-of-00002.safetensors", two = "model-00002-of-00002.safetensors";
  write_index(R"({"a":")" + one + R"(","large":")" + one + R"(","c":")" + two + R"("})");
  const std::string message = refusal();
  EXPECT_NE(message.find("expected 'c' in '" + two + "', found none"), std::string::npos) << message;
  write_index(R"({"a":")" + one + R"(","large":")" + one + R"(","b":")" + two + R"("})");
  EXPECT_NE(refusal().find("expected 'large' in '" + one + "', found it in '" + two + "'"), std::string::npos);
  std::filesystem::copy_file(folder_ / one, folder_ / "copy.safetensors");
  write_index(R"({"a":")" + one + R"(","b":"copy.safetensors"})");
  EXPECT_NE(refusal().find("'a' is in both 'copy.safetensors' and '" + one + "'"), std::string::npos);
}

TEST_F(WeightFolder, AnIndexThatIsNoneIsRefused) {
  write_text(folder_ / "model.safetensors.index.json", "{");
  EXPECT_EQ(refusal().find("model.safetensors.index.json: expected JSON, found "), 0u);
  write_text(folder_ / "model.safetensors.index.json", "[]");
  EXPECT_EQ(refusal(), "model.safetensors.index.json: expected an object with a weight_map, found none");
  write_index(R"({"a":3})");
  EXPECT_EQ(refusal(), "model.safetensors.index.json: weight_map: 'a': expected a file name, found another type");
  write_index(R"({"a":"../x"})");
  EXPECT_EQ(refusal(),
            "model.safetensors.index.json: weight_map: 'a': expected the name of a file next to it, found '../x'");
  write_index(R"({"a":"x","a":"y"})");
  EXPECT_EQ(refusal(), "model.safetensors.index.json: 'a' occurs twice");
}

}  // namespace
}  // namespace espalier::store::weight_folder_test
