#include "train/step_profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

namespace espalier::train {
namespace step_profile_test {

using namespace std::chrono_literals;

TEST(StepProfile, DividesTheTimeOfTwoSteps) {
  WorkProfile profile;
  profile.start();
  for (int step = 0; step < 2; ++step) {
    const WorkSpan optimizer(Work::kOptimizer, "step");
    for (int layer = 0; layer < 3; ++layer) {
      const WorkSpan product(Work::kProduct, "forward", {1000, 200, 50});
      std::this_thread::sleep_for(5ms);
    }
    std::this_thread::sleep_for(5ms);
  }
  std::this_thread::sleep_for(20ms);
  profile.stop();
  const ProfiledSteps steps{profile, 6, 7};

  const nlohmann::json json = profile_json(steps);
  EXPECT_EQ(json["steps"], nlohmann::json({6, 7}));
  ASSERT_EQ(json["work"].size(), 2U);
  const nlohmann::json& product = json["work"][0];
  EXPECT_EQ(product["kind"], "product");
  EXPECT_EQ(product["calls_per_step"], 3.0);
  EXPECT_EQ(product["n"], 200);
  const double seconds = product["seconds_per_step"];
  EXPECT_GE(seconds, 0.015);
  EXPECT_NEAR(product["flops_per_second"].get<double>(), 3 * 2 * 1000.0 * 200 * 50 / seconds, 1);
  double sum = 0;
  for (const auto& [kind, of_kind] : json["kinds"].items()) sum += of_kind.get<double>();
  EXPECT_NEAR(sum, profile.seconds() / 2, 1e-9);
  EXPECT_GE(json["kinds"]["other"].get<double>(), 0.010);

  const std::string table = profile_table(steps);
  EXPECT_NE(table.find("mean of steps 6 to 7"), std::string::npos) << table;
  EXPECT_NE(table.find("product, forward 1000 x 200 x 50"), std::string::npos) << table;
  EXPECT_NE(table.find("optimizer, step"), std::string::npos) << table;
  EXPECT_LT(table.find("product"), table.find("optimizer")) << "the longest first";
}

}  // namespace step_profile_test
}  // namespace espalier::train
