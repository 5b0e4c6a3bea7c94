// Documents by their URL (curate/urls.h).
#include "curate/urls.h"

#include <atomic>

#include "base/file.h"
#include "base/format.h"
#include "curate/dedup/dedup.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

enum class MissingUrl { kStays, kGoes };

struct UrlsConfig {
  std::string key = "url", public_suffixes;
  std::vector<std::string> domains, extensions;
  MissingUrl missing = MissingUrl::kStays;
  UrlRules rules;
};

class UrlsStep : public Step {
 public:
  UrlsStep(const UrlsConfig& config, const PublicSuffixes& suffixes) : config_(config), suffixes_(suffixes) {}

  Fate apply(Document& document) const override {
    const std::optional<std::string> url = document.metadata.text(config_.key);
    note(saw_document_);
    if (url) note(saw_url_);
    if (!url) return config_.missing == MissingUrl::kStays ? Fate::kept() : Fate::dropped("no_url");
    const char* const reason = why_not_url(text::python::strip(*url), config_.rules, suffixes_);
    return reason == nullptr ? Fate::kept() : Fate::dropped(reason);
  }

  std::string doubt() const override { return saw_document_ && !saw_url_ ? no_url_doubt(config_.key) : ""; }

 private:
  static void note(std::atomic<bool>& flag) {
    if (!flag.load(std::memory_order_relaxed)) flag.store(true, std::memory_order_relaxed);  // written once
  }

  UrlsConfig config_;
  PublicSuffixes suffixes_;
  mutable std::atomic<bool> saw_document_ = false, saw_url_ = false;
};

// Entries of files with one per line; lines that begin with # are comments.
std::vector<std::string> entries_of(const char* option, const std::vector<std::string>& files, Problems& problems) {
  std::vector<std::string> entries;
  for (const std::string& file : files) {
    try {
      for (const std::string& line : split(read_file(file), '\n')) {
        const std::string entry = text::python::lowercase(strip(line));
        if (!entry.empty() && entry[0] != '#') entries.push_back(entry);
      }
    } catch (const UserError& error) {
      problems.add(option, ": ", error.what());
    }
  }
  return entries;
}

class UrlsMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--url-key", config_.key, "key of the record that holds the URL").value_name("KEY");
    table
        .add("--domains", config_.domains,
             "files of names whose documents are dropped, one a line: a label such as `example` means example.com, "
             "example.co.uk and all hosts below, a name with a dot for itself and what is below it")
        .value_name("FILE");
    table
        .add("--extensions", config_.extensions,
             "files of ends such as `.pdf`, one a line, that a URL may not have in front of its query")
        .value_name("FILE");
    table.add("--public-suffixes", config_.public_suffixes, "the public suffix list (publicsuffix.org)")
        .value_name("FILE")
        .default_text("the system's, or libpsl's own");
    table.add("--short", config_.rules.most_short, "URLs of at most this many characters are dropped").minimum(0);
    table.add_choice("--without-url", config_.missing, {{"keep", MissingUrl::kStays}, {"drop", MissingUrl::kGoes}},
                     "what becomes of documents that have none");
  }
  void check(Problems& problems) override {
    for (const std::string& name : entries_of("--domains", config_.domains, problems))
      config_.rules.domains.insert(name);
    config_.rules.extensions = entries_of("--extensions", config_.extensions, problems);
    try {
      suffixes_.emplace(config_.public_suffixes);
    } catch (const UserError& error) {
      problems.add("--public-suffixes: ", error.what());
    }
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<UrlsStep>(config_, *suffixes_); }

 private:
  UrlsConfig config_;
  std::optional<PublicSuffixes> suffixes_;
};

}  // namespace

std::string no_url_doubt(const std::string& key) {
  return concat("no document has a URL under the key '", key, "'; see --url-key");
}

std::unique_ptr<StepMaker> urls_maker() { return std::make_unique<UrlsMaker>(); }

}  // namespace espalier::curate
