#include "store/safetensors.h"

#include "store/internal/test_folder.h"

namespace espalier::store {
namespace {

using test::error_of;
using test::write_text;

// A file by hand: length, header, data.
std::string file_bytes(const std::string& header, const std::string& data) {
  std::string length(8, '\0');
  for (size_t byte = 0; byte < 8; ++byte) length[byte] = static_cast<char>(header.size() >> (8 * byte));
  return length + header + data;
}

class Safetensors : public test::TestFolder {
 protected:
  // The error without the path in front.
  std::string refusal(const std::string& header, const std::string& data) {
    return refusal_of(file_bytes(header, data));
  }
  std::string refusal_of(const std::string& bytes) {
    const std::filesystem::path path = folder_ / "bad.safetensors";
    write_text(path, bytes);
    const std::string message = error_of([&] { SafetensorsFile file(path); });
    const std::string prefix = path.string() + ": ";
    EXPECT_EQ(message.substr(0, prefix.size()), prefix);
    return message.substr(std::min(prefix.size(), message.size()));
  }
};

TEST_F(Safetensors, AFileMadeByHandIsReadAsItsHeaderSays) {
  const std::filesystem::path path = folder_ / "hand.safetensors";
  write_text(path, file_bytes(R"({"b":{"dtype":"I16","shape":[2],"data_offsets":[4,8]},)"
                              R"("__metadata__":{"format":"pt"},)"
                              R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                              R"("e":{"dtype":"BOOL","shape":[3,0],"data_offsets":[8,8]}}   )",
                              std::string("\x00\x00\x80\x3f\x05\x00\xff\xff", 8)));
  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries()[0].name, "a");  // in the order of the data
  EXPECT_EQ(file.entries()[1].name, "b");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  float one;
  std::memcpy(&one, file.data(*file.find("a")), 4);
  EXPECT_EQ(one, 1.0f);
  EXPECT_EQ(file.data(*file.find("b"))[0], 5);
  EXPECT_EQ(file.find("b")->dtype, DType::kInt16);
  EXPECT_EQ(file.find("e")->shape, (std::vector<int64_t>{3, 0}));
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST_F(Safetensors, AHeaderThatWasWrittenIsAlignedAndReadsBack) {
  std::vector<TensorEntry> entries = {{.name = "x \"quoted\"", .dtype = DType::kBFloat16, .shape = {7, 33}},
                                      {.name = "y", .dtype = DType::kFloat64, .shape = {}}};
  const std::string header = safetensors_header(entries, {{"format", "pt"}});
  EXPECT_EQ(header.size() % 64, 0u);
  EXPECT_EQ(entries[1].begin, 7 * 33 * 2);
  EXPECT_EQ(entries[1].end, 7 * 33 * 2 + 8);
  const std::filesystem::path path = folder_ / "written.safetensors";
  write_text(path, header + std::string(7 * 33 * 2 + 8, 'x'));
  const SafetensorsFile file(path);
  EXPECT_EQ(file.data_offset(), static_cast<int64_t>(header.size()));
  EXPECT_EQ(file.find("x \"quoted\"")->shape, (std::vector<int64_t>{7, 33}));
  EXPECT_EQ(file.find("y")->begin, 7 * 33 * 2);
}

TEST_F(Safetensors, AFileThatIsCutOffIsRefusedWhereverItEnds) {
  EXPECT_EQ(refusal_of(""), "header length: expected 8 bytes, file has 0; not a safetensors file");
  EXPECT_EQ(refusal_of("1234567"), "header length: expected 8 bytes, file has 7; not a safetensors file");
  EXPECT_EQ(refusal_of(std::string("\x10\0\0\0\0\0\0\0{}", 10)),
            "header: expected 16 bytes after the length, file has 2; it is cut off");
  EXPECT_EQ(
      refusal(
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
          "12345"),
      "data: expected 7 bytes, found 5; cut off in tensor 'b' (3 to 7)");
}

TEST_F(Safetensors, APointerOfGitLfsIsNamed) {
  const std::filesystem::path path = folder_ / "model.safetensors";
  write_text(path, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21\nsize 987654321\n");
  try {
    const SafetensorsFile file(path);
    FAIL() << "a pointer was read";
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()),
              "'" + path.string() +
                  "' is a pointer of Git LFS to a file of 987654321 bytes, which was not fetched. Run " +
                  "'git lfs pull' in its repository, or download the file itself.");
    EXPECT_EQ(error.code(), ExitCode::kBadData);
  }
}

TEST_F(Safetensors, AFileThatIsTooLongIsRefused) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "1234"),
            "data: expected 3 bytes, found 4; too long");
  EXPECT_EQ(refusal("{}", "1"), "data: expected 0 bytes, found 1; too long");
}

TEST_F(Safetensors, AHeaderThatIsNoneIsRefused) {
  EXPECT_EQ(refusal_of(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)),
            "header length: expected at most 100000000, found 9223372036854775807; not a safetensors file, or damaged");
  EXPECT_EQ(refusal("[1]", ""), "header: expected a JSON object, found array");
  EXPECT_NE(refusal("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}", "")
                .find("lists and objects nest more than 64 deep"),
            std::string::npos);
  EXPECT_NE(refusal("{\"a\":", "").find("header: expected JSON, found "), std::string::npos);
  EXPECT_EQ(refusal(R"({"__metadata__":{"n":1}})", ""), "__metadata__: 'n': expected text, found 1");
  EXPECT_EQ(
      refusal(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          "1"),
      "header: tensor 'a' occurs twice");
}

TEST_F(Safetensors, TensorsThatOverlapOrLeaveAHoleAreRefused) {
  EXPECT_EQ(
      refusal(
          R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          "1234"),
      "tensor 'b': overlaps 'a': expected to begin at 3, found 2");
  EXPECT_EQ(
      refusal(
          R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
          "123"),
      "tensor 'b': hole after 'a': expected to begin at 1, found 2");
  EXPECT_EQ(refusal(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})", "123"),
            "tensor 'b': hole after the start: expected to begin at 0, found 2");
}

TEST_F(Safetensors, FieldsAreRefusedWithWhatWasExpectedAndFound) {
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", "1"),
            "tensor 'a': dtype: expected one of F32, F16, BF16, F64, I64, I32, I16, I8, U8, BOOL, found 'F8_E4M3'");
  EXPECT_EQ(refusal(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", "1"),
            "tensor 'a': dtype: expected a type name, found nothing");
  EXPECT_EQ(refusal(R"({"a":3})", "1"), "tensor 'a': dtype: expected a type name, found nothing");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "1"),
            "tensor 'a': shape: expected a list of sizes, found [-1]");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "1"),
            "tensor 'a': data_offsets: expected [begin, end], found [0]");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", std::string(20, 'x')),
            "tensor 'a': data_offsets: expected 24 bytes for F32 [2,3], found 20 (0 to 20)");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", ""),
            "tensor 'a': shape: [4611686018427387904,4] is more than 2^63 bytes");
}

TEST_F(Safetensors, AFileThatDoesNotExistIsNamed) {
  EXPECT_EQ(error_of([&] { SafetensorsFile file(folder_ / "none"); }),
            "cannot open '" + (folder_ / "none").string() + "': No such file or directory");
}

}  // namespace
}  // namespace espalier::store
