#include "curate/input/mediawiki.h"

#include "base/error.h"
#include "base/format.h"
#include "curate/input/wikitext.h"
#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

std::string stripped(const std::string& source) {
  std::string text, reason;
  return strip_wikitext(source, text, reason) ? text : "refused: " + reason;
}

TEST(Wikitext, KeepsTextOfLinksAndTitles) {
  EXPECT_EQ(stripped("'''Ada''' was ''a'' '''''mathematician'''''; it's [[London|hers]] and [[Paris]]s."),
            "Ada was a mathematician; it's hers and Pariss.");
  EXPECT_EQ(stripped("Intro.\n== Early life ==\nText.\n===Deep===\n* one\n# two\n\nLast."),
            "Intro.\n\nEarly life\n\nText.\n\nDeep\n\none\ntwo\n\nLast.");
  EXPECT_EQ(stripped("See [http://a.org the site], [https://b.org] and [not a link]."),
            "See the site,  and [not a link].");
  EXPECT_EQ(stripped("[[:Category:Rivers]] [[Category:Rivers]]x[[File:A.jpg|thumb|a [[link|b]] ''c'']]y"),
            "Category:Rivers xy");
  EXPECT_EQ(stripped("a&nbsp;b &amp;lt; &eacute; c<br/>d <b class=x>e</b> 1 < 2 > 0 <y>"),
            "a\xc2\xa0"
            "b &lt; é c\nd e 1 < 2 > 0 <y>");
  EXPECT_EQ(stripped("[[Datei:X.png|mini|Bild]]Wort [[Kategorie:Y]]\n[[ファイル:a.png]]語"), "Wort\n語");
}

TEST(Wikitext, LeavesOutTemplatesTablesAndReferences) {
  EXPECT_EQ(stripped("{{Infobox|a={{b|[[c]]}}|d=\n* e}}Born<ref name=x>Book {{cite}}</ref> here<ref name=x/>."),
            "Born here.");
  EXPECT_EQ(stripped("a\n{| class=x\n! h\n|-\n| {{t|1}} || b\n{|\n| inner\n|}\n|}\nz"), "a\n\nz");
  EXPECT_EQ(stripped("a<table><tr><td>b<table>c</table></td></tr></table>d"), "ad");
  EXPECT_EQ(stripped("x <!-- hidden [[ {{ --> y <nowiki>''[[z]]''</nowiki> <math>a<b</math>__NOTOC__ w"),
            "x  y ''[[z]]''  w");
  EXPECT_EQ(stripped("{{t|\n|}}after {{{1|}}}."), "after }.");
}

TEST(Wikitext, BearsWhatIsNeverClosed) {
  EXPECT_EQ(stripped("a {{b [[c\nd</ref> <ref>e"), "a b c\nd e");
  EXPECT_EQ(stripped("a }} b ]] c |} d"), "a }} b ]] c |} d");
  EXPECT_EQ(stripped("a\n{|\n| b\n\nc"), "a");
  EXPECT_EQ(stripped("a <!-- b"), "a");
  EXPECT_EQ(stripped(""), "");
  EXPECT_EQ(stripped("{{"), "");
  EXPECT_EQ(stripped("''''four'''' ''''''six"), "'four' 'six");
  for (const char* mark : {"{{", "\n{|", "<table>"}) {
    std::string deep;
    for (int index = 0; index < 1000000; ++index) deep += mark;
    EXPECT_EQ(stripped(deep), "refused: The page's templates, tables and links are nested more than 100 deep");
  }
  // Each of these would take hours, were it searched for anew each time.
  for (const char* mark : {"<ref>", "<!-", "</ref", "[[a\n", "[http://", "\n ", "{{}} ", "__A", "&#1", "'"}) {
    std::string many;
    for (int index = 0; index < 300000; ++index) many += mark;
    EXPECT_LE(stripped(many).size(), many.size());
  }
}

std::string page_of(const std::string& title, const std::string& space, const std::string& text,
                    const std::string& more = "") {
  return concat("  <page>\n    <title>", title, "</title>\n    <ns>", space, "</ns>\n    <id>7</id>\n", more,
                "    <revision>\n      <id>9</id>\n      <model>wikitext</model>\n      <text bytes=\"3\" "
                "xml:space=\"preserve\">",
                text, "</text>\n    </revision>\n  </page>\n");
}
const char kHead[] = "<mediawiki xmlns=\"x\" version=\"0.11\">\n  <siteinfo><dbname>testwiki</dbname></siteinfo>\n";

RunResult read_dump(const std::string& file, const TestFolder& folder, std::vector<Document>& documents) {
  RunPlan plan;
  plan.sources = {{.format = InputFormat::kMediaWiki, .files = {file}}};
  plan.workers = 2;
  plan.work_folder = folder / "work";
  return run(plan, [&](Document&& document) { documents.push_back(std::move(document)); });
}

TEST(MediaWiki, GivesArticles) {
  TestFolder folder;
  const std::string long_text(600000, 'x');  // over several reads
  write_text(
      folder / "a.xml",
      concat(kHead,
             page_of("A &amp; B", "0",
                     "&lt;b&gt;R&amp;amp;D&lt;/b&gt; &quot;x&quot; &#233;&#xe9; &lt;ref&gt;r&lt;/ref&gt;"),
             page_of("Talk:A", "1", "talk"), page_of("C", "0", "#REDIRECT [[A]]", "    <redirect title=\"A\" />\n"),
             page_of("D", "0", ""), page_of("E", "0", long_text), "</mediawiki>\n"));
  std::vector<Document> documents;
  const RunResult result = read_dump(folder / "a.xml", folder, documents);
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text, "R&D \"x\" éé");
  EXPECT_EQ(documents[0].metadata.text("title"), "A & B");
  EXPECT_EQ(documents[0].metadata.text("id"), "7");
  EXPECT_EQ(documents[1].number, 4);
  EXPECT_EQ(documents[1].text, long_text);
  EXPECT_EQ(result.input.num_malformed, 3);
}

TEST(MediaWiki, TakesTheLastRevision) {
  Document document;
  std::string reason;
  int64_t num_replaced = 0;
  const std::string page =
      "<page><title>A</title><ns>0</ns><id>1</id><revision><text>old</text></revision>"
      "<revision><text>n\xffw</text></revision></page>";
  ASSERT_TRUE(read_mediawiki_page(page, document, reason, num_replaced)) << reason;
  EXPECT_EQ(document.text, "n\xef\xbf\xbdw");
  EXPECT_EQ(num_replaced, 1);
  const std::string script =
      "<page><title>A</title><ns>0</ns><revision><model>json</model><text>{}</text></revision></page>";
  EXPECT_FALSE(read_mediawiki_page(script, document, reason, num_replaced));
  EXPECT_EQ(reason, "The page is not wikitext");
  EXPECT_FALSE(read_mediawiki_page("<page><ns>0</ns></page>", document, reason, num_replaced));
  EXPECT_EQ(reason, "The page has no revision");
}

TEST(MediaWiki, SaysWhereADumpIsDamaged) {
  TestFolder folder;
  const std::string page = page_of("A", "0", "text");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{\"text\": 1}\n", "page 1: not a MediaWiki dump: expected <mediawiki"},
      {"", "page 1: not a MediaWiki dump: expected <mediawiki"},
      {kHead + page, "page 2: the file is cut off: it does not end in </mediawiki>"},
      {kHead + page + page.substr(0, 60), "page 2: the file is cut off: the page does not end"}};
  for (const auto& [content, message] : cases) {
    write_text(folder / "a", content);
    try {
      std::vector<Document> documents;
      read_dump(folder / "a", folder, documents);
      ADD_FAILURE() << message;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()), concat("'", folder / "a", "', ", message));
      EXPECT_EQ(error.code(), ExitCode::kBadData);
    }
  }
}

}  // namespace
}  // namespace espalier::curate
