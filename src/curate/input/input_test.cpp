#include "curate/input.h"

#include "curate/input/html_text.h"
#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

std::string text_of_page(const std::string& html, const std::string& charset = "") {
  HtmlPage page;
  std::string reason;
  return read_html(html, charset, page, reason) ? page.text : "refused: " + reason;
}

TEST(Html, KeepsWhatAReaderCameFor) {
  EXPECT_EQ(text_of_page("<html><head><title>T</title><style>p{}</style></head><body><nav><a href=x>Home</a></nav>"
                         "<h1>River</h1><p>The <b>first</b>\n paragraph&nbsp;&amp; more.</p><ul><li>one<li>two</ul>"
                         "<div><a href=a>Next</a> <a href=b>Previous</a></div><script>x()</script>"
                         "<footer>(c)</footer></body>"),
            "River\n\nThe first paragraph\xc2\xa0& more.\n\none\ntwo");
  EXPECT_EQ(text_of_page("<body><p>outside</p><main><p>a<br>b</p></main></body>"), "a\nb");
  EXPECT_EQ(text_of_page("<p>Read <a href=x>this</a> long text about something else entirely.</p>"),
            "Read this long text about something else entirely.");
  EXPECT_EQ(text_of_page("<table><tr><th>a b</th><td>c</td></tr><tr><td>d<td> <b>e</b></table>"), "a b c\nd e");
  EXPECT_EQ(text_of_page(""), "");
  EXPECT_EQ(text_of_page("no tags"), "no tags");
}

TEST(Html, ReadsEncodings) {
  EXPECT_EQ(text_of_page("caf\xe9 \x80", "ISO-8859-1"), "café €");
  EXPECT_EQ(text_of_page("<meta charset=\"windows-1252\"><p>\x93x\x94"), "“x”");
  EXPECT_EQ(text_of_page("caf\xe9"), "caf\xef\xbf\xbd");
  EXPECT_EQ(text_of_page("<meta charset=koi8-r>"), "refused: The page's encoding, koi8-r, is not supported");
}

TEST(Html, BearsHostileMarkup) {
  std::string deep;
  for (int tag = 0; tag < 40000; ++tag) deep += "<div>";
  EXPECT_EQ(text_of_page(deep + "x"), "refused: The page's elements are nested more than 500 deep");
  EXPECT_EQ(text_of_page(deep.substr(0, 5 * 400) + "x"), "x");
  std::string list = "<ul>";
  for (int item = 0; item < 5000; ++item) list += "<li>x";
  EXPECT_EQ(text_of_page(list).size(), 2u * 5000 - 1);
  EXPECT_EQ(text_of_page(std::string(60000, '<')), "refused: The page has more than 50000 tags");
}

struct Read {
  std::vector<std::string> texts;
  RunResult result;
  std::vector<Document> documents;
};
Read read_all(InputFormat format, const std::vector<std::string>& files, const TestFolder& folder) {
  RunPlan plan;
  plan.sources = {{.format = format, .files = files}};
  plan.workers = 2;
  plan.work_folder = folder / "work";
  Read read;
  read.result = run(plan, [&](Document&& document) {
    read.texts.push_back(document.text);
    read.documents.push_back(std::move(document));
  });
  return read;
}

std::string warc_record(const std::string& type, const std::string& content) {
  return concat("WARC/1.0\r\nWARC-Type: ", type,
                "\r\nWARC-Target-URI: http://a.org/\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n",
                "Content-Length: ", content.size(), "\r\n\r\n", content, "\r\n\r\n");
}

TEST(Warc, GivesPagesAndConversions) {
  TestFolder folder;
  const std::string page =
      "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=iso-8859-1\r\n\r\n<title>T</title><p>caf\xe9";
  write_text(folder / "a.warc", warc_record("warcinfo", "x: y\r\n") + warc_record("response", page) +
                                    warc_record("request", "GET / HTTP/1.1\r\n\r\n") +
                                    warc_record("response", "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\nP") +
                                    warc_record("conversion", "plain\ntext\n"));
  const Read read = read_all(InputFormat::kWarc, {folder / "a.warc"}, folder);
  EXPECT_EQ(read.texts, (std::vector<std::string>{"café", "plain\ntext"}));
  EXPECT_EQ(read.documents[0].number, 1);
  EXPECT_EQ(read.documents[0].metadata.text("url"), "http://a.org/");
  EXPECT_EQ(read.documents[0].metadata.text("title"), "T");
  EXPECT_EQ(read.documents[1].metadata.text("date"), "2026-01-02T03:04:05Z");
  EXPECT_EQ(read.result.input.num_malformed, 3);
}

TEST(Warc, SaysWhereAFileIsDamaged) {
  TestFolder folder;
  const std::string whole = warc_record("conversion", std::string(1000, 'x'));
  for (const std::string& broken : {std::string("{\"text\": 1}\r\n\r\n"), whole.substr(0, 500), whole.substr(0, 50),
                                    std::string("WARC/1.0\r\nContent-Length: -3\r\n\r\n")}) {
    write_text(folder / "a", broken);
    try {
      read_all(InputFormat::kWarc, {folder / "a"}, folder);
      ADD_FAILURE() << broken.substr(0, 60);
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find(concat("'", folder / "a", "', record 1: ")), 0u) << error.what();
      EXPECT_EQ(error.code(), ExitCode::kBadData);
    }
  }
}

TEST(Input, LinesTextsAndPages) {
  TestFolder folder;
  write_text(folder / "a", "one\n\ntwo \xff\n");
  write_text(folder / "b", "");
  const Read lines = read_all(InputFormat::kLines, {folder / "a", folder / "b"}, folder);
  EXPECT_EQ(lines.texts, (std::vector<std::string>{"one", "two \xef\xbf\xbd"}));
  EXPECT_EQ(lines.result.input.num_malformed, 1);
  const Read texts = read_all(InputFormat::kText, {folder / "a", folder / "b"}, folder);
  EXPECT_EQ(texts.texts, (std::vector<std::string>{"one\n\ntwo \xef\xbf\xbd\n"}));
  EXPECT_EQ(texts.documents[0].metadata.text("file"), folder / "a");
  EXPECT_EQ(texts.result.input.first_malformed, std::vector<std::string>{(folder / "b") + ":1: The file is empty"});
  write_text(folder / "c", "<p>page</p>");
  EXPECT_EQ(read_all(InputFormat::kHtml, {folder / "c"}, folder).texts, std::vector<std::string>{"page"});
}

TEST(Input, NamesFilesOfOtherFormats) {
  TestFolder folder;
  const auto problem_with = [&](InputFormat format, const std::string& bytes) {
    write_text(folder / "a", bytes);
    try {
      read_all(format, {folder / "a"}, folder);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadData);
      return std::string(error.what());
    }
    return std::string("none");
  };
  for (const auto& [bytes, format] : {std::pair{"WARC/1.0\r\nWARC-Type: response\r\n", "warc"},
                                      {"\n<MediaWiki xmlns=\"x\">\n", "mediawiki"},
                                      {"<!DOCTYPE HTML>\n<p>", "html"},
                                      {"  <html lang=\"en\">\n", "html"}}) {
    EXPECT_NE(problem_with(InputFormat::kJsonl, bytes).find(concat("Read it with --format ", format)),
              std::string::npos)
        << bytes;
    EXPECT_EQ(problem_with(InputFormat::kLines, bytes), "none") << bytes;
  }
  const std::string utf16("\xff\xfe{\0}\0\n\0", 8);
  EXPECT_NE(problem_with(InputFormat::kJsonl, utf16).find("is UTF-16"), std::string::npos);
  EXPECT_NE(problem_with(InputFormat::kLines, utf16).find("is UTF-16"), std::string::npos);
  // One of many files that each are a document.
  write_text(folder / "b", "\xef\xbb\xbftext");
  for (const InputFormat format : {InputFormat::kText, InputFormat::kHtml}) {
    const Read read = read_all(format, {folder / "a", folder / "b"}, folder);
    EXPECT_EQ(read.texts, std::vector<std::string>{"text"});
    ASSERT_EQ(read.result.input.num_malformed, 1);
    EXPECT_NE(read.result.input.first_malformed.front().find("The file is UTF-16"), std::string::npos);
  }
}

}  // namespace
}  // namespace espalier::curate
