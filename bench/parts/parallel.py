"""Several processes: data parallel beside one process, bubbles of pipelines, and the checks of replicas."""
import statistics

from parts.session import BIN, alternate, median, spread
from parts.training import MICRO_BATCH, POSITIONS, WARM_UP, train_espalier, training_flags
from shapes import shape_of

# Tokens of a step, steps of a run.
STEPS = {4096: 5, 1024: 8}
LENGTH = 256


def parallel(session, part):
    """Two data-parallel processes of one thread against one process of two, bf16; the threads are the machine's."""
    count, shape = session.threads, shape_of("gpt2", session.arguments.layers)
    several = ["launch", "--standalone", "--nproc-per-node", count]
    ways = {"one process": ([], []), f"{count} processes, ZeRO 0": (several, ["--zero-stage", 0]),
            f"{count} processes": (several, [])}
    part |= {"processes": count, "rows": []}
    for tokens, steps in list(STEPS.items())[:1 if session.quick else None]:
        def train(launch, more):
            flags = training_flags(session, shape, "bf16", LENGTH, max(tokens // LENGTH, count), count if launch else 1)
            return statistics.median(train_espalier(session, flags + more, steps, launch).seconds[WARM_UP:])
        seconds = alternate(session, f"parallel: {tokens} tokens", {
            name: lambda way=way: train(*way) for name, way in ways.items()})
        one, whole, many = seconds.values()
        shares = [a / b for a, b in zip(one, many)]
        part["rows"].append({"tokens": tokens, "one_tokens_per_s": tokens / median(one), "many_tokens_per_s": tokens / median(many),
                             "share": median(one) / median(many), "share_spread": spread(shares),
                             "zero_0_tokens_per_s": tokens / median(whole), "zero_0_share": median(one) / median(whole),
                             "seconds_per_step": seconds})


def print_parallel(part, _):
    print(f"\n{part['processes']} processes of one thread against one process of {part['processes']}, bf16, data parallel"
          f"\n  {'tokens a step':>14}{'one, tokens/s':>15}{'several, tokens/s':>19}{'share':>8}{'spread':>8}"
          f"{'ZeRO 0, tokens/s':>18}{'share':>8}")
    for row in part["rows"]:
        print(f"  {row['tokens']:>14}{row['one_tokens_per_s']:>15.0f}{row['many_tokens_per_s']:>19.0f}"
              f"{row['share']:>8.3f}{row['share_spread']:>8.1%}{row['zero_0_tokens_per_s']:>18.0f}{row['zero_0_share']:>8.3f}")


def pipeline(session, part):
    session.say("pipeline: measured bubbles")
    part["table"] = session.run([BIN / "pipeline_bench", 8, 10 if session.quick else 100]).output


def print_pipeline(part, _):
    print(f"\npipeline bubbles: {part['table']}")


def replicas(session, part):
    """What --check-replicas costs two data-parallel processes."""
    shape = shape_of("gpt2", session.arguments.layers)
    part |= {"model": shape.name, "rows": []}
    for precision, tokens in [("bf16", 2048)] if session.quick else [("bf16", 16384), ("bf16", 2048), ("fp32", 2048)]:
        session.say(f"replica checks: {precision}, {tokens} tokens a step")
        length = min(POSITIONS, tokens // (2 * MICRO_BATCH))
        flags = training_flags(session, shape, precision, length, tokens // length, 2)
        part["rows"].append({"precision": precision, "tokens": tokens} | session.run_json(
            [BIN / "replica_bench", "dp2", 3, *flags, "--train-iters", 100, "--num-threads", 1]))


def print_replicas(part, _):
    print(f"\nreplica checks, 2 data-parallel processes of one thread, {part['model']}\n"
          f"  {'type':<6}{'tokens a step':>14}{'MiB compared':>14}{'step s':>9}{'check s':>9}{'share, every 10':>17}")
    for row in part["rows"]:
        print(f"  {row['precision']:<6}{row['tokens']:>14}{row['mib']:>14.0f}{row['step_seconds']:>9.2f}"
              f"{row['check_seconds']:>9.3f}{row['share_at_10']:>17.2%}")
