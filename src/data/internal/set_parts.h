// From a data plan to what one set reads: its token files, the documents of each, how many samples of each, and the
// blend of them. Shared by the data sets of every kind of model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/data_plan.h"
#include "data/mixture.h"
#include "data/token_store.h"

namespace espalier::data::internal {

enum SetKind : size_t { kTrain, kValid, kTest };

struct SetPart {
  std::string prefix;
  std::optional<FractionRange> range;  // as given
  std::shared_ptr<const TokenStore> store;
  DocumentRange documents;
  int64_t num_samples = 0;  // asked for
  double weight = 1;        // the sum being 1; 0 where the run does not begin with it
  std::string
      source_name;    // for people and for tags of curves: the last part of the prefix, longer where two are equal
  std::string title;  // of the set in this file: "train of wiki"
};

// Opens each token file once, however many sets read it.
class SetParts {
 public:
  // What a split counts: the sequences of a file (GPT's documents), or its documents.
  using Count = int64_t (TokenStore::*)() const;

  // The file whose documents are counted is that of the prefix and `ending`.
  SetParts(const Split& split, Count count, const std::string& ending = "")
      : split_(split), count_(count), ending_(ending) {}

  // Empty when none of the sources gives the set a document. Throws a UserError where a source gives train none; of
  // another set such a source is left out, with a warning if samples were asked for.
  std::vector<SetPart> make(const DataGroup& group, SetKind kind, int64_t num_samples);

  // The training set of a run in stages: `parts` of the run's beginning get those behind them that a later stage adds,
  // each asked for one sample, and the stages are returned, the first included. A source is the same in two stages if
  // its files and its documents are.
  std::vector<Mixture::Stage> add_stages(const std::vector<DataPlan::Stage>& stages, std::vector<SetPart>& parts);

  const std::shared_ptr<const TokenStore>& store(const std::string& prefix);

 private:
  DocumentRange documents_of(const DataSource& source, SetKind kind);
  std::vector<DataSource> with_documents(const DataGroup& group, SetKind kind, int64_t num_samples);

  const Split split_;
  const Count count_;
  const std::string ending_;
  std::map<std::string, std::shared_ptr<const TokenStore>> stores_;
};

// What a set reads in turn: `lengths` are the samples that each part has, where there are no stages.
Mixture mixture_of(const std::vector<SetPart>& parts, const std::vector<int64_t>& lengths, const std::string& name,
                   int64_t num_samples);

// Nothing for a single part. `lengths`: the samples that each part has.
std::optional<BlendIndex> blend_of(const std::vector<double>& weights, const std::vector<int64_t>& lengths,
                                   const std::string& name, int64_t num_samples);

// A group for each of `groups`; null results are left out.
template <class Build>
auto build_groups(const std::vector<DataGroup>& groups, Build build) {
  std::vector<decltype(build(groups.front()))> built;
  for (const DataGroup& group : groups)
    if (auto dataset = build(group)) built.push_back(std::move(dataset));
  return built;
}

}  // namespace espalier::data::internal
