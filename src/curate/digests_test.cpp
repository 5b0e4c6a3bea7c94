#include "curate/digests.h"

#include <gtest/gtest.h>

#include <random>

namespace espalier::curate {
namespace {

TEST(Digests, ComeBackInOrderHoweverTheyWereAppended) {
  std::mt19937_64 random(1);
  for (const size_t parts : {1, 3, 16})
    for (const int count : {0, 1, 7, 333}) {
      std::vector<std::vector<std::pair<int64_t, std::string>>> expected(parts);
      Digests all(parts), block(parts);
      int64_t number = 0;
      for (int digest = 0; digest < count; ++digest) {
        if (random() % 4 != 0) number += static_cast<int64_t>(random() >> (random() % 40 + 20));
        const size_t part = random() % parts;
        const std::string bytes(random() % 5 == 0 ? 0 : random() % 300, static_cast<char>(random()));
        expected[part].emplace_back(number, bytes);
        block.add(part, number, bytes);
        if (random() % 3 != 0) continue;
        all.append(block);
        block = Digests(parts);
      }
      all.append(block);
      ASSERT_EQ(all.num_parts(), parts);
      for (size_t part = 0; part < parts; ++part) {
        std::vector<std::pair<int64_t, std::string>> found;
        Digests::for_each(all.bytes(part),
                          [&](int64_t of, std::string_view digest) { found.emplace_back(of, digest); });
        EXPECT_TRUE(found == expected[part]) << parts << " parts, " << count << " digests";
      }
    }
}

}  // namespace
}  // namespace espalier::curate
