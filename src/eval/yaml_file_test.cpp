// Expected values are PyYAML's (6.0.3).
#include "eval/yaml_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::eval {
namespace yaml_file_test {

TEST(YamlFile, ScalarsAreReadAsPyYamlDoes) {
  const Json content = parse_yaml(R"(
a: [no, Yes, off, "no", 'yes', null, ~, 1, -2, 0x1F, 010, 1_000, 1.0, 1e5, 1.5e+3, .5, 1., _1, 08, -0x1F, abc, 'x: y', "a\nb", "1"]
b:
  - metric: acc
    higher_is_better: true
  - c
d: "Q: {{q}}\nA:"
k: "one
  two\n\

  three \
  four"
e: |
  two
  lines
f: >-
  folded
  text
g:
h: !function utils.process
i: &x {k: v}
j: *x
)",
                                  "t.yaml")
                           .content;
  EXPECT_EQ(content["a"], (Json{false, true,  false,  "no", "yes", nullptr, nullptr, 1,   -2,    31,     8,      1000,
                                1.0,   "1e5", 1500.0, 0.5,  1.0,   "_1",    "08",    -31, "abc", "x: y", "a\nb", "1"}));
  EXPECT_EQ(content["b"], Json::parse(R"([{"metric": "acc", "higher_is_better": true}, "c"])"));
  EXPECT_EQ(content["d"], "Q: {{q}}\nA:");
  EXPECT_EQ(content["k"], "one two\n\nthree four");
  EXPECT_EQ(content["e"], "two\nlines\n");
  EXPECT_EQ(content["f"], "folded text");
  EXPECT_EQ(content["g"], nullptr);
  EXPECT_EQ(content["h"], "!function utils.process");
  EXPECT_EQ(content["j"], (Json{{"k", "v"}}));
}

TEST(YamlFile, KeysHaveTheirLines) {
  const YamlFile file = parse_yaml("task: x\n\ninclude: y\n", "t.yaml");
  EXPECT_EQ(file.places.at("task"), "t.yaml:1");
  EXPECT_EQ(file.places.at("include"), "t.yaml:3");
}

std::string yaml_refusal(const std::string& content) {
  try {
    parse_yaml(content, "t.yaml");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(YamlFile, WhatIsNotTakenIsRefusedWithItsLine) {
  EXPECT_TRUE(yaml_refusal("a: b\nc: ]\nd: e\n").starts_with("t.yaml:2: no YAML: "));
  EXPECT_EQ(yaml_refusal("a: b\nc: !!python/object x\n"),
            "t.yaml:2: the tag tag:yaml.org,2002:python/object is not supported");
  EXPECT_EQ(yaml_refusal("- a\n"), "t.yaml: expected keys with values");
  EXPECT_EQ(yaml_refusal(""), "t.yaml: expected keys with values");
  EXPECT_EQ(yaml_refusal("a: 1\n---\nb: 2\n"), "t.yaml:2: a second document");
  EXPECT_EQ(yaml_refusal("a: *x\n"), "t.yaml:1: nothing has the anchor &x");
  EXPECT_EQ(yaml_refusal("a: 1\n<<: {b: 2}\n"), "t.yaml:2: the key << is not supported");
  EXPECT_EQ(yaml_refusal("a: !!set {x}\n"), "t.yaml:1: the tag tag:yaml.org,2002:set is not supported");
  EXPECT_EQ(yaml_refusal("a: " + std::string(60, '[')), "t.yaml:1: nests or repeats too much");
  EXPECT_EQ(yaml_refusal("a: \xff\n"), "t.yaml: byte 4 is not UTF-8");
  EXPECT_EQ(yaml_refusal("a: 1\n[b]: 2\n"), "t.yaml:2: a key is not a text");
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i)
    bomb += concat("a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, ", *a", i - 1, ", *a", i - 1, ", *a", i - 1, ", *a",
                   i - 1, ", *a", i - 1, ", *a", i - 1, ", *a", i - 1, ", *a", i - 1, "]\n");
  EXPECT_TRUE(yaml_refusal(bomb).ends_with(": nests or repeats too much"));
}

}  // namespace yaml_file_test
}  // namespace espalier::eval
