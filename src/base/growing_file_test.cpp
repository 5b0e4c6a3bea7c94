#include "base/growing_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace espalier {
namespace growing_file_test {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class GrowingFileTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
  std::string error_of(const Json& facts) const {
    try {
      GrowingFile file(path_, facts, {});
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_growing_", ::getpid());
  const fs::path path_ = folder_ / "lines";
  const Json facts_ = {{"seed", 7}, {"load", "run"}};
};

TEST_F(GrowingFileTest, GoesOnAfterTheLastWholeLine) {
  {
    GrowingFile file(path_, facts_, {});
    EXPECT_EQ(file.num_kept(), 0);
    file.write("first");
    file.write("");
  }
  EXPECT_FALSE(fs::exists(path_));
  std::ofstream(path_.string() + ".partial", std::ios::app) << std::string(100'000, 'x');  // torn
  GrowingFile file(path_, facts_, {});
  EXPECT_EQ(file.num_kept(), 2);
  file.write("third");
  file.finish();
  EXPECT_EQ(read_file(path_), "first\n\nthird\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(GrowingFileTest, LeavesNothingOfAFileWithoutLines) {
  { const GrowingFile file(path_, facts_, {}); }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(GrowingFileTest, RefusesLinesOfSomethingElse) {
  GrowingFile(path_, facts_, {}).write("first");
  const std::string error = error_of({{"seed", 8}, {"load", "run"}, {"more", true}});
  EXPECT_NE(error.find("begun with something else: more was nothing and is true; seed was 7 and is 8"),
            std::string::npos)
      << error;
  GrowingFile anew(path_, {{"seed", 8}}, {.overwrite = true});
  EXPECT_EQ(anew.num_kept(), 0);
  EXPECT_NE(error_of({{"seed", 8}}).find("being written by another process"), std::string::npos);
}

TEST_F(GrowingFileTest, RefusesToReplaceAFinishedFile) {
  write_file_atomically(path_, "old\n");
  EXPECT_NE(error_of(facts_).find("--overwrite"), std::string::npos);
  {
    GrowingFile file(path_, facts_, {.overwrite = true});
    EXPECT_EQ(read_file(path_), "old\n");
    file.finish();
  }
  EXPECT_EQ(read_file(path_), "");
}

}  // namespace growing_file_test
}  // namespace espalier
