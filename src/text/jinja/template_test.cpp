// Expected texts are Jinja2's (3.1.6, StrictUndefined, keep_trailing_newline).
#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace espalier::text {
namespace template_test {

const python::Json& document() {
  static const python::Json made = {
      {"question", "Who?"},
      {"text", " a b\u00e9 c"},
      {"choices", {{"text", {"x", "it's"}}, {"label", {"A", "B"}}}},
      {"key", "B "},
      {"answers", {{{"atext", "p"}, {"deep", {{"n", 1}}}}, {{"atext", "q"}, {"deep", {{"n", 2}}}}}},
      {"ra", 2},
      {"start1", 1},
      {"end1", 4},
      {"flag", true},
      {"ratio", 0.5},
      {"nothing", nullptr}};
  return made;
}

std::string rendered(const std::string& text) { return Template(text, "t.yaml:3").render(document()); }

TEST(Template, FieldsAndTextAreJoined) {
  EXPECT_EQ(rendered("Question: {{question}}\nAnswer:\n"), "Question: Who?\nAnswer:\n");
  EXPECT_EQ(rendered("{{ ra }}{{flag}} {{ratio}} {{nothing}} {{choices.text}} {"), "2True 0.5 None ['x', \"it's\"] {");
  EXPECT_EQ(rendered("a {# comment {{ #}b"), "a b");
  EXPECT_EQ(rendered("a \n {{- ra -}} \n b {{+ra}}"), "a2b 2");
  EXPECT_EQ(rendered("a\r\nb"), "a\nb");
  EXPECT_EQ(rendered(""), "");
}

TEST(Template, ExpressionsOfTheStockTasks) {
  EXPECT_EQ(rendered("{{choices.label.index(key.rstrip())}}"), "1");
  EXPECT_EQ(rendered("{{answers|map(attribute='atext')|list}}"), "['p', 'q']");
  EXPECT_EQ(rendered("{{answers|map(attribute=\"deep.n\")|join('+')}}"), "1+2");
  EXPECT_EQ(rendered("{{ra - 1}}"), "1");
  EXPECT_EQ(rendered("{{text.split(' ')[:-1]|join(' ')}}|{{' '+text.split(' ')[-1]}}"), " a b\u00e9| c");
  EXPECT_EQ(rendered("{{text[start1:end1]}}"), "a b");
  EXPECT_EQ(rendered("{{['a', 'b', 'c'].index('c')}}"), "2");
  EXPECT_EQ(rendered("{{[question, key]}}"), "['Who?', 'B ']");
  EXPECT_EQ(rendered("{{text.lstrip()}}"), "a b\u00e9 c");
}

TEST(Template, OperatorsBindAsInJinja) {
  EXPECT_EQ(rendered("{{1 + 2 * 3 - 4}}"), "3");
  EXPECT_EQ(rendered("{{'a' ~ 1 ~ none}}"), "a1None");
  EXPECT_EQ(rendered("{{'yes' if ra == 2 and not nothing else 'no'}}"), "yes");
  EXPECT_EQ(rendered("{{flag == 1}} {{'b' in 'abc'}} {{3 not in [1, 2]}} {{not 1 in [1]}} {{'a' < 'b'}} {{ra >= 2.5}}"),
            "True True True False True False");
  EXPECT_EQ(rendered("{{nothing or 'x'}} {{'' and 'y'}} {{[1] + [2]}} {{ -ra|string}} {{1.5 * 2}}"),
            "x  [1, 2] -2 3.0");
  EXPECT_EQ(rendered("{{ 'a\\n\\'b' }} {{ \"c\nd\" }}"), "a\n'b c\nd");
}

TEST(Template, TruthValuesAreNumbers) {
  EXPECT_EQ(
      rendered(
          "{{['a', 'b'][flag]}} {{[0, 1].index(flag)}} {{1 in [flag]}} {{[1] == [flag]}} {{flag + flag}} {{flag < 2}}"),
      "b 1 True True 2 True");
}

TEST(Template, ATagEndsOutsideOfStrings) { EXPECT_EQ(rendered("{{ '}}' ~ \"'}}\" ~ 'a\\'}}' }}."), "}}'}}a'}}."); }

TEST(Template, MethodsAndFilters) {
  EXPECT_EQ(rendered("{{'a,b,c'.split(',', 1)}} {{' a  b '.split()}} {{'xxaxx'.strip('x')}}"),
            "['a', 'b,c'] ['a', 'b'] a");
  EXPECT_EQ(rendered("{{'aXa'.replace('a', 'b').lower()}} {{'hELLO'.capitalize()}} {{'-'.join(['a', 'b'])}}"),
            "bxb Hello a-b");
  EXPECT_EQ(rendered("{{'abc'.startswith('ab')}} {{'abc'.endswith('ab')}} {{'ab\u00e9'.index('\u00e9')}}"),
            "True False 2");
  EXPECT_EQ(rendered("{{choices.text|length}} {{'ab\u00e9'|count}} {{[3, 4]|first}} {{[3, 4]|last}} {{' 7 '|int + 1}}"),
            "2 3 3 4 8");
  EXPECT_EQ(rendered("{{'x'|int}} {{'1.7'|int}} {{ -1.7|int}} {{'007'|int}} {{nothing|int}} {{''|int}}"),
            "0 1 -1 7 0 0");
  EXPECT_EQ(rendered("{{'A b'|lower|trim|replace(' ', '_')}} {{'ab'|list}} {{choices['text'][-1]}}"),
            "a_b ['a', 'b'] it's");
}

std::string template_refusal(const std::string& text) {
  try {
    return "no error: " + rendered(text);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    return error.what();
  }
}

TEST(Template, WhatIsNotTakenIsRefusedWithItsPlace) {
  EXPECT_EQ(template_refusal("{% raw %}"), "t.yaml:3: the statement '{% raw %}' of a template is not supported");
  EXPECT_EQ(template_refusal("{{ a"), "t.yaml:3: '{{ a' has no end");
  EXPECT_EQ(template_refusal("{{ cycler(3) }}"), "t.yaml:3: the function cycler is not supported");
  EXPECT_EQ(template_refusal("{{ strftime_now('') }}"), "t.yaml:3: the function strftime_now is not supported");
  EXPECT_EQ(template_refusal("{{ a.format(1) }}"),
            "t.yaml:3: the method format, which is not supported, at byte 10 of the expression ' a.format(1) '");
  EXPECT_EQ(template_refusal("{{ a|tojson }}"),
            "t.yaml:3: the filter tojson, which is not supported, at byte 11 of the expression ' a|tojson '");
  EXPECT_EQ(template_refusal("{{ a|map('e') }}"),
            "t.yaml:3: map with a filter that is not supported at byte 13 of the expression ' a|map('e') '");
  EXPECT_EQ(template_refusal("{{ 1 < 2 < 3 }}"),
            "t.yaml:3: '<', which is not supported, at byte 8 of the expression ' 1 < 2 < 3 '");
  for (const char* text : {"{{}}", "{{ 1 / 2 }}", "{{ a is callable }}", "{{ {1: } }}", "{{ (1 }}", "{{ [1 2] }}",
                           "{{ 'a }}", "{{ a.b(c=1) }}", "{% break %}", "{{ 2 ** 3 }}"})
    EXPECT_TRUE(template_refusal(text).starts_with("t.yaml:3: ")) << text << ": " << template_refusal(text);
  EXPECT_TRUE(template_refusal("{{" + std::string(5000, '(') + "1").find("has no end") != std::string::npos);
  EXPECT_TRUE(template_refusal("{{" + std::string(5000, '(') + std::string(5000, ')') + "}}")
                  .starts_with("t.yaml:3: too much nesting"));
}

TEST(Template, WhatADocumentDoesNotHaveIsNamed) {
  EXPECT_EQ(template_refusal("{{ absent }}"), "field 'absent' is missing (t.yaml:3)");
  EXPECT_EQ(template_refusal("{{ choices.words }}"),
            "there is no 'words' in {'text': ['x', \"it's\"], 'label': ['A', 'B']} (t.yaml:3)");
  EXPECT_EQ(template_refusal("{{ choices.items }}").substr(0, 11), "there is no");
  EXPECT_EQ(template_refusal("{{ choices.text[2] }}"), "there is no 2 in ['x', \"it's\"] (t.yaml:3)");
  EXPECT_EQ(template_refusal("{{ choices.label.index('C') }}"), "'C' is not in ['A', 'B'] (t.yaml:3)");
  EXPECT_EQ(template_refusal("{{ ra + key }}"), "2 + 'B ' has no meaning (t.yaml:3)");
  EXPECT_EQ(template_refusal("{{ ra.strip() }}"), "strip is of a string, not of 2 (t.yaml:3)");
  EXPECT_EQ(template_refusal("{{ 'a'.replace('b') }}"), "replace takes 2 to 3 arguments, not 1 (t.yaml:3)");
}

}  // namespace template_test
}  // namespace espalier::text
