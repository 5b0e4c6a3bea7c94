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

// Where a pass may put what does not fit into memory: a folder of its own, empty at first, removed afterwards.
struct PassSpace {
  std::filesystem::path folder;
  int64_t memory_bytes = int64_t{1} << 30;
};

// Sees every document twice: for digest() and add(), and, after finish(), for decide().
class Pass {
 public:
  virtual ~Pass() = default;
  // What add() has to know of a document: the part of the work that many threads share. Any thread.
  virtual std::string digest(const Document& document) const = 0;
  // One thread, in the order of the numbers. Documents that went before this step leave gaps.
  virtual void add(int64_t number, std::string_view digest) = 0;
  // After the last one. May take long; spills into the folder of its PassSpace.
  virtual void finish() = 0;
  // Any thread, any order, each document that was added once. May change it.
  virtual Fate decide(Document& document) const = 0;
  // What the report says besides counts: clusters, thresholds, ... After finish().
  virtual nlohmann::ordered_json facts() const { return nlohmann::ordered_json::object(); }
  virtual std::string doubt() const { return ""; }  // as of a Step, after the last decide()
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
  virtual std::unique_ptr<Pass> make_pass(const PassSpace& space) const {
    (void)space;
    return nullptr;
  }
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
