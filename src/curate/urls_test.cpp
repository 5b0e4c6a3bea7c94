#include "curate/urls.h"

#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

TEST(Urls, RegisteredDomainsFollowThePublicSuffixList) {
  const test::TestFolder folder;
  test::write_text(folder / "list",
                   "// ===BEGIN ICANN DOMAINS===\ncom\nuk\nco.uk\n*.ck\n!www.ck\n// ===END ICANN DOMAINS===\n"
                   "// ===BEGIN PRIVATE DOMAINS===\ngithub.io\n// ===END PRIVATE DOMAINS===\n");
  const PublicSuffixes suffixes(folder / "list");
  // By hand, after the algorithm of publicsuffix.org.
  for (const auto& [host, domain] :
       std::vector<std::pair<std::string, std::string>>{{"example.com", "example.com"},
                                                        {"a.b.example.com", "example.com"},
                                                        {"www.example.co.uk", "example.co.uk"},
                                                        {"example.uk", "example.uk"},
                                                        {"co.uk", ""},
                                                        {"com", "com"},
                                                        {"x.y.unknown", "unknown"},
                                                        {"a.b.c.ck", "b.c.ck"},
                                                        {"1.2.3.4", "1.2.3.4"},
                                                        {"localhost", "localhost"},
                                                        {"", ""}})
    EXPECT_EQ(suffixes.registered_domain(host), domain) << host;
  EXPECT_THROW(PublicSuffixes(folder / "missing"), UserError);
}

TEST(Urls, HostsAreReadOutOfUrls) {
  EXPECT_EQ(host_of("https://User:pw@WWW.Example.COM:80/a?b@c"), "www.example.com");
  EXPECT_EQ(host_of("example.com."), "example.com");
  EXPECT_EQ(host_of(""), "");
  EXPECT_EQ(host_of("http://"), "");
}

// Made with the original's regular expression in Python 3.11.
TEST(Urls, WellFormedUrlsAreThoseOfTheOriginal) {
  for (const char* good :
       {"http://example.com", "HTTPS://EXAMPLE.com/", "http://a.b-c.example.com:8080/x?y", "http://example.com?q=1",
        "http://1.2.3.4/x", "http://example.com./x", "http://a.b--c", "http://999.999.999.999",
        "http://xn--a.xn--p1ai/\xc3\xa9", "http://example.com/#a", "http://a.--"})
    EXPECT_TRUE(is_well_formed_url(good)) << good;
  for (const char* bad :
       {"", "http://", "ftp://example.com/x", "example.com/long/path", "http://localhost/page", "http://a_b.com/page",
        "http://example.c", "http://-a.com", "http://a-.com", "http://a..com", "http://example.com:/x",
        "http://example.com:8x", "http://example.com/a b", "http://example.com#a", "http://1.2.3.4.",
        "http://user@a.com", "http://a.com/\xe2\x80\x83", "http://a.com?", "http://.com"})
    EXPECT_FALSE(is_well_formed_url(bad)) << bad;
}

TEST(Urls, TheFirstRuleThatAppliesIsTheReason) {
  const test::TestFolder folder;
  test::write_text(folder / "domains", "# a comment\nexample\nBad.org\n\n");
  test::write_text(folder / "extensions", ".pdf\n.JPG\n");
  const std::string toml =
      concat("domains = [\"", folder / "domains", "\"]\nextensions = [\"", folder / "extensions", "\"]");
  const auto reason = [&](const std::string& url) {
    return test::apply("urls", toml, "text", nlohmann::json{{"url", url}}.dump()).fate.reason;
  };
  EXPECT_EQ(reason("http://www.example.co.uk/x.pdf"), "domain");
  EXPECT_EQ(reason("http://EXAMPLE.com/"), "domain");
  EXPECT_EQ(reason("http://sub.bad.org/"), "domain");
  EXPECT_EQ(reason("http://example.other.com/page"), "");
  EXPECT_EQ(reason("http://notbad.org/page"), "");
  EXPECT_EQ(reason("http://other.com/a.PDF?download=1"), "extension");
  EXPECT_EQ(reason("http://other.com/a?file=x.pdf"), "");
  EXPECT_EQ(reason("http://a"), "short");
  EXPECT_EQ(reason("  http://a  "), "short");
  EXPECT_EQ(reason("http://ab"), "malformed");
  EXPECT_EQ(test::apply("urls", toml, "text").fate.kind, Fate::Kind::kKept);
  EXPECT_EQ(test::apply("urls", toml + "\nwithout_url = \"drop\"", "text").fate.reason, "no_url");
  EXPECT_NE(
      test::problems_of("urls", "domains = [\"/nowhere\"]\npublic_suffixes = \"/nowhere\"").find("--public-suffixes"),
      std::string::npos);
}

TEST(UrlsStep, DoubtsAKeyThatNoDocumentHas) {
  const std::unique_ptr<StepMaker> maker = test::maker_of("urls", "url_key = \"link\"");
  const std::unique_ptr<Step> step = maker->make_step();
  EXPECT_EQ(step->doubt(), "");
  Document document;
  document.metadata.set("url", "http://other.com/page");
  step->apply(document);
  EXPECT_NE(step->doubt().find("no document has a URL under the key 'link'"), std::string::npos) << step->doubt();
  document.metadata.set("link", "http://other.com/page");
  step->apply(document);
  EXPECT_EQ(step->doubt(), "");
}

}  // namespace
}  // namespace espalier::curate
