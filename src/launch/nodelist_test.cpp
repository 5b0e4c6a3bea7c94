#include "launch/nodelist.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::launch {
namespace {

using Names = std::vector<std::string>;

TEST(Nodelist, ExpandsWhatScontrolExpands) {
  EXPECT_EQ(expand_nodelist("node7"), Names{"node7"});
  EXPECT_EQ(expand_nodelist("n[01-03,7],x2"), (Names{"n01", "n02", "n03", "n7", "x2"}));
  EXPECT_EQ(expand_nodelist("jean-zay-iam[08-11]"),
            (Names{"jean-zay-iam08", "jean-zay-iam09", "jean-zay-iam10", "jean-zay-iam11"}));
  EXPECT_EQ(expand_nodelist("r[1-2]n[0-1]"), (Names{"r1n0", "r1n1", "r2n0", "r2n1"}));
  EXPECT_EQ(expand_nodelist("a[098-101]-ib,b"), (Names{"a098-ib", "a099-ib", "a100-ib", "a101-ib", "b"}));
}

TEST(Nodelist, RefusesWhatIsNoList) {
  for (const char* text : {"", "a,", "n[1-", "n1]", "n[3-1]", "n[a-b]", "n[1-2-3]", "n[[1]]", "n[]"})
    EXPECT_THROW(expand_nodelist(text), UserError) << text;
}

TEST(Nodelist, ExpandsTasksPerNode) {
  EXPECT_EQ(expand_tasks_per_node("2(x3),1"), (std::vector<int64_t>{2, 2, 2, 1}));
  EXPECT_EQ(expand_tasks_per_node("8"), std::vector<int64_t>{8});
  for (const char* text : {"", "2(x", "2(x0)", "x", "2(3)"})
    EXPECT_THROW(expand_tasks_per_node(text), UserError) << text;
}

}  // namespace
}  // namespace espalier::launch
