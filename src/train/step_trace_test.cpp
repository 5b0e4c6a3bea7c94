#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "train/step_trace.h"

namespace espalier::train {
namespace step_trace_test {

TEST(StepTrace, WritesTheOpsOfTheTracedPartAsChromeJson) {
  const auto path = std::filesystem::temp_directory_path() / "espalier_step_trace_test.json";
  std::filesystem::remove(path);
  StepTrace trace;
  trace.start(at::kCPU);
  {
    RECORD_USER_SCOPE("part of a step");
    at::ones({7, 33}).matmul(at::ones({33, 2}));
  }
  trace.write(path);
  const std::string text = read_file(path);
  EXPECT_NE(text.find("\"traceEvents\""), std::string::npos);
  EXPECT_NE(text.find("part of a step"), std::string::npos);
  EXPECT_NE(text.find("aten::matmul"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace step_trace_test
}  // namespace espalier::train
