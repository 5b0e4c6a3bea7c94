// The steps of this folder: each file has one, or a few that belong together.
#pragma once

#include "curate/step.h"

namespace espalier::curate {

std::unique_ptr<StepMaker> c4_maker();
std::unique_ptr<StepMaker> catalogue_maker();
std::unique_ptr<StepMaker> ftfy_maker();
std::unique_ptr<StepMaker> gopher_maker();
std::unique_ptr<StepMaker> language_maker();
std::unique_ptr<StepMaker> length_maker();
std::unique_ptr<StepMaker> oscar_maker();
std::unique_ptr<StepMaker> perplexity_maker();
std::unique_ptr<StepMaker> pii_maker();
std::unique_ptr<StepMaker> quality_maker();
std::unique_ptr<StepMaker> sentences_maker();

}  // namespace espalier::curate
