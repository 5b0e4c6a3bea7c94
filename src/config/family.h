// What the rest of the system can ask of a kind of model before it exists: a struct of functions, one value for each
// family (families/registry.h lists them). What has a family's own options and nothing else is a FamilyConfig; what
// everything else knows of the model is the ModelSpec that the family makes of it.
#pragma once

#include <any>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "spec/model_spec.h"

namespace espalier::text {
class Tokenizer;
}
namespace espalier::data {
struct DataPlan;
}

namespace espalier::config {

struct RunConfig;

// The options of one family, as a value: a copyable struct that only its family knows.
class FamilyConfig {
 public:
  FamilyConfig() = default;
  template <class T>
  explicit FamilyConfig(T settings)
      : settings_(std::move(settings)),
        assign_([](FamilyConfig& to, const FamilyConfig& from) { to.as<T>() = from.as<T>(); }) {}

  // CHECKs that it is one. References stay valid until this object is assigned to or destroyed.
  template <class T>
  T& as() {
    T* const settings = std::any_cast<T>(&settings_);
    ESPALIER_CHECK(settings != nullptr, "the settings of another model family");
    return *settings;
  }
  template <class T>
  const T& as() const {
    return const_cast<FamilyConfig*>(this)->as<T>();
  }
  // Takes the values of another of the same family, in place: references stay valid, and rows that fill this one do.
  void set(const FamilyConfig& other) { assign_(*this, other); }

 private:
  std::any settings_;
  void (*assign_)(FamilyConfig& to, const FamilyConfig& from) = nullptr;
};

// Where rows of a family are between those that all have, so that help keeps the groups of Megatron-DeepSpeed.
enum class FamilyRows {
  kSize,            // group "network size", before the rows of the vocabulary
  kShape,           // after them
  kRegularization,  // first of the group of that name: dropout
  kInitialization,  // after the seed
  kData             // last of those of the group "data and dataloader" that have an effect
};

class Resolving;
class UnusedOptions;

// A checkpoint of another family that a run may begin with: weights that both have under their names.
struct Pretrained {
  const char* option = "--pretrained-checkpoint";                      // that names its folder
  const std::string& (*folder)(const FamilyConfig& config) = nullptr;  // null: the family's runs begin with none
  // What a parameter may be called there: the first of them that exists is taken; null: as it is here.
  std::vector<std::string> (*names)(const std::string& parameter) = nullptr;
};

struct Family {
  const char* name = "";                            // as in `espalier train gpt`, and in manifests
  const char* display = "";                         // for people: "GPT"
  const char* kin = "";                             // in lists of commands: "GPT-2, BLOOM, Llama and similar models"
  const char* summary = "";                         // of `espalier train NAME --help`
  const char* tokenizer_type = "GPT2BPETokenizer";  // where --tokenizer-type is not given, as in upstream's scripts
  FamilyConfig (*new_config)() = nullptr;
  void (*add_options)(OptionTable& table, FamilyConfig& config, FamilyRows where) = nullptr;
  // Derives what is not given and checks it, against the grid and the sequence length too, which are resolved before.
  void (*resolve)(const Resolving& resolving, FamilyConfig& config) = nullptr;
  // Given options that others leave without effect (config/unused_options.h).
  void (*find_unused)(const RunConfig& run, UnusedOptions& unused) = nullptr;
  // Layers that pipeline stages divide: depths of the ModelSpec but the first and the last. 0 while it is not known.
  int64_t (*num_layers)(const FamilyConfig& config) = nullptr;
  // Null, or it sets what files of the family's own decide of a run: its length in epochs, and that it only evaluates.
  // The batch size is resolved. Files that cannot be read are for check_data() to report.
  void (*resolve_epochs)(RunConfig& run, const OptionTable& table, Problems& problems) = nullptr;
  Pretrained pretrained = {};
  bool reads_token_files = true;  // those of --data-path; false: the family's own options name its data
  // Its samples can be those of running text: --data-stages, --packing and --seq-length-stages have a meaning.
  bool reads_running_text = false;
  // Its loss is that of predicted tokens alone (models/lm_loss.h), whose labels can be drawn from the model as well.
  bool predicts_tokens = false;
  // Its attention can be causal and nothing else, which is all that --attention-backend cudnn computes; resolve() says
  // with which options it is not.
  bool attends_plainly = false;
  // A sample of it competes with all others of a micro-batch, of every replica: with another number of these the same
  // step has another loss.
  bool competes_across_replicas = false;
  // Null, or what --pp-partition-method would say: then options of the family divide its layers, and resolve() says
  // what is wrong with stages, chunks and their layers.
  std::string (*partition_method)(const RunConfig& run) = nullptr;
  // Of a resolved run; without a vocabulary it has no rows of words.
  spec::ModelSpec (*model)(const RunConfig& run) = nullptr;
  // What the names of the token files of a data set add to its prefix (data::DataSetOptions::endings); null: nothing.
  std::vector<std::string> (*token_file_endings)(const RunConfig& run) = nullptr;
  // What the model asks of the tokenizer (null where it could not be read) and of the data of a plan, before anything
  // starts; null: nothing.
  void (*check_data)(const RunConfig& run, const text::Tokenizer* tokenizer, const data::DataPlan& plan,
                     Problems& problems) = nullptr;
};

}  // namespace espalier::config
