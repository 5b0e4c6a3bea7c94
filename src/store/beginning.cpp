#include "store/beginning.h"

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/format.h"
#include "store/internal/paths.h"
#include "store/internal/plain_errors.h"
#include "store/run_folder.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kMarkName = ".began_from";

bool is_in(const fs::path& load, const fs::path& save) {
  const fs::path from = internal::absolute_path(load), to = internal::absolute_path(save);
  return from == to || from.parent_path() == to;
}

// Null where the command continues in the folder that it saves to.
Json words_of(const Beginning& beginning, const fs::path& save) {
  if (save.empty() || beginning.load.empty()) return nullptr;
  if (is_in(beginning.load, save) && !beginning.finetune && !beginning.no_load_optim) return nullptr;
  Json words = {{"load", internal::absolute_path(beginning.load).string()},
                {"ckpt_step", beginning.ckpt_step ? Json(*beginning.ckpt_step) : Json(nullptr)},
                {"finetune", beginning.finetune},
                {"no_load_optim", beginning.no_load_optim}};
  if (is_in(beginning.load, save) && beginning.no_load_optim) words["optimizer"] = beginning.optimizer;
  return words;
}

// Null where there is none, or none that can be read.
Json read_mark(const fs::path& mark) {
  if (!fs::is_regular_file(mark)) return nullptr;
  Json written = Json::parse(read_file(mark), nullptr, /*allow_exceptions=*/false);
  return written.is_object() && written.contains("command") ? written : Json(nullptr);
}

// What becomes of the same command without the mark.
std::string without_mark(const Beginning& beginning, const fs::path& save) {
  if (is_in(beginning.load, save) && !beginning.finetune) return "would give up the optimizer's state once more";
  return "would be refused";
}

}  // namespace

bool has_gone_on(const Beginning& asked_for, const fs::path& save) {
  return with_plain_errors([&] {
    const Json words = words_of(asked_for, save);
    if (words.is_null()) return false;
    const Json written = read_mark(save / kMarkName);
    if (written.is_null() || written["command"] != words) return false;
    const std::vector<StepEntry> steps = list_steps(save).complete;
    // Where it began in its own folder, that checkpoint is none of its own.
    return !steps.empty() && (!is_in(asked_for.load, save) || steps.back().step > written.value("step", int64_t{0}));
  });
}

void remember_beginning(const Beginning& beginning, int64_t step, const fs::path& save) {
  with_plain_errors([&] {
    const Json words = words_of(beginning, save);
    if (words.is_null()) {
      // The same words again, after a start without them, are another beginning.
      const Json written = save.empty() ? Json(nullptr) : read_mark(save / kMarkName);
      if (!written.is_null() && written["command"].is_object() && written["command"].contains("optimizer"))
        fs::remove(save / kMarkName);
      return;
    }
    const Json mark = {
        {"what", concat("This run began from step ", step, is_in(beginning.load, save) ? " here" : " of another folder",
                        ". Started again by the same command it continues from its own newest checkpoint; without this "
                        "file it ",
                        without_mark(beginning, save), ".")},
        {"step", step},
        {"command", words}};
    write_file_atomically(save / kMarkName, mark.dump(2) + "\n");
  });
}

}  // namespace espalier::store
