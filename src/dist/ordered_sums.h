// A group whose sums have the same bits wherever an element is in its tensor.
//
// Gloo adds the numbers of more than two ranks in an order that depends on the place of an element in the tensor, so
// what a row comes to would depend on the rows beside it. Here the parts are gathered and added in the order of the
// ranks, those of half precision in fp32, as the ranks of one machine do in shared memory.
#pragma once

#include "dist/group.h"

namespace espalier::dist {

// For sums, largest values, all-gathers, broadcasts and barriers. Each is done when it has been started; `group` is
// kept.
Group adding_in_order(const Group& group);

}  // namespace espalier::dist
