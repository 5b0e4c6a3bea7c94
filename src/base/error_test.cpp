#include "base/error.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

std::string text_of(const Problems& problems) {
  try {
    problems.raise();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Problems, AListThatIsAddedToAListBecomesPartOfIt) {
  Problems inner;
  inner.add("m.toml:1: no 'a'");
  inner.add("m.toml:2: no 'b'");
  Problems outer;
  outer.add("--lr abc is not a number");
  outer.add("--machine: ", text_of(inner));
  EXPECT_EQ(text_of(outer),
            "3 problems:\n  - --lr abc is not a number\n  - --machine: m.toml:1: no 'a'\n"
            "  - --machine: m.toml:2: no 'b'");
  Problems alone;
  alone.add(text_of(inner));
  EXPECT_EQ(text_of(alone), text_of(inner));
}

TEST(Problems, WhatIsNoListStaysAsItIs) {
  Problems problems;
  problems.add("the log says: 2 problems:\nnone of them here");
  problems.add("a table\n  - of two\n  - lines");
  EXPECT_EQ(text_of(problems),
            "2 problems:\n  - the log says: 2 problems:\nnone of them here\n  - a table\n  - of two\n  - lines");
}

}  // namespace
}  // namespace espalier
