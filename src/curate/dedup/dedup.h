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

}  // namespace espalier::curate
