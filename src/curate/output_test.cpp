#include "curate/output.h"

#include "curate/byte_sink.h"
#include "curate/internal/run_fixture.h"
#include "data/input_stream.h"

namespace espalier::curate {
namespace {

using test::TestFolder;

TEST(CurateOutput, CompressesAsTheNameSays) {
  TestFolder folder;
  std::string text;
  for (int line = 0; line < 60000; ++line) text += concat("line ", line * 7919 % 60013, "\n");
  for (const std::string& whole : {std::string(), std::string("x"), text})
    for (const std::string name : {"a", "a.gz", "a.zst", "a.xz", "a.bz2"}) {
      const std::unique_ptr<ByteSink> sink = byte_sink(folder / name, name);
      for (size_t at = 0; at < whole.size(); at += 3001) sink->write(std::string_view(whole).substr(at, 3001));
      sink->finish();
      EXPECT_EQ(data::is_compressed(folder / name), name != "a") << name;
      const std::unique_ptr<data::InputStream> stream = data::open_input(folder / name);
      std::string read, part(1 << 16, '\0');
      while (const size_t got = stream->read(part.data(), part.size())) read.append(part.data(), got);
      EXPECT_EQ(read == whole, true) << name << " " << whole.size();
    }
}

TEST(CurateOutput, AppearsWholeOrNotAtAll) {
  TestFolder folder;
  {
    const std::unique_ptr<Output> output = jsonl_output(folder / "a.jsonl", "text");
    output->write({.number = 0, .text = "abc"});
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a.jsonl.tmp"));
  const std::unique_ptr<Output> output = jsonl_output(folder / "a.jsonl", "content");
  output->write({.number = 0, .text = "a\"\n"});
  output->prepare();
  output->move_into_place();
  EXPECT_EQ(test::read_text(folder / "a.jsonl"), "{\"content\": \"a\\\"\\n\"}\n");
}

}  // namespace
}  // namespace espalier::curate
