// Pickles written by hand to do harm: each must end in a refusal that says what is wrong.
#include "store/internal/test_folder.h"
#include "store/torch_file.h"

namespace espalier::store::torch_file_hostile_test {
namespace {

using std::string_literals::operator""s;

class HostilePickle : public test::TestFolder {
 protected:
  // The steps as the value of a file of the format before torch 1.6, with `storages` after them.
  std::string refusal(const std::string& steps, const std::string& storages = "\x80\x02].") {
    const std::string start = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s + "\x80\x02M\xe9\x03."s +
                              "\x80\x02}X\x0d\0\0\0little_endian\x88s."s;
    test::write_text(folder_ / "bad.pt", start + "\x80\x02" + steps + storages);
    const std::string message = test::error_of([&] { read_torch_file(folder_ / "bad.pt"); });
    return message == "no error" ? message : message.substr(message.find(": ") + 2);
  }
};

// A tensor of 4 rows of stride 2 from element `first` on of a storage of 7 floats, and that storage.
std::string tensor(char first) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0aX\3\0\0\0cpuK\7NtQK"s +
         first + "K\4\x85K\2\x85\x89NtR."s;
}
const std::string kStorage = "\x80\x02]X\1\0\0\0aa."s + "\7\0\0\0\0\0\0\0"s + std::string(28, 'x');

TEST_F(HostilePickle, TensorsBeyondTheirStorage) {
  EXPECT_EQ(refusal(tensor(0), kStorage), "no error");
  EXPECT_NE(
      refusal(tensor(1), kStorage).find("expected a tensor within its storage of 7 elements, found elements 1 to 7"),
      std::string::npos);
  EXPECT_NE(refusal(tensor(0), kStorage.substr(0, kStorage.size() - 1)).find("expected 28 bytes at byte "),
            std::string::npos);
  EXPECT_NE(refusal(tensor(0), kStorage + "x").find("found 1 more bytes"), std::string::npos);
}

TEST_F(HostilePickle, ListsThatDoubleThirtyTimes) {
  std::string steps = "]q\0"s;
  for (int level = 0; level < 30; ++level) steps += "0](h\0h\0eq\0"s;
  EXPECT_EQ(refusal(steps + "."), "expected at most 16777216 values, found more");
}

TEST_F(HostilePickle, AMillionLevelsThatAreBuiltAndThrownAway) {
  constexpr size_t kLevels = 1'000'000;
  EXPECT_EQ(refusal(std::string(kLevels + 1, ']') + std::string(kLevels, 'a') + "0N."), "no error");
  EXPECT_EQ(refusal(std::string(kLevels + 1, ']') + std::string(kLevels, 'a') + "."),
            "expected at most 100 levels of values, found more");
}

TEST_F(HostilePickle, ArgumentsThatAreCopiedAgainAndAgain) {
  std::string steps = "c__builtin__\nbytes\nq\0B\0\0\x10\0"s + std::string(1 << 20, 'x') + "\x85q\1"s;
  for (int call = 0; call < 1000; ++call) steps += "0h\0h\1R"s;
  EXPECT_NE(refusal(steps + ".").find("expected calls with arguments of their own"), std::string::npos);
}

TEST_F(HostilePickle, StepsThatFindNothingOrAreNone) {
  EXPECT_NE(refusal("h\5."s).find("expected a value that was kept before, found number 5"), std::string::npos);
  EXPECT_NE(refusal("R.").find("expected 2 values before this step of the pickle, found 0"), std::string::npos);
  EXPECT_NE(refusal("e.").find("expected a mark before this step of the pickle, found none"), std::string::npos);
  EXPECT_NE(refusal("S'a'\n.").find("expected a step of a pickle as torch.save writes it, found byte 83"),
            std::string::npos);
  EXPECT_NE(refusal("X\xff\xff\xff\x7f"s).find("expected 2147483647 more bytes, found the end after "),
            std::string::npos);
  EXPECT_NE(refusal("c__builtin__\ngetattr\nctorch\nTensor\nX\1\0\0\0T\x86R."s)
                .find("expected a member of an enum of checkpoints, found str 'T' of torch.Tensor"),
            std::string::npos);
}

}  // namespace
}  // namespace espalier::store::torch_file_hostile_test
