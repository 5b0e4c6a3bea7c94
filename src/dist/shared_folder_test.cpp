#include "dist/shared_folder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "dist/local_ranks.h"

namespace espalier::dist {
namespace {
namespace shared_folder_test {

namespace fs = std::filesystem;

class SharedFolder : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"0", "1", "2"}) fs::create_directories(folder_ / name);
  }
  void TearDown() override { fs::remove_all(folder_); }
  const fs::path folder_ = fs::path(testing::TempDir()) / "espalier_shared_folder";
};

TEST_F(SharedFolder, OneFolderForAllPassesAndKeepsNothing) {
  run_ranks({.data = 3}, [&](const Grid& grid) {
    check_folder_is_shared(folder_ / "0", grid.world);
    return std::string();
  });
  EXPECT_TRUE(fs::is_empty(folder_ / "0"));
}

TEST_F(SharedFolder, AFolderOfItsOwnOnOneMachineIsNoticedByAll) {
  const auto messages = run_ranks({.data = 3}, [&](const Grid& grid) -> std::string {
    try {
      check_folder_is_shared(folder_ / (grid.rank == 2 ? "2" : "0"), grid.world, 0.2);
    } catch (const UserError& error) {
      return error.what();
    }
    return "not noticed";
  });
  for (const std::string& message : messages) EXPECT_NE(message.find("is not shared"), std::string::npos) << message;
  EXPECT_TRUE(fs::is_empty(folder_ / "0"));
}

TEST_F(SharedFolder, AFolderThatRankZeroCannotWriteIsSaidByAll) {
  const auto messages = run_ranks({.data = 2}, [&](const Grid& grid) -> std::string {
    try {
      check_folder_is_shared(folder_ / "missing", grid.world, 0.2);
    } catch (const UserError& error) {
      return error.what();
    }
    return "not noticed";
  });
  for (const std::string& message : messages) EXPECT_NE(message.find("missing"), std::string::npos) << message;
}

}  // namespace shared_folder_test
}  // namespace
}  // namespace espalier::dist
