// The steps of curation: those that treat documents one by one, and those that must see all of them first.
//
//   class ShortTexts : public Step {                      // steps/short_texts.cpp
//    public:
//     explicit ShortTexts(int64_t least) : least_(least) {}
//     Fate apply(Document& document) const override {
//       const auto size = static_cast<int64_t>(document.text.size());
//       return size >= least_ ? Fate::kept() : Fate::dropped("short", size, least_);
//     }
//    ...
//   class ShortTextsMaker : public StepMaker {
//    public:
//     void add_rows(OptionTable& table) override { table.add("--least", least_, "bytes that a text must have"); }
//     std::unique_ptr<Step> make_step() const override { return std::make_unique<ShortTexts>(least_); }
//    ...
//
// and a row in the list of its folder (step_kinds.cpp joins these lists). The command line and recipes both come from
// the rows of options: `espalier curate step short-texts --least 100` and, in a recipe, `[[steps]] name =
// "short-texts"` with `least = 100`.
//
// The result depends on the documents and their order only, never on threads, shards or restarts.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "curate/digests.h"
#include "curate/document.h"
#include "curate/judge.h"

namespace espalier::curate {

// One document at a time. Any thread, several at once: what a step learnt before (lists, models) is read only.
class Step {
 public:
  virtual ~Step() = default;
  // Changes the document, or says that it is dropped.
  virtual Fate apply(Document& document) const = 0;
  // What apply() would measure of it, as far as it is numbers: all of it, whatever is dropped. Judge helps.
  virtual void measure(const Document& document, std::vector<Measure>& measures) const {
    (void)document;
    (void)measures;
  }
  // After the documents: what looks like a mistake in the options, such as a key that no document had. For a warning.
  virtual std::string doubt() const { return ""; }
};

// A step that only compares values with thresholds, possibly after changing the text.
class JudgedStep : public Step {
 public:
  Fate apply(Document& document) const final {
    prepare(document);
    Judge one;
    judge(document, one);
    return one.fate();
  }
  void measure(const Document& document, std::vector<Measure>& measures) const final {
    Document prepared = document;
    prepare(prepared);
    Judge all(&measures);
    judge(prepared, all);
  }

 private:
  virtual void prepare(Document& document) const { (void)document; }
  virtual void judge(const Document& document, Judge& judge) const = 0;
};

// Where a part of a pass works: a folder of its own, empty at first, which stays with what is in it.
struct PassSpace {
  std::filesystem::path folder;
  int64_t memory_bytes = int64_t{1} << 30;
};

// What a pass learns from one part of the digests. One thread.
class PassPart {
 public:
  virtual ~PassPart() = default;
  // In the order of the numbers. Documents that went before this step leave gaps.
  virtual void add(int64_t number, std::string_view digest) = 0;
  // After the last one. May take long; leaves in its folder what join() or open() reads, and nothing else.
  virtual void finish() = 0;
};

// Sees every document twice: for digest(), and for decide() when all are known. Between the two, its parts are made, by
// any thread of any process, each from all digests of that part; then they are joined.
class Pass {
 public:
  virtual ~Pass() = default;
  virtual int64_t num_parts() const { return 1; }
  // The part of the work that needs the text. Any thread.
  virtual void digest(const Document& document, Digests& digests) const = 0;
  // Any thread. The pass outlives the part.
  virtual std::unique_ptr<PassPart> make_part(int64_t part, const PassSpace& space) const = 0;
  // In one process, where there are several parts: leaves in `space.folder` what open() reads, from what they have
  // left.
  virtual void join(const std::vector<std::filesystem::path>& parts, const PassSpace& space) const {
    (void)parts;
    (void)space;
  }
  // In each process. `folder`: what join() has left, or the only part.
  virtual void open(const std::filesystem::path& folder) = 0;
  // After open(). Any thread, any order, each document that left a digest once. May change it.
  virtual Fate decide(Document& document) const = 0;
  // What the report says besides counts: clusters, thresholds, ... After open().
  virtual nlohmann::ordered_json facts() const { return nlohmann::ordered_json::object(); }
  virtual std::string doubt() const { return ""; }  // as of a Step, of a pass that any document reached
};

// The options of one step of a recipe, and the step that they configure.
class StepMaker {
 public:
  virtual ~StepMaker() = default;
  // Binds rows to members of this object.
  virtual void add_rows(OptionTable& table) { (void)table; }
  // All problems with the options, missing files included, before any document is read. Messages name
  // options as the command line has them ("--least 0: ..."). May read the files that the step will need.
  virtual void check(Problems& problems) { (void)problems; }
  // One of the two, after check() found nothing. The maker outlives what it makes.
  virtual std::unique_ptr<Step> make_step() const { return nullptr; }
  virtual std::unique_ptr<Pass> make_pass() const { return nullptr; }
  // Whether it may cut documents into pieces, which have one number. Passes know documents by their numbers, so they
  // must come before.
  virtual bool may_split() const { return false; }
};

struct StepKind {
  const char* name;     // "oscar"
  const char* summary;  // one line of the help
  std::unique_ptr<StepMaker> (*make)();
};

template <class Maker>
std::unique_ptr<StepMaker> make_maker() {
  return std::make_unique<Maker>();
}

// All, in the order of the help.
const std::vector<StepKind>& step_kinds();
// Null if there is none of that name.
const StepKind* find_step_kind(std::string_view name);

// The lists that step_kinds() joins.
std::vector<StepKind> text_step_kinds();   // steps/
std::vector<StepKind> dedup_step_kinds();  // dedup/

}  // namespace espalier::curate
