// The families that there are: the only place that lists them for programs without torch (models/build.h has the rest).
#pragma once

#include <string>
#include <vector>

#include "config/family.h"
#include "config/run_config.h"
#include "store/manifest.h"

namespace espalier::families {

const std::vector<const config::Family*>& all_families();

// One that the program brings: tests do. It outlives the program; its name must be new.
void add_family(const config::Family& family);

// nullptr if there is none of that name.
const config::Family* find_family(const std::string& name);

// "bert, gpt and t5"
std::string family_names();

// The run that a checkpoint was saved from: its options resolved, with the manifest's vocabulary. `folder` is named in
// messages. UserError (bad data) where the family is unknown, or the options are not those of a run.
// `more`: options of train, which replace the checkpoint's.
config::RunConfig read_saved_run(const store::Manifest& manifest, const std::string& folder,
                                 const std::vector<std::string>& more = {});
// The same into a table of the caller, which keeps what each option was; problems are added instead of thrown.
void read_saved_run(const store::Manifest& manifest, const std::string& folder, config::RunConfig& config,
                    OptionTable& table, Problems& problems, const std::vector<std::string>& more = {});

}  // namespace espalier::families
