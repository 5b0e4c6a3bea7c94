// The steps of this folder: each file NAME_pass.cpp has one.
#pragma once

#include "curate/step.h"

namespace espalier::curate {

std::unique_ptr<StepMaker> exact_maker();
std::unique_ptr<StepMaker> minhash_maker();
std::unique_ptr<StepMaker> ngrams_maker();
std::unique_ptr<StepMaker> simhash_maker();
std::unique_ptr<StepMaker> substrings_maker();
std::unique_ptr<StepMaker> urls_maker();

// What a step that goes by URLs doubts where no document had that key.
std::string no_url_doubt(const std::string& key);

}  // namespace espalier::curate
