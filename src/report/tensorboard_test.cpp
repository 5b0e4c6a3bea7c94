#include "report/tensorboard.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "report/tensorboard_tags.h"

namespace espalier::report {
namespace tensorboard_test {

// A reader of its own, written from the descriptions of TFRecord and of protobuf's wire format; the files are also
// read by stock tensorboard in tests/oracle/tensorboard_oracle.py.

uint32_t crc32c_bit_by_bit(const std::string& bytes) {
  uint32_t remainder = 0xffffffff;
  for (const char byte : bytes) {
    remainder ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) remainder = remainder & 1 ? remainder >> 1 ^ 0x82f63b78 : remainder >> 1;
  }
  return ~remainder;
}

uint32_t masked(uint32_t crc) {
  return static_cast<uint32_t>(((crc >> 15 | static_cast<uint64_t>(crc) << 17) + 0xa282ead8) & 0xffffffff);
}

template <class Number>
Number raw(const std::string& bytes, size_t at) {
  Number value;
  EXPECT_LE(at + sizeof value, bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The payloads of the records: u64 length, u32 masked crc of the length, payload, u32 masked crc of the payload.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  size_t at = 0;
  while (at < file.size()) {
    const auto length = raw<uint64_t>(file, at);
    EXPECT_EQ(raw<uint32_t>(file, at + 8), masked(crc32c_bit_by_bit(file.substr(at, 8)))) << "length at byte " << at;
    if (at + 16 + length > file.size()) throw std::runtime_error("the last record is cut off");
    records.push_back(file.substr(at + 12, length));
    EXPECT_EQ(raw<uint32_t>(file, at + 12 + length), masked(crc32c_bit_by_bit(records.back())))
        << "record at byte " << at;
    at += 16 + length;
  }
  return records;
}

struct Field {
  uint64_t number = 0;  // of a varint
  std::string bytes;    // of the other wire types
};
using Message = std::multimap<int, Field>;

uint64_t varint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.at(at++));
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

Message parse(const std::string& bytes) {
  Message message;
  for (size_t at = 0; at < bytes.size();) {
    const uint64_t key = varint(bytes, at), type = key & 7;
    Field field;
    if (type == 0) {
      field.number = varint(bytes, at);
    } else {
      const size_t size = type == 1 ? 8 : type == 5 ? 4 : varint(bytes, at);
      if (size > bytes.size() - at) throw std::runtime_error("a field is cut off");
      field.bytes = bytes.substr(at, size);
      at += size;
    }
    message.emplace(static_cast<int>(key >> 3), field);
  }
  return message;
}

const Field& only(const Message& message, int field) {
  if (message.count(field) != 1)
    throw std::runtime_error(concat("field ", field, " occurs ", message.count(field), " times"));
  return message.find(field)->second;
}

struct Scalar {
  std::string tag;
  int64_t x = 0;
  float value = 0;
  bool operator==(const Scalar&) const = default;
};

class TensorBoard : public ::testing::Test {
 protected:
  TensorBoard() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() / concat("espalier-tensorboard-", info->name(), "-", ::getpid());
    std::filesystem::remove_all(folder_);
  }
  ~TensorBoard() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> only_file() const {
    std::vector<std::filesystem::path> files(std::filesystem::directory_iterator(folder_), {});
    EXPECT_EQ(files.size(), 1u);
    EXPECT_TRUE(files.at(0).filename().string().starts_with("events.out.tfevents.")) << files[0];
    return records_of(read_file(files[0]));
  }

  std::vector<Scalar> scalars() const {
    std::vector<Scalar> found;
    for (const std::string& record : only_file()) {
      const Message event = parse(record);
      if (!event.count(5)) continue;
      const Message value = parse(only(parse(only(event, 5).bytes), 1).bytes);
      if (!value.count(2)) continue;
      found.push_back(
          {only(value, 1).bytes, static_cast<int64_t>(only(event, 2).number), raw<float>(only(value, 2).bytes, 0)});
    }
    return found;
  }

  std::filesystem::path folder_;
};

TEST(TensorBoardReader, KnowsTheCrcOfTheStandardsExamples) {  // RFC 3720, B.4, and the usual check value
  EXPECT_EQ(crc32c_bit_by_bit("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c_bit_by_bit(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c_bit_by_bit(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_F(TensorBoard, BeginsWithTheVersionAndTheTime) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  { TensorBoardWriter writer(folder_); }
  const auto records = only_file();
  ASSERT_EQ(records.size(), 1u);
  const Message event = parse(records[0]);
  EXPECT_EQ(only(event, 3).bytes, "brain.Event:2");
  EXPECT_NEAR(raw<double>(only(event, 1).bytes, 0), now, 60);
}

TEST_F(TensorBoard, KeepsScalarsWithTheirTagsAndPlaces) {
  const std::vector<Scalar> wanted = {{"lm-loss-training/lm loss", 0, 0.0f},
                                      {"lm-loss-training/lm loss vs tokens", 350000000000, 2.345678f},
                                      {"a/b", 127, -1.5e-38f},
                                      {"a/b", 128, 3.4e38f},
                                      {std::string(300, 'x'), 1, 1e-45f},
                                      {"perte d'\xc3\xa9valuation", 1, INFINITY}};
  {
    TensorBoardWriter writer(folder_);
    for (const Scalar& scalar : wanted) writer.add_scalar(scalar.tag, scalar.value, scalar.x);
  }
  EXPECT_EQ(scalars(), wanted);
}

TEST_F(TensorBoard, KeepsTextAsAStringTensorOfTheTextPlugin) {
  const std::string text = "line one\nline two | caf\xc3\xa9" + std::string(200, '.');
  { TensorBoardWriter(folder_).add_text("data_path", text, 42); }
  const Message event = parse(only_file().at(1));
  EXPECT_EQ(only(event, 2).number, 42u);
  const Message value = parse(only(parse(only(event, 5).bytes), 1).bytes);
  EXPECT_EQ(only(value, 1).bytes, "data_path/text_summary");
  const Message tensor = parse(only(value, 8).bytes);
  EXPECT_EQ(only(tensor, 1).number, 7u) << "DT_STRING";
  EXPECT_EQ(only(tensor, 8).bytes, text);
  EXPECT_EQ(only(parse(only(parse(only(tensor, 2).bytes), 2).bytes), 1).number, 1u) << "a vector of one string";
  EXPECT_EQ(only(parse(only(parse(only(value, 9).bytes), 1).bytes), 1).bytes, "text") << "the plugin's name";
}

TEST_F(TensorBoard, EveryStartHasAFileOfItsOwn) {
  { TensorBoardWriter first(folder_), second(folder_); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 2);
}

StepReport step_report() {
  StepReport report;
  report.step = 6, report.num_steps = 10;
  report.consumed_samples = 48, report.consumed_tokens = 48 * 33;
  report.global_batch_size = 8, report.sequence_length = 33;
  report.step_seconds = 0.5;
  report.learning_rate = 1e-3, report.next_learning_rate = 9e-4;
  report.losses = {{.name = "lm loss", .value = 4.5, .by_source = {{"de", 4.0, 100}, {"fr", 5.0, 164}}}};
  report.grad_norm = 1.25;
  report.hardware_flops = 2e12;
  report.num_ranks = 8, report.num_replicas = 2;
  return report;
}

// Tag and the three places of a value: step, " vs samples", " vs tokens".
void add_three(std::vector<Scalar>& wanted, const std::string& tag, float value) {
  wanted.push_back({tag, 6, value});
  wanted.push_back({tag + " vs samples", 48, value});
  wanted.push_back({tag + " vs tokens", 1584, value});
}

TEST_F(TensorBoard, TagsOfAStepAreMegatrons) {
  report::LoggingConfig config;
  config.tensorboard_log_interval = 3;
  config.log_learning_rate_to_tensorboard = config.log_batch_size_to_tensorboard = config.log_timers_to_tensorboard =
      true;
  {
    TensorBoardLog log(folder_, config);
    StepReport report = step_report();
    log.step(report);
    report.step = 7;
    log.step(report);  // not a multiple of the interval
  }
  std::vector<Scalar> wanted = {{"steps-vs-samples/y=steps,x=samples", 48, 6},
                                {"steps-vs-samples/y=samples,x=steps", 6, 48},
                                {"steps-vs-tokens/y=steps,x=tokens", 1584, 6},
                                {"steps-vs-tokens/y=tokens,x=steps", 6, 1584}};
  add_three(wanted, "learning-rate/learning-rate", 9e-4f);
  wanted.push_back({"batch-size/batch-size", 6, 8});
  wanted.push_back({"batch-size/batch-size vs samples", 48, 8});
  add_three(wanted, "lm-loss-training/lm loss", 4.5f);
  add_three(wanted, "lm-loss-training/lm loss/de", 4.0f);
  add_three(wanted, "lm-loss-training/lm loss/fr", 5.0f);
  add_three(wanted, "grad-norm/grad-norm", 1.25f);
  add_three(wanted, "iteration-time/iteration-time", 0.5f);
  wanted.push_back({"iteration-time/samples per second", 6, 16});
  wanted.push_back({"iteration-time/samples per second per replica", 6, 8});
  wanted.push_back({"iteration-time/tokens per second", 6, 528});
  wanted.push_back({"iteration-time/tokens per second per replica", 6, 264});
  wanted.push_back({"iteration-time/TFLOPs per gpu (estimated)", 6, 0.5});
  EXPECT_EQ(scalars(), wanted);
}

TEST_F(TensorBoard, TagsOfAnEvaluationAndOfAStartAreMegatrons) {
  report::LoggingConfig config;
  config.log_validation_ppl_to_tensorboard = true;
  {
    TensorBoardLog log(folder_, config);
    log.start(5, 12, {{"lr", "0.001"}});
    log.evaluation("german", {{.name = "lm loss", .value = 2.0, .by_source = {}}}, {6, 48, 1584});
  }
  std::vector<Scalar> wanted = {{"iteration-time/world_size", 5, 12}, {"iteration-time/world_size", 6, 0}};
  add_three(wanted, "lm-loss-validation/german/lm loss validation", 2.0f);
  add_three(wanted, "lm-loss-validation/german/lm loss validation ppl", static_cast<float>(7.38905609893065));
  EXPECT_EQ(scalars(), wanted);
}

}  // namespace tensorboard_test
}  // namespace espalier::report
