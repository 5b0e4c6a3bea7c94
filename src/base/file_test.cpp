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
                                      "' is a FIFO (a pipe); a regular file is needed. Write its content to a file and "
                                      "name that.");
  EXPECT_EQ(reading_refusal([&] { read_file(fifo); }), expected);
  EXPECT_EQ(reading_refusal([&] { MappedFile file(fifo); }), expected);
  EXPECT_EQ(reading_refusal([&] { InputFile file(fifo); }), expected);
  EXPECT_EQ(reading_refusal([&] { read_file("/dev/zero"); }).substr(0, 24), "'/dev/zero' is a device;");
  std::filesystem::remove(fifo);
}

}  // namespace
}  // namespace espalier
