#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "base/error.h"

namespace espalier {
namespace {

std::string reading_refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
  return "no error";
}

// Opened, a FIFO that nobody writes to would be waited for without end.
TEST(File, AFifoOrADeviceIsRefusedByNameByAllThatRead) {
  const std::filesystem::path fifo = std::filesystem::temp_directory_path() / concat("espalier_fifo_", ::getpid());
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string expected = concat("'", fifo.string(),
                                      "' is a pipe (FIFO); a regular file is needed. Write its content to a file and "
                                      "name that.");
  EXPECT_EQ(reading_refusal([&] { read_file(fifo); }), expected);
  EXPECT_EQ(reading_refusal([&] { MappedFile file(fifo); }), expected);
  EXPECT_EQ(reading_refusal([&] { InputFile file(fifo); }), expected);
  EXPECT_EQ(reading_refusal([&] { read_file("/dev/zero"); }).substr(0, 24), "'/dev/zero' is a device;");
  std::filesystem::remove(fifo);
}

// Otherwise the process would end by SIGBUS, silently.
TEST(FileDeathTest, AMappedFileThatIsCutOffIsNamed) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / concat("espalier_cut_", ::getpid());
  const auto read_after_cut = [&] {
    write_file_atomically(path, std::string(100'000, 'x'));
    const MappedFile before(path), file(path);  // of two mappings, the one that is read
    std::filesystem::resize_file(path, 10);
    const volatile uint8_t* const bytes = file.data();
    std::exit(bytes[90'000]);
  };
  EXPECT_EXIT(read_after_cut(), testing::ExitedWithCode(74), concat("error: '", path.string(), "' was cut off"));
  std::filesystem::remove(path);
}

TEST(File, AMappedFileMayMoveAndEnd) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / concat("espalier_moved_", ::getpid());
  write_file_atomically(path, "abc");
  for (int round = 0; round < 3; ++round) {
    MappedFile first(path);
    const MappedFile second = std::move(first);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.data()), second.size()), "abc");
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace espalier
