#include "infer/engine/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace espalier::infer {
namespace page_pool_test {

using Ids = std::vector<int32_t>;

// A held sequence whose full pages are findable.
Ids published(PagePool& pool, const Ids& ids) {
  Ids pages;
  const int64_t size = pool.page_tokens();
  EXPECT_TRUE(pool.take((static_cast<int64_t>(ids.size()) + size - 1) / size, pages));
  PrefixId prefix = 0;
  for (size_t page = 0; (page + 1) * static_cast<size_t>(size) <= ids.size(); ++page) {
    const auto block = std::span(ids).subspan(page * static_cast<size_t>(size), static_cast<size_t>(size));
    const auto place = pool.publish(prefix, block, pages[page]);
    pages[page] = place.page;
    prefix = place.prefix;
  }
  return pages;
}

TEST(PagePool, GivesAllPagesOnceAndThenNone) {
  PagePool pool(7, 4);
  Ids pages;
  EXPECT_TRUE(pool.take(5, pages));
  EXPECT_FALSE(pool.take(3, pages));
  EXPECT_EQ(pages.size(), 5u);
  EXPECT_TRUE(pool.take(2, pages));
  EXPECT_EQ(std::set<int32_t>(pages.begin(), pages.end()).size(), 7u);
  EXPECT_EQ(pool.num_held(), 7);
  pool.release(pages);
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_EQ(pool.num_cached(), 0);
}

TEST(PagePool, FindsTheLongestBeginningOfWholePages) {
  PagePool pool(9, 3);
  const Ids pages = published(pool, {1, 2, 3, 4, 5, 6, 7, 8});
  pool.release(pages);
  EXPECT_EQ(pool.num_cached(), 2);
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{1, 2, 3, 4, 5, 6, 7, 8, 9}).pages, Ids({pages[0], pages[1]}));
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{1, 2, 3, 4, 5}).pages, Ids({pages[0]}));
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{1, 2}).pages, Ids());
  // The same three ids after others are another text.
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{4, 5, 6}).pages, Ids());
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{1, 2, 4, 4, 5, 6}).pages, Ids());
}

TEST(PagePool, EqualPagesBecomeOne) {
  PagePool pool(6, 2);
  const Ids first = published(pool, {1, 2, 3, 4});
  const Ids second = published(pool, {1, 2, 3, 4, 5});
  EXPECT_EQ(second[0], first[0]);
  EXPECT_EQ(second[1], first[1]);
  EXPECT_EQ(pool.num_held(), 3);
  pool.release(first);
  EXPECT_EQ(pool.num_held(), 3);
  pool.release(second);
  EXPECT_EQ(pool.num_held(), 0);
  EXPECT_EQ(pool.num_cached(), 2);
}

TEST(PagePool, GivesAwayTheLongestUnusedAndEndsBeforeBeginnings) {
  PagePool pool(4, 2);
  const Ids old = published(pool, {1, 2, 3, 4});
  pool.release(old);
  const Ids young = published(pool, {5, 6});
  pool.release(young);
  Ids taken;
  ASSERT_TRUE(pool.take(2, taken));  // one free, one of the old text
  EXPECT_EQ(pool.num_evictions(), 1);
  FoundPrefix found = pool.take_prefix(empty_prefix(false), Ids{1, 2, 3, 4});
  EXPECT_EQ(found.pages, Ids({old[0]}));
  pool.release(found.pages);  // used last now
  ASSERT_TRUE(pool.take(1, taken));
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{5, 6}).pages, Ids());
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{1, 2}).pages, Ids({old[0]}));
}

TEST(PagePool, AHeldPageIsNeverGivenAway) {
  PagePool pool(4, 1);
  const Ids held = published(pool, {1, 2});
  pool.release(published(pool, {1, 7}));
  Ids taken;
  EXPECT_TRUE(pool.take(2, taken));
  EXPECT_FALSE(pool.take(1, taken));
  EXPECT_EQ(pool.take_prefix(empty_prefix(false), Ids{1, 2}).pages, held);
}

}  // namespace page_pool_test
}  // namespace espalier::infer
