// Why a processor with AMX may compute without it (dispatch.h).
#pragma once

namespace espalier::kernels {

// The processor has AMX tiles, and the operating system refuses them to this process.
bool lacks_amx_permission();

}  // namespace espalier::kernels
