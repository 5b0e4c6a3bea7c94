"""The parts of the benchmark. Each module has functions `x(session, part)`, which fill in `part` as they measure, so that what
is there counts when the time is over, and `print_x(part, limits)`, which print it; `limits` is what the machine can do at most."""
