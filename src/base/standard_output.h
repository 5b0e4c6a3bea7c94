// The end of a program's standard output: what could not be written must not pass for success.
#pragma once

namespace espalier {

// Flushes and closes stdout, once, as the last act of main. Returns `code`, or 74 (input/output error), with a message
// on stderr, where something that was printed did not arrive; a reader that went away (a closed pipe) needs no message.
// A stdout that was closed from the start is not an error as long as nothing is printed.
int finish_standard_output(int code);

}  // namespace espalier
