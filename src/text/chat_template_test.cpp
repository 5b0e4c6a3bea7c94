// Expected texts are those of transformers' apply_chat_template (tests/oracle/chat_templates_oracle.py), or written
// out.
#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace espalier::text {
namespace chat_template_test {

using python::Json;

// Knows two special tokens, and no text.
class NamedTokens final : public Tokenizer {
 public:
  NamedTokens(std::optional<std::string> bos, std::optional<std::string> eos)
      : bos_(std::move(bos)), eos_(std::move(eos)) {}
  std::unique_ptr<Encoder> new_encoder() const override { return nullptr; }
  std::string decode(std::span<const int32_t>, bool) const override { return ""; }
  int64_t vocab_size() const override { return 2; }
  std::optional<int32_t> eod() const override { return std::nullopt; }
  std::string id_to_piece(int32_t id) const override { return (id == 0 ? bos_ : eos_).value(); }
  std::optional<int32_t> piece_to_id(std::string_view) const override { return std::nullopt; }
  NamedIds named_ids() const override {
    return {.bos = bos_ ? std::optional(0) : std::nullopt, .eos = eos_ ? std::optional(1) : std::nullopt, .pad = {}};
  }
  TokenizerJson tokenizer_json() const override { return {}; }
  std::string description() const override { return ""; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }

 private:
  std::optional<std::string> bos_, eos_;
};

std::optional<std::string> name_in(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<std::string>());
}

void check_rendered(const std::filesystem::path& file) {
  const auto rendered = parse_json<Json>(read_file(file), file);
  const auto now = rendered.at("now").get<std::time_t>();
  size_t num_texts = 0;
  for (const auto& [name, made] : rendered.at("templates").items()) {
    const std::string source = "tests/data/chat_templates/" + name + ".jinja";
    const NamedTokens tokens(name_in(made.at("bos")), name_in(made.at("eos")));
    const ChatTemplate chat(read_file(source), source, tokens);
    for (const auto& [conversation, texts] : made.at("texts").items())
      for (const bool adds : {true, false}) {
        SCOPED_TRACE(concat(name, ", ", conversation, ", ", adds));
        const Json& wanted = texts[adds ? 0 : 1];
        ++num_texts;
        try {
          EXPECT_EQ(Json(chat.render(rendered.at("conversations").at(conversation), adds, now)), wanted);
        } catch (const UserError& error) {
          ASSERT_TRUE(wanted.is_object()) << error.what();
          const Json& raised = wanted.at("raised");
          EXPECT_TRUE(raised.is_null() || error.what() == raised.get<std::string>()) << error.what();
        }
      }
  }
  EXPECT_GT(num_texts, 500U);
}

TEST(ChatTemplate, TextsAreThoseOfTransformers) {
  check_rendered("tests/data/chat_templates/rendered.json");
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES"))
    check_rendered(std::filesystem::path(fresh) / "chat_templates/rendered.json");
}

const Json& two_turns() {
  static const Json messages = {{{"role", "user"}, {"content", "Hi"}}, {{"role", "assistant"}, {"content", "Yes?"}}};
  return messages;
}

std::string chat_text(const std::string& source, const TemplateLimits& limits = {}) {
  return ChatTemplate(source, "t.jinja", NamedTokens("<s>", std::nullopt), limits).render(two_turns(), true);
}

std::string chat_refusal(const std::string& source, const TemplateLimits& limits = {}) {
  try {
    return "no error: " + chat_text(source, limits).substr(0, 200);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
}

TEST(ChatTemplate, WhatIsThere) {
  EXPECT_EQ(chat_text("{{ bos_token }}|{{ eos_token }}|{{ eos_token is defined }}|{{ tools is none }}"),
            "<s>||False|True");
  EXPECT_EQ(chat_text("{% for m in messages %}{{ loop.index }}{{ m.role[0] }}{% if not loop.last %},{% endif %}"
                      "{% endfor %}{{ loop is defined }}"),
            "1u,2aFalse");
}

TEST(ChatTemplate, ScopesAreThoseOfJinja) {
  EXPECT_EQ(chat_text("{% set x = 1 %}{% for m in messages %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}"), "221");
  EXPECT_EQ(chat_text("{% set ns = namespace(x=1) %}{% for m in messages %}{% set ns.x = ns.x + 1 %}{% endfor %}"
                      "{{ ns.x }}{% if true %}{% set y = 4 %}{% endif %}{{ y }}"),
            "34");
  EXPECT_EQ(chat_text("{% macro m(a, b='-') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{% set c = 5 %}"
                      "{% for c in range(2) %}{{ m(c, b=c * 2) }};{% endfor %}{{ m('x') }}{{ m() }}"),
            "005;125;x-5-5");
}

TEST(ChatTemplate, LoopsMayBreakAndFilter) {
  EXPECT_EQ(chat_text("{% for i in range(9) if i is odd %}{% if i == 7 %}{% break %}{% endif %}{% if i == 3 %}"
                      "{% continue %}{% endif %}{{ i }}/{{ loop.length }} {% else %}none{% endfor %}"),
            "1/4 5/4 ");
  EXPECT_EQ(chat_text("{% for k, v in {'a': 1, 'b': [2]}.items() %}{{ k }}={{ v }};{% endfor %}"), "a=1;b=[2];");
  EXPECT_EQ(chat_text("{% for c in 'h\u00e9' %}{{ c }}.{% endfor %}{% for c in absent %}x{% else %}none{% endfor %}"),
            "h.\u00e9.none");
}

TEST(ChatTemplate, FiltersAndTests) {
  EXPECT_EQ(chat_text("{{ {'a': [1, 2.5, none, true], '\u00e9<\"': 'x\\n'}|tojson }}"),
            "{\"a\": [1, 2.5, null, true], \"\u00e9<\\\"\": \"x\\n\"}");
  EXPECT_EQ(chat_text("{{ {'a': [1, {}], 'b': []}|tojson(indent=2) }}"),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}");
  EXPECT_EQ(chat_text("{{ messages|map(attribute='role')|map('upper')|join('+') }} {{ 'x'|default('y') }}{{ z|d('y') }}"
                      "{{ ''|default('e', true) }} {{ messages|rejectattr('role', 'eq', 'user')|list|length }}"),
            "USER+ASSISTANT xye 1");
  EXPECT_EQ(chat_text("{{ [3, 'a', none]|select('string')|list }} {{ 'abc'|reverse }} {{ [1, 2]|reverse|list }} "
                      "{{ messages[0].content is string }} {{ messages[0] is mapping }} {{ 4 is divisibleby 2 }} "
                      "{{ 'a' is in ['a'] }} {{ true is number }} {{ true is integer }} {{ 'ab' is iterable }}"),
            "['a'] cba [2, 1] True True True True True False True");
  EXPECT_EQ(chat_text("{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a b  c'.split(none, 1) }} {{ 'a\\nb\\n'.splitlines() }} "
                      "{{ 'abab'.count('ab') }} {{ 'ab'.find('x') }} {{ {'a': 1}.get('b', 2) }} {{ 'abcd'[::-2] }}"),
            "['a,b', 'c'] ['a', 'b  c'] ['a', 'b'] 2 -1 2 db");
}

TEST(ChatTemplate, WhatIsOutsideOfTheSubsetIsRefusedWithFileAndLine) {
  EXPECT_EQ(chat_refusal("a\n{% include 'x' %}"),
            "t.jinja:2: the statement '{% include 'x' %}' of a template is not supported");
  EXPECT_EQ(chat_refusal("\n\n{{ x|xmlattr }}"),
            "t.jinja:3: the filter xmlattr, which is not supported, at byte 12 of the expression ' x|xmlattr '");
  EXPECT_EQ(chat_refusal("{{ cycler(1) }}"), "t.jinja:1: the function cycler is not supported");
  EXPECT_EQ(chat_refusal("{% for a in b %}\n{% if a %}\n"), "t.jinja:2: expected '{% elif %}' before the end");
  EXPECT_EQ(chat_refusal("{% endif %}"), "t.jinja:1: the statement '{% endif %}' of a template is not supported");
  for (const char* source : {"{% raw %}",
                             "{% extends 'x' %}",
                             "{% call a() %}",
                             "{% filter upper %}",
                             "{% for %}",
                             "{% set %}",
                             "{% set a.b.c = 1 %}",
                             "{% for a in b recursive %}{% endfor %}",
                             "{% break %}",
                             "{{ a.append(1) }}",
                             "{{ a.__class__() }}",
                             "{{ ''.format(1) }}",
                             "{{ x is callable }}",
                             "{{ loop.cycle(1) }}",
                             "{{ f(*a) }}",
                             "{% macro m(a=1, b) %}{% endmacro %}",
                             "{% if a %}{% macro m() %}{% endmacro %}{% endif %}",
                             "{{ messages|map('map') }}",
                             "{{ messages|selectattr() }}",
                             "{# no end",
                             "{{ 'no end }}"})
    EXPECT_THAT(chat_refusal(source), testing::StartsWith("t.jinja:1: ")) << source;
  EXPECT_THAT(chat_refusal("\xff"), testing::HasSubstr("expected UTF-8"));
}

TEST(ChatTemplate, WhatFailsInAChatIsSaidWithItsLine) {
  EXPECT_EQ(chat_refusal("{{ raise_exception('Only ' ~ 1 ~ ' turn') }}"), "Only 1 turn");
  EXPECT_EQ(chat_refusal("\n{{ absent.field }}"), "there is no 'field' in what is undefined (t.jinja:2)");
  EXPECT_EQ(chat_refusal("{{ 1 + 'a' }}"), "1 + 'a' has no meaning (t.jinja:1)");
  EXPECT_EQ(chat_refusal("{% set a = namespace() %}{% set b = a %}"),
            "a second name of a namespace is not supported (t.jinja:1)");
}

// A template is written by anybody: time, memory and nesting have bounds.
TEST(ChatTemplate, WhatATemplateMayTakeIsBounded) {
  const std::string nested =
      "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
      "{% endfor %}{% endfor %}{% endfor %}";
  EXPECT_THAT(chat_refusal(nested, {.steps = 1000}),
              testing::MatchesRegex("the template takes more than 1... steps .*"));
  const std::string doubled =
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
  EXPECT_THAT(chat_refusal(doubled, {.steps = 1 << 30, .memory = size_t{1} << 20}),
              testing::MatchesRegex("the template takes more than 10..... bytes .*"));
  EXPECT_THAT(chat_refusal("{% set a = 'a,' * 2 %}"), testing::HasSubstr("has no meaning"));
  const TemplateLimits small = {.steps = 100'000, .memory = size_t{4} << 20};
  const std::string big =
      "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(15) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}";
  for (const char* use :
       {"ns.x.replace('a', ns.x)", "ns.x.split('a')|join(ns.x)", "ns.x|list|list|list|list|list", "ns.x.split('a')",
        "range(9999)|map('string')|map('replace', '1', ns.x)|list", "range(99999)|select('in', ns.x)|list"})
    EXPECT_THAT(chat_refusal(big + "{{ " + use + " }}", small),
                testing::AnyOf(testing::HasSubstr("too much memory"), testing::HasSubstr("takes more than")))
        << use;
  EXPECT_THAT(chat_refusal("{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}"), testing::HasSubstr("too deep"));
  EXPECT_THAT(chat_refusal("{{ range(10000000000)|length }}", small), testing::HasSubstr("takes more than"));
  for (const char* number : {"1099511627777", "-1099511627777", "-9223372036854775807 - 1"})
    for (const std::string& ends : {concat(number, ", 0"), concat("0, ", number), concat("0, 0, ", number)})
      EXPECT_THAT(chat_refusal(concat("{{ range(", ends, ")|length }}"), small), testing::HasSubstr("goes too far"));
  EXPECT_THAT(chat_refusal("{{ strftime_now('%5000d') }}"), testing::HasSubstr("too long"));
  EXPECT_THAT(
      chat_refusal("{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x] %}{% endfor %}"),
      testing::HasSubstr("too much nesting"));
  EXPECT_THAT(chat_refusal("{{" + std::string(5000, '(') + std::string(5000, ')') + "}}"),
              testing::HasSubstr("too much nesting"));
  EXPECT_THAT(chat_refusal("{{ 1" + std::string(5000, '-') + "1 }}"), testing::HasSubstr("t.jinja:1: "));
  std::string ifs;
  for (int i = 0; i < 100; ++i) ifs += "{% if 1 %}";
  EXPECT_THAT(chat_refusal(ifs), testing::HasSubstr("too much nesting"));
}

}  // namespace chat_template_test
}  // namespace espalier::text
