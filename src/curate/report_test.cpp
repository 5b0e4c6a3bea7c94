#include "curate/report.h"

#include <gumbo.h>

#include <map>

#include "base/format.h"
#include "curate/internal/run_fixture.h"
#include "curate/mix.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

// The report of a recipe over texts that try to be markup.
nlohmann::ordered_json report_of(const TestFolder& folder, bool dry_run) {
  std::string lines;
  for (int length = 1; length <= 101; ++length)
    lines += nlohmann::json({{"text", std::string(static_cast<size_t>(length), 'x') +
                                          " <script src=\"http://e.org/a.js\"></script><img src='//e.org/b'> \"&' "
                                          "me@mail.org \u00e9"}})
                 .dump() +
             "\n";
  write_text(folder / "a.jsonl", lines + "broken <b>\n");
  write_text(folder / "r.toml",
             concat("[output]\nfolder = \"", folder / "mix", "\"\n[[source]]\nname = \"s\"\nfiles = [\"",
                    folder / "a.jsonl", "\"]\n[[step]]\nname = \"pii\"\n[[step]]\nname = \"exact\"\n",
                    "[[step]]\nname = \"length\"\nleast = 100\nmost = 150\n"));
  Problems problems;
  Recipe recipe = read_recipe(folder / "r.toml", problems);
  problems.raise();
  return dry_run ? try_mix(recipe, 1000).report : make_mix(recipe).report;
}

// All elements and attributes of a page.
void collect(const GumboNode& node, std::map<std::string, int>& elements, std::vector<std::string>& attributes) {
  if (node.type != GUMBO_NODE_ELEMENT) return;
  ++elements[gumbo_normalized_tagname(node.v.element.tag)];
  for (unsigned at = 0; at < node.v.element.attributes.length; ++at) {
    const auto* attribute = static_cast<const GumboAttribute*>(node.v.element.attributes.data[at]);
    attributes.push_back(concat(attribute->name, "=", attribute->value));
  }
  for (unsigned at = 0; at < node.v.element.children.length; ++at)
    collect(*static_cast<const GumboNode*>(node.v.element.children.data[at]), elements, attributes);
}

TEST(ReportPage, AsksNobodyForAnything) {
  TestFolder folder;
  const std::string page = report_as_html(report_of(folder, true));
  EXPECT_NE(page.find("&lt;script src="), std::string::npos);
  GumboOutput* const parsed = gumbo_parse_with_options(&kGumboDefaultOptions, page.data(), page.size());
  std::map<std::string, int> elements;
  std::vector<std::string> attributes;
  collect(*parsed->root, elements, attributes);
  EXPECT_EQ(parsed->errors.length, 0u);
  gumbo_destroy_output(&kGumboDefaultOptions, parsed);
  for (const char* none : {"script", "img", "link", "iframe", "b"}) EXPECT_EQ(elements[none], 0) << none;
  EXPECT_EQ(elements["svg"], 2);  // the two measures of `length`
  EXPECT_GT(elements["pre"], 10);
  for (const std::string& attribute : attributes) {
    EXPECT_FALSE(attribute.starts_with("src=") || attribute.starts_with("href=") || attribute.starts_with("on"))
        << attribute;
    EXPECT_EQ(attribute.find("url("), std::string::npos) << attribute;
  }
}

TEST(ReportPage, MarksWhatChanged) {
  TestFolder folder;
  const std::string page = report_as_html(report_of(folder, true));
  EXPECT_NE(page.find("<del>me@mail.org</del>"), std::string::npos);
  EXPECT_NE(page.find("<ins>PI:EMAIL</ins>"), std::string::npos);
}

TEST(ReportPage, LiesBesideTheOthers) {
  TestFolder folder;
  const nlohmann::ordered_json report = report_of(folder, false);
  EXPECT_EQ(test::read_text(folder / "mix/report.html"), report_as_html(report));
  EXPECT_EQ(report.at("steps")[2].contains("measures"), false);
}

TEST(DryRun, HasPercentilesOfMeasures) {
  TestFolder folder;
  const nlohmann::ordered_json report = report_of(folder, true);
  const nlohmann::ordered_json& measures = report.at("steps")[2].at("measures");
  ASSERT_EQ(measures.size(), 2u);
  const nlohmann::ordered_json& short_ones = measures[0];
  EXPECT_EQ(short_ones.at("measure"), "short");
  EXPECT_EQ(short_ones.at("drops"), "below");
  EXPECT_EQ(short_ones.at("threshold"), 100);
  EXPECT_EQ(short_ones.at("documents"), 101);
  // Lengths are 1 + n to 101 + n for n more bytes, all of them one apart: percentile p is 1 + n + p.
  const double most = short_ones.at("percentiles").at("99").get<double>();
  for (const auto& [percent, value] : short_ones.at("percentiles").items())
    EXPECT_DOUBLE_EQ(value.get<double>(), most - 99 + std::stoi(percent));
  EXPECT_EQ(short_ones.at("beyond"), 199 - static_cast<int64_t>(most));
  EXPECT_EQ(short_ones.at("beyond"), report.at("steps")[2].at("dropped_by_reason").at("short"));
  EXPECT_NE(report_as_markdown(report).find("| short | below 100 | "), std::string::npos);
}

TEST(MeasureTally, InterpolatesAsNumpy) {
  MeasureTally tally{"x", 3.0, false, {4, 1, 2, 10}};
  EXPECT_DOUBLE_EQ(tally.percentile(0.5), 3);
  EXPECT_DOUBLE_EQ(tally.percentile(0.9), 8.2);  // numpy.percentile([4, 1, 2, 10], 90)
  EXPECT_EQ(tally.percentile(0), 1);
  EXPECT_EQ(tally.percentile(1), 10);
  EXPECT_EQ(tally.num_beyond(), 2);
  MeasureTally one{"x", {}, true, {7}};
  EXPECT_EQ(one.percentile(0.25), 7);
  EXPECT_EQ(one.num_beyond(), 0);
}

}  // namespace
}  // namespace espalier::curate
