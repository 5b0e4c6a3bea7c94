#include "store/manifest.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/hash.h"
#include "store/internal/test_folder.h"

namespace espalier::store {
namespace {

using test::error_of;

Manifest example() {
  Manifest manifest;
  manifest.model = {
      .family = "gpt", .compute_type = "bf16", .vocab_size = 50257, .padded_vocab_size = 50304, .num_parameters = 7};
  manifest.state.step = 1000;
  manifest.state.consumed_train_tokens = (int64_t{1} << 53) + 1;  // more than a double holds
  manifest.state.loss_scale = 0.1;
  manifest.state.transport = "a \"quoted\" word";
  manifest.config = "[model]\nname = \"é\\n\"\n";
  manifest.files = {
      {.path = "weights-final.safetensors", .bytes = 192, .hashed_bytes = 128, .checksum = 0xfedcba9876543210}};
  manifest.tensors = {{.name = "w",
                       .dtype = DType::kBFloat16,
                       .shape = {4, 8},
                       .file = "weights-final.safetensors",
                       .blocks = {{0, 60, 1}, {60, 4, 0xffffffffffffffff}}}};
  return manifest;
}

// The same text with another value, and a checksum that fits it.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = to_json(example());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const size_t digits = text.find("\"checksum\": \"") + 13;
  text.replace(digits, 16, "0000000000000000");
  return text.replace(digits, 16, hex64(hash64(text)));
}

std::string refusal(const std::string& text) {
  return error_of([&] { manifest_from_json(text, "manifest.json"); });
}

TEST(ManifestFile, EveryFieldSurvivesToTheBit) {
  const Manifest read = manifest_from_json(to_json(example()), "manifest.json");
  EXPECT_EQ(read.model.padded_vocab_size, 50304);
  EXPECT_EQ(read.state.consumed_train_tokens, (int64_t{1} << 53) + 1);
  EXPECT_EQ(read.state.loss_scale, 0.1);
  EXPECT_EQ(read.state.transport, "a \"quoted\" word");
  EXPECT_EQ(read.config, example().config);
  EXPECT_EQ(read.files[0].checksum, 0xfedcba9876543210u);
  EXPECT_EQ(read.tensors[0].shape, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(read.tensors[0].blocks[1].checksum, 0xffffffffffffffffu);
  EXPECT_EQ(to_json(read), to_json(example()));
}

TEST(ManifestFile, EveryDoubleSurvives) {
  for (const double value : {1.0 / 3.0, 5e-324, 1.7976931348623157e308}) {
    Manifest manifest = example();
    manifest.state.loss_scale = value;
    EXPECT_EQ(manifest_from_json(to_json(manifest), "manifest.json").state.loss_scale, value);
  }
}

TEST(ManifestFile, AnyBitThatIsFlippedIsNoticed) {
  const std::string text = to_json(example());
  for (size_t byte = 0; byte < text.size(); ++byte) {
    std::string damaged = text;
    damaged[byte] ^= static_cast<char>(1 << (byte % 8));
    EXPECT_NE(refusal(damaged), "no error") << "byte " << byte << " of " << text.substr(byte, 20);
  }
}

TEST(ManifestFile, ACutManifestIsRefusedAtAnyLength) {
  const std::string text = to_json(example());
  for (size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(refusal(text.substr(0, length)), "no error") << length;
}

TEST(ManifestFile, OtherFormatsAndNewerVersionsAreNamed) {
  EXPECT_EQ(refusal(edited("espalier-checkpoint", "other")),
            "manifest.json: format: expected 'espalier-checkpoint', found 'other'");
  EXPECT_EQ(
      refusal(edited("\"version\": 1", "\"version\": 2")),
      "manifest.json: version: this program reads 1 to 1, found 2; use the release that wrote it, or a newer one");
}

TEST(ManifestFile, FieldsThatAreMissingUnknownOrOfAnotherKindAreNamed) {
  EXPECT_EQ(refusal(edited("\"step\":1000", "\"step\":\"1000\"")),
            "manifest.json: state.step: expected an integer, found \"1000\"");
  EXPECT_EQ(refusal(edited("\"step\":1000,", "")), "manifest.json: state.step: expected a value, found nothing");
  EXPECT_EQ(refusal(edited("\"step\":1000", "\"step\":1000,\"future\":1")),
            "manifest.json: state.future: not known to format version 1");
  EXPECT_EQ(refusal(edited("\"dtype\":\"BF16\"", "\"dtype\":\"F4\"")),
            "manifest.json: tensor 'w'.dtype: expected a type of safetensors, found 'F4'");
  EXPECT_EQ(refusal(edited("[60,4,", "[61,3,")),
            "manifest.json: tensor 'w'.blocks: expected a block at byte 60, found 3 bytes at 61");
  EXPECT_EQ(refusal(edited("[4,8]", "[5,8]")), "manifest.json: tensor 'w'.blocks: expected 80 bytes in all, found 64");
  EXPECT_EQ(refusal(edited("fedcba9876543210", "xedcba9876543210")),
            "manifest.json: files.xxh3: expected 16 hexadecimal digits, found 'xedcba9876543210'");
}

// Each would be read silently, and overflow later or name a folder that nobody finds.
TEST(ManifestFile, CountsThatNoRunCanHaveAreRefused) {
  const std::string huge = "4611686018427387904";  // 2^62
  for (const std::string field : {"step", "consumed_train_samples", "scheduler_samples", "optimizer_steps"}) {
    const std::string value = field == "step" ? "1000" : "0";
    const auto with = [&](const std::string& found) {
      return refusal(edited("\"" + field + "\":" + value, "\"" + field + "\":" + found));
    };
    EXPECT_EQ(with("-1"), "manifest.json: state." + field + ": expected 0 to 1000000000000000, found -1");
    EXPECT_EQ(with(huge), "manifest.json: state." + field + ": expected 0 to 1000000000000000, found " + huge);
    EXPECT_EQ(with("18446744073709551615"),
              "manifest.json: state." + field + ": expected less than 2^63, found 18446744073709551615");
  }
  EXPECT_EQ(refusal(edited("\"num_parameters\":7", "\"num_parameters\":-1")),
            "manifest.json: model.num_parameters: expected 0 to 1000000000000000, found -1");
  EXPECT_EQ(refusal(edited("\"consumed_train_tokens\":9007199254740993", "\"consumed_train_tokens\":" + huge)),
            "manifest.json: state.consumed_train_tokens: expected 0 to 1152921504606846976, found " + huge);
  EXPECT_EQ(refusal(edited("\"loss_scale_hysteresis_tracker\":0", "\"loss_scale_hysteresis_tracker\":-2")), "no error");
  EXPECT_EQ(refusal(edited("\"loss_scale\":0.1", "\"loss_scale\":\"nan\"")),
            "manifest.json: state.loss_scale: expected a number, found \"nan\"");
}

TEST(ManifestFile, SizesThatOverflowAreRefused) {
  EXPECT_EQ(refusal(edited("\"shape\":[4,8]", "\"shape\":[4294967296,4294967296]")),
            "manifest.json: tensor 'w'.shape: expected at most 1152921504606846976 bytes, found "
            "[4294967296,4294967296]");
  EXPECT_EQ(refusal(edited("\"shape\":[4,8]", "\"shape\":[-4,-8]")),
            "manifest.json: tensor 'w'.shape: expected sizes, found -4");
  EXPECT_NE(refusal(edited("[60,4,", "[60,9223372036854775807,")), "no error");
  EXPECT_EQ(refusal(edited("\"bytes\":192", "\"bytes\":191")),
            "manifest.json: files: 'weights-final.safetensors' is 1 bytes too short for its tensors up to 'w'");
  EXPECT_NE(refusal(edited("\"bytes\":192", "\"bytes\":9223372036854775807")), "no error");
}

// With a checksum that fits, as whoever makes it on purpose gives it.
TEST(ManifestFile, OneThatIsNestedWithoutEndIsRefused) {
  for (const char* text_there : {"\"step\":1000", "\"shape\":[4,8]", "[60,4,\"ffffffffffffffff\"]"}) {
    const std::string where = text_there;
    const std::string key = where.substr(0, where.find(':') + 1);
    const std::string text = edited(where, key + std::string(100'000, '[') + std::string(100'000, ']'));
    EXPECT_NE(refusal(text).find("lists and objects nest more than 64 deep"), std::string::npos) << where;
  }
}

TEST(ManifestFile, AConfigurationThatIsNoUtf8IsSavedAllTheSame) {
  Manifest manifest = example();
  manifest.config = "data_path = '\xff'\n";
  EXPECT_EQ(manifest_from_json(to_json(manifest), "manifest.json").config, "data_path = '\xef\xbf\xbd'\n");
}

TEST(ManifestFile, APathThatLeavesTheFolderIsRefused) {
  EXPECT_EQ(refusal(edited("\"path\":\"weights-final", "\"path\":\"../weights-final")),
            "manifest.json: files.path: expected a path inside the checkpoint, found '../weights-final.safetensors'");
}

TEST(ManifestFile, ChecksumsAreThoseOfXxh3) {
  // XXH3_64bits("") and of "a", as the algorithm's published test vectors and its Python binding give them.
  EXPECT_EQ(hex64(hash64(std::string())), "2d06800538d394c2");
  EXPECT_EQ(hex64(hash64(std::string("a"))), "e6c632b61e964e1f");
}

}  // namespace
}  // namespace espalier::store
