// `espalier watch`: one alert for each incident of a run, its own death noticed, copies that are verified and load.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "tests/e2e/run_files.h"
#include "tests/launch/launch_fixture.h"

namespace espalier::test {
namespace watch_test {

class Watch : public testing::Test {
 protected:
  // "incident", in order.
  Words alerts() const {
    Words told;
    if (!std::filesystem::exists(folder_ / "alerts")) return told;
    std::istringstream lines(read_file(folder_ / "alerts"));
    for (std::string line; std::getline(lines, line);) told.push_back(nlohmann::json::parse(line).at("incident"));
    return told;
  }
  Shell bash(const std::string& command) const {
    return shell(folder_,
                 concat(kAwait, kRank, kRun, "folder=", shell_word(folder_.path()), "; cd $folder\n", command));
  }
  // Options of a run of ten steps that saves every second one, from the folder of the test.
  std::string training() {
    if (!std::filesystem::exists(folder_ / "data.bin")) write_token_files(folder_ / "data", 300, 5);
    Words words = tiny_run(folder_ / "data") + Words{"--num-threads", "1", "--save-interval", "2"};
    for (std::string& word : words)
      if (word.starts_with("tests/")) word = std::filesystem::absolute(word);
    return "train gpt" + command_line(words);
  }
  std::string said(const std::string& file) const { return read_file(folder_ / file); }

  // A run as its folder shows it; the clock of whoever writes it is years off.
  static constexpr const char* kRun = R"(
    begin_run() {  # begin_run FOLDER
      mkdir -p $1; echo 'train_iters = 1000' >$1/config.toml
      echo '{"time":1.0,"event":"start","step":0,"detail":"of 1000 steps"}' >$1/events.jsonl
    }
    step() {  # step FOLDER N
      echo "{\"step\":$2,\"lm_loss\":3.5,\"step_seconds\":0.001}" >>$1/metrics.jsonl
      touch -d "$((1990 + $2 % 50))-01-01" $1/metrics.jsonl
    }
    alert='cat >>'$folder'/alerts'
  )";
  TemporaryFolder folder_;
};

TEST_F(Watch, TellsOnceOfARunThatStandsStillWhateverTheClocksSay) {
  const Shell run = bash(R"(
    begin_run run
    espalier watch run --interval 0.1 --patience-minutes 0.03 --alert-command 'cat >>'$folder'/alerts' 2>log & watch=$!
    for n in {1..10}; do step run $n; sleep 0.3; done
    [ -e alerts ] && echo false alarm
    await [ -s alerts ]
    sleep 0.5; step run 11
    sleep 0.5; wc -l <alerts
    lines() { [ $(wc -l <alerts) = 2 ]; }
    await lines
    kill $watch; wait $watch; echo "watch: $?")");
  EXPECT_EQ(run.output, "1\nwatch: 0\n") << run.errors << said("log");
  EXPECT_EQ(alerts(), (Words{"no progress", "no progress"})) << said("alerts");
  EXPECT_NE(said("run/events.jsonl").find("watch: no progress"), std::string::npos);
  EXPECT_NE(said("alerts").find("after step 10 of 1,000"), std::string::npos) << said("alerts");
}

TEST_F(Watch, ThatDiesIsNoticedByCheckAndOneThatEndsSaysSo) {
  const Shell run = bash(R"(
    begin_run run; step run 1
    espalier watch run --check; echo "never: $?"
    espalier watch run --interval 0.1 2>log & watch=$!
    await [ -s run/watch/heartbeat.json ]
    espalier watch run --check --alert-command 'cat >>'$folder'/alerts'; echo "alive: $?"
    espalier watch run 2>second; echo "second: $?"
    kill -STOP $watch   # one that hangs is no better than one that is dead
    for n in 1 2; do espalier watch run --check --alert-command 'cat >>'$folder'/alerts' >dead; echo "dead: $?"; done
    kill -KILL $watch; wait $watch
    espalier watch run --interval 0.1 2>log & watch=$!; sleep 1; kill $watch; wait $watch
    espalier watch run --check; echo "ended: $?")");
  EXPECT_NE(run.output.find("never: 1\nalive: 0\nsecond: 73\ndead: 1\ndead: 1\n"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("was told to end: nobody watches"), std::string::npos) << run.output;
  EXPECT_NE(said("second").find("is watched already, by process"), std::string::npos) << said("second");
  EXPECT_EQ(alerts(), Words{"watch died"}) << run.errors;
}

// Of a launcher and a watch each tells of the other's death.
TEST_F(Watch, AndTheLauncherTellOfEachOther) {
  const Shell run = bash(concat(R"(
    espalier launch --nproc-per-node 1 --alert-command 'cat >>'$folder'/alerts' )",
                                training(), R"( --train-samples 8000000 --save run --load run 2>log & launcher=$!
    await [ -s run/metrics.jsonl ]
    watch() { espalier watch run --interval 0.1 --patience-minutes 0.05 --alert-command 'cat >>'$folder'/other' 2>watch.log & watch=$!; }
    watch; await [ -s run/watch/heartbeat.json ]
    kill -KILL $watch; wait $watch
    await [ -s alerts ]
    watch; sleep 1
    kill -KILL $launcher; wait $launcher
    await [ -s other ]; sleep 1
    kill $watch; wait $watch; echo "watch: $?"; wc -l <other; grep -c '"incident":"no progress"' other)"));
  EXPECT_EQ(run.output, "watch: 0\n1\n1\n") << run.errors << said("log") << said("watch.log");
  EXPECT_EQ(alerts(), Words{"watch died"});
  EXPECT_NE(said("run/events.jsonl").find("\"event\":\"alerted\""), std::string::npos);
}

// What the launcher has told of the run's end is not told again; where it has not, it is, with the machine's record.
TEST_F(Watch, DoesNotRepeatWhatTheLauncherHasTold) {
  const Shell run =
      bash(concat(R"(
    for told in 1 0; do
      [ $told = 1 ] && words=(--alert-command 'cat >>'$folder'/launcher') || words=()
      espalier launch --nproc-per-node 1 "${words[@]}" )",
                  training(), R"( --train-samples 8000000 --save run$told --load run$told 2>log & launcher=$!
      await [ -s run$told/metrics.jsonl ]
      kill -KILL $(rank 0); wait $launcher; echo "launcher: $?"
    done
    espalier watch run1 run0 --interval 0.2 --patience-minutes 0.03 --alert-command 'cat >>'$folder'/alerts' 2>watch.log &
    watch=$!; await [ -s alerts ]; sleep 2; kill $watch; wait $watch
    espalier watch run0 --once; echo "once: $?")"));
  EXPECT_NE(run.output.find("launcher: 137\nlauncher: 137\n"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("once: 1"), std::string::npos) << run.output;
  EXPECT_EQ(alerts(), Words{"no progress"}) << said("alerts") << said("watch.log");
  EXPECT_NE(said("alerts").find("run0\""), std::string::npos) << said("alerts");
  EXPECT_NE(said("run0/crashes.jsonl").find("\"signal\":9"), std::string::npos);
}

TEST_F(Watch, TellsOfRoomAndQuotasOnceAndUntilSomebodyHears) {
  const Shell run = bash(R"(
    begin_run run; step run 1
    espalier watch run --interval 0.2 --min-free 1000000TiB --quota-command 'echo bytes 90 100' --alert-command '
      read -r alert; [ -e '$folder'/tried ] || { touch '$folder'/tried; exit 3; }; echo "$alert" >>'$folder'/alerts' 2>log & watch=$!
    two() { [ -e alerts ] && [ $(wc -l <alerts) = 2 ]; }; await two
    sleep 1; kill $watch; wait $watch; wc -l <alerts
    espalier watch run --once --min-free 1000000TiB; echo "once: $?"
    espalier watch run --once; echo "once: $?"
    espalier watch run --once --quota-command 'echo lots' >/dev/null; echo "once: $?"
    espalier watch run no-such-run --mirror-git 2>usage; echo "usage: $?")");
  EXPECT_TRUE(run.output.starts_with("2\n")) << run.output << run.errors << said("log");
  EXPECT_NE(run.output.find("once: 1\n"), std::string::npos) << run.output;
  EXPECT_NE(run.output.find("once: 0\nonce: 1\nusage: 2\n"), std::string::npos) << run.output;
  EXPECT_EQ(alerts(), (Words{"little room", "quota"}));
}

// A copy is verified, resumed, and a run that goes on from it comes to the bits of the one that it was made of.
TEST_F(Watch, BacksUpToAnotherFolderFromWhichARunGoesOn) {
  const std::string train = training();
  const Shell run = bash(concat("set -e; espalier ", train, R"( --save run --load run 2>log; mkdir archive
    espalier watch run --interval 0.2 --backup-to archive --keep-last 1 --mirror-to archive 2>watch.log & watch=$!
    kept() { [ $(ls -d run/step_* | wc -l) = 1 ]; }
    await kept
    await [ -s archive/run/metrics.jsonl ]
    kill $watch; wait $watch
    ls archive/run | grep step
    espalier checkpoint verify --all archive/run 2>/dev/null | grep -c whole
    mkdir restored; cp -r archive/run/step_00000004 restored
    espalier )",
                                train, R"( --save restored --load restored 2>>log
    espalier checkpoint diff restored run --ckpt-step 10 | tail -1 | sed 's/ [0-9]* / /'
    espalier checkpoint backup run --to archive
    espalier checkpoint backup run --list | wc -l
    grep -q 'iteration .* 10/' archive/run/log.txt && echo logged)"));
  EXPECT_EQ(run.output,
            "step_00000002\nstep_00000004\nstep_00000006\nstep_00000008\nstep_00000010\n5\n"
            "all tensors are bitwise equal\nevery checkpoint has its copy\n5\nlogged\n")
      << run.errors << said("watch.log");
}

TEST_F(Watch, CopiesAreResumedAndDamageIsNamed) {
  const Shell run = bash(concat("set -e; espalier ", training(), R"( --save run --load run 2>log; mkdir a b c d e
    backup() { espalier checkpoint backup run --every 10 "$@"; }
    # Interrupted: the largest file does not fit.
    backup --to a --dry-run | sed 's/ (.*) / /'
    largest=$(stat -c %s run/step_00000010/* | sort -n | tail -1)
    code=0; (ulimit -f $((largest / 1024 - 1)); backup --to a) 2>error || code=$?; echo $code; ls a/run | grep step
    ls -i a/run/step_00000010.partial | sort >before
    backup --to a >/dev/null; espalier checkpoint diff a/run run | tail -1 | sed 's/ [0-9]* / /'
    ls -i a/run/step_00000010 | sort | comm -12 before - | grep -c -m 1 safetensors
    backup --to b --weights-only >/dev/null; ls b/run/step_00000010 | grep -c optimizer || true
    espalier checkpoint verify --weights-only b/run 2>/dev/null | grep -c whole
    # An archive, and what it holds.
    backup --to c --tar >/dev/null; mkdir out; tar -xf c/run/step_00000010.tar -C out
    espalier checkpoint diff out/step_00000010 run/step_00000010 | tail -1 | sed 's/ [0-9]* / /'
    # A store that only a command reaches, once with an error of its own.
    cat >store <<'END'
#!/bin/bash
[ -e fails ] && { rm fails; echo out of order >&2; exit 5; }
mkdir -p ${2%/*} && cp $1 $2
END
    chmod +x store; touch fails
    backup --to d --with './store {source} {target}' 2>&1 | grep -o 'exit code 5: out of order'
    backup --to d --with './store {source} {target}' >/dev/null; espalier checkpoint diff d/run/step_00000010 run | tail -1 | sed 's/ [0-9]* / /'
    # Another run of the same name, a place that is not there, and a checkpoint that is damaged.
    mkdir other; cp -r run other; code=0
    espalier checkpoint backup other/run --to a 2>error || code=$?; echo $code; grep -o 'holds copies of the run in' error
    code=0; backup --to nowhere 2>error || code=$?; echo $code
    printf 'x' | dd of=run/step_00000010/weights-00001.safetensors bs=1 seek=5000 conv=notrunc status=none
    for more in '' --tar; do code=0; backup --to e $more 2>error || code=$?; echo $code; grep -c weights-00001 error; done
    ls e/run)"));
  EXPECT_EQ(run.output,
            "would copy step_00000010 to a/run/step_00000010\n74\nstep_00000010.partial\n"
            "all tensors are bitwise equal\n1\n0\n1\n"
            "all tensors are bitwise equal\nexit code 5: out of order\nall tensors are bitwise equal\n"
            "73\nholds copies of the run in\n66\n65\n1\n65\n1\nbackup_of.txt\n")
      << run.errors;
}

// From blame to the next job's command. n7 died twice under the run and once more with its launcher, of which only
// SLURM knows; on n3 ranks were killed three times, whenever SLURM preempted the job.
TEST_F(Watch, LeavesTheMachineThatFailsOutOfTheNextJob) {
  const Shell run = bash(R"(mkdir bin; export PATH=$folder/bin:$PATH
    cat >bin/squeue <<'END'
#!/bin/sh
[ -e submitted ] && echo '77|PENDING|1:00:00'; exit 0
END
    cat >bin/sbatch <<'END'
#!/bin/sh
echo "$@" >>submitted; echo 77
END
    cat >bin/sacct <<'END'
#!/bin/sh
echo "$SLURM_TIME_FORMAT $@" >>asked
cat <<TABLE
11|FAILED|137:0|n[1-8]||2000|None
12|FAILED|137:0|n[1-8]||3000|None
13|PREEMPTED|0:0|n[1-8]||4000|None
13|PREEMPTED|0:0|n[1-8]||5000|None
13|PREEMPTED|0:0|n[1-8]||6000|None
14|NODE_FAIL|0:0|n[1-8]|n7|7000|Node failure
14.batch|CANCELLED by 0|0:15|n1||7000|None
15|RUNNING|0:0|n[1-8]||Unknown|None
TABLE
END
    chmod +x bin/*; begin_run run; step run 1
    crash() {  # crash JOB HOST TIME
      echo "{\"failures\":[{\"rank\":5,\"local_rank\":1,\"host\":\"$2\",\"pid\":9,\"exit_code\":0,\"signal\":9,\"time\":$3,\"error_file\":\"\",\"message\":\"\",\"last_lines\":\"\",\"phase\":\"train\",\"step\":1,\"lost_machine\":false}],\"SLURM_JOB_ID\":\"$1\"}" >>run/crashes.jsonl; }
    crash 11 n7 1990; crash 12 n7 2980; crash 13 n3 3999; crash 13 n3 4999; crash 13 n3 5990
    echo '#!/bin/sh' >next.sbatch
    espalier watch run --interval 0.1 --job-name a --next-job next.sbatch --alert-command 'cat >>'$folder'/alerts' 2>log & watch=$!
    await [ -s submitted ]; await [ -s alerts ]; sleep 1; kill $watch; wait $watch
    cat submitted; grep -v '#' run/watch/exclude.txt; grep -c '#' run/watch/exclude.txt
    grep -o "SLURM's record of job 14: NODE_FAIL, exit code 0:0, failed machine n7, reason Node failure" run/watch/exclude.txt
    sort -u asked; grep -c '"event":"watch: next job".*without n7' run/events.jsonl
    # Without the scheduler's records nobody knows better than that ranks were killed on both.
    rm submitted run/watch/exclude.txt; printf '#!/bin/sh\necho Slurm accounting storage is disabled >&2; exit 1\n' >bin/sacct
    espalier watch run --interval 0.1 --job-name a --next-job next.sbatch 2>log & watch=$!
    await [ -s submitted ]; sleep 1; kill $watch; wait $watch
    cat submitted; grep -c 'accounting storage is disabled' log)");
  EXPECT_EQ(run.output,
            "--parsable --exclude=n7 next.sbatch\nn7\n3\n"
            "SLURM's record of job 14: NODE_FAIL, exit code 0:0, failed machine n7, reason Node failure\n"
            "%s -X -n -P -D -S now-90days --name=a -o JobIDRaw,State,ExitCode,NodeList,FailedNode,End,Reason\n1\n"
            "--parsable next.sbatch\n1\n")
      << run.errors << said("log");
  EXPECT_EQ(alerts(), Words{"machine to leave out: n7"}) << said("alerts");
}

TEST_F(Watch, SubmitsTheNextJobByTheCommandsOfPbs) {
  const Shell run = bash(R"(mkdir bin; export PATH=$folder/bin:$PATH
    cat >bin/qstat <<'END'
#!/bin/sh
echo "$@" >>asked; read -r used <used
[ -e away ] && { echo 'qstat: cannot connect to server pbs (errno=111)' >&2; exit 255; }
[ -e submitted ] && waits=',"13.pbs": {"Job_Name": "a", "job_state": "H", "Resource_List": {"walltime": "20:00:00"}}'
cat <<TABLE
{"timestamp": 1, "pbs_version": "2024.1.0", "pbs_server": "pbs", "Jobs": {
  "9.pbs": {"Job_Name": "other", "job_state": "Q", "Resource_List": {"walltime": "20:00:00"}},
  "12.pbs": {"Job_Name": "a", "job_state": "R", "Resource_List": {"walltime": "20:00:00"},
             "resources_used": {"walltime": "$used"}}$waits }}
TABLE
END
    printf '#!/bin/sh\n[ -e full ] && { echo "qsub: would exceed limit" >&2; exit 38; }; echo "$@" >>submitted; echo 13.pbs\n' >bin/qsub
    chmod +x bin/*; begin_run run; echo '{"step":1,"lm_loss":3.5,"step_seconds":1000.0}' >run/metrics.jsonl
    echo '#!/bin/sh' >'next job.pbs'; echo 01:00:00 >used
    espalier watch run --interval 0.1 --scheduler pbs --job-name a --next-job 'next job.pbs' --alert-command 'cat >>'$folder'/alerts' 2>log & watch=$!
    await [ -s asked ]; sleep 1; [ -e submitted ] && echo too early
    touch away; echo 19:30:00 >used; sleep 1; [ -e submitted ] && echo blindly
    touch full; rm away; await [ -s alerts ]; sleep 0.5; rm full
    await [ -s submitted ]; sleep 1; kill $watch; wait $watch; echo "watch: $?"
    cat submitted; sort -u asked; grep -c 'job 13.pbs continues the run' run/events.jsonl)");
  EXPECT_EQ(run.output, "watch: 0\n-W depend=afterany:12.pbs next job.pbs\n-f -F json\n1\n")
      << run.errors << said("log");
  EXPECT_EQ(alerts(), Words{"next job not submitted"}) << said("alerts");
  EXPECT_NE(said("alerts").find("qsub: would exceed limit"), std::string::npos) << said("alerts");
}

// A disk loses what it once held: one alert, and one more when it happens again. The times of files say nothing of it.
TEST_F(Watch, ReadsOldCheckpointsAgainAndTellsOnceOfADamagedOne) {
  const Shell run = bash(concat("set -e; espalier ", training(), R"( --save run --load run 2>log; mkdir archive
    espalier checkpoint backup run --to archive >/dev/null
    file=step_00000004/weights-00001.safetensors
    rot() { cp -p run/$file as_it_was; printf 'x' | dd of=run/$file bs=1 seek=5000 conv=notrunc status=none
            touch -r as_it_was run/$file; }
    watch() { espalier watch run --interval 0.1 "$@" --alert-command 'cat >>'$folder'/alerts' 2>>watch.log & watch=$!; }
    # Nothing is a week old but two.
    for n in 2 4 6; do touch -d "$n weeks ago" run/step_0000000$n/manifest.json; done
    num_read() { [ $(grep -c '"step"' run/watch/verified.json) = $1 ]; }
    watch; await [ -e run/watch/verified.json ]; await num_read 3; sleep 1; kill $watch; wait $watch || true
    cp run/watch/verified.json three.json
    # All, again and again.
    watch --verify-days 0.00001; await num_read 5
    [ ! -e alerts ] || echo false alarm
    rot; await [ -s alerts ]; sleep 3; wc -l <alerts
    cp archive/run/$file run/$file; sound() { grep -q '"num_problems": 1' run/watch/verified.json && return 1 || true; }
    await sound; sleep 0.5; rot
    two() { [ $(wc -l <alerts) = 2 ]; }; await two
    kill $watch; wait $watch || true
    espalier watch run --once >once || echo "once: $?"; grep -c 'damaged checkpoint' once
    espalier checkpoint verify run --oldest --rate 1KiB --all 2>error || echo "usage: $?")"));
  EXPECT_EQ(run.output, "1\nonce: 1\n1\nusage: 2\n") << run.errors << said("watch.log");
  EXPECT_EQ(alerts(), (Words(2, "damaged checkpoint: step_00000004"))) << said("alerts");
  for (const char* part : {"weights-00001", "expected checksum", "a copy of it is archive/run/step_00000004"})
    EXPECT_NE(said("alerts").find(part), std::string::npos) << part << said("alerts");
  // The oldest first.
  std::vector<std::pair<double, int64_t>> order;
  for (const auto& step : nlohmann::json::parse(said("three.json")))
    order.emplace_back(step.at("time"), step.at("step"));
  std::sort(order.begin(), order.end());
  ASSERT_EQ(order.size(), 3u);
  EXPECT_EQ(order[0].second, 6);
  EXPECT_EQ(order[1].second, 4);
  EXPECT_EQ(order[2].second, 2);
}

// It is written when something has happened, not at every step; a file that is somebody's own stays.
TEST_F(Watch, WritesTheJournalOfTheRun) {
  const Shell run = bash(R"(
    begin_run run; step run 1; begin_run other; echo 'what we did' >other/journal.md
    espalier watch run other --interval 0.1 --patience-minutes 0.05 2>log & watch=$!
    await [ -s run/journal.md ]; grep -c 'Journal of' run/journal.md
    before=$(stat -c %i run/journal.md)
    for n in {2..11}; do step run $n; sleep 0.1; done
    [ $(stat -c %i run/journal.md) = $before ] && echo as it was
    has_stood_still() { grep -q 'watch: no progress.*after step 11 of 1,000' run/journal.md; }
    await has_stood_still
    kill $watch; wait $watch; cat other/journal.md; grep -c 'is not a journal of a run' log
    espalier runs journal run --output other/journal.md 2>error; echo "its own: $?"
    espalier runs journal run --output other/journal.md --overwrite; grep -c 'Journal of' other/journal.md)");
  EXPECT_EQ(run.output, "1\nas it was\nwhat we did\n1\nits own: 73\n1\n") << run.errors << said("log");
}

// Copies and mirrors in a store that is reached by HTTP, as S3 is: what is lost on the way is noticed, what comes back
// has equal bits.
TEST_F(Watch, BacksUpAndMirrorsToAnObjectStore) {
  if (bash("command -v python3 && command -v curl").exit_code != 0) GTEST_SKIP() << "needs python3 and curl";
  const std::string script = std::filesystem::absolute("tests/support/object_store.py");
  const Shell run = bash(concat("set -e; espalier ", training(), R"( --save run --load run 2>log
    python3 )",
                                shell_word(script), R"( port --refuse 1 --spoil weights-00001.safetensors & store=$!
    trap 'kill $store' EXIT; await [ -s port ]; host=http://127.0.0.1:$(cat port); url=$host/bucket
    cat >copy <<'END'
#!/bin/bash
case $1 in http:*) exec curl -sSf -o "$2" "$1";; *) exec curl -sSf -T "$1" "$2";; esac
END
    chmod +x copy
    list() { curl -sSf "$host/?prefix=bucket/$1" | sed -n 's|.*<Key>bucket/\(.*\)</Key>.*|\1|p'; }
    restore() { list $1/ >names; while read -r name; do mkdir -p back/${name%/*}; curl -sSf -o back/$name $url/$name; done <names; }
    backup() { espalier checkpoint backup run --every 10 --with './copy {source} {target}' "$@"; }
    # It is away, then it keeps something else than it was given, then all is well.
    code=0; backup --to $url 2>error || code=$?; echo $code; grep -c 503 error
    code=0; backup --to $url 2>error || code=$?; echo $code; grep -c 'copied back, is not equal to' error
    list run | grep -c manifest || true
    backup --to $url >/dev/null; restore run
    espalier checkpoint diff back/run/step_00000010 run/step_00000010 | tail -1 | sed 's/ [0-9]* / /'
    (cd run/step_00000010; find . -type f | sort) >have; (cd back/run/step_00000010; find . -type f | sort) | cmp - have && echo all
    # Weights alone.
    backup --to $url/weights --weights-only >/dev/null; restore weights
    grep -c optimizer names || true
    espalier checkpoint verify --weights-only back/weights/run 2>/dev/null | grep -c whole
    for name in $(cd back/weights/run/step_00000010; find . -type f); do
      cmp back/weights/run/step_00000010/$name run/step_00000010/$name; done && echo equal
    # By watch: every checkpoint, and the records.
    espalier watch run --interval 0.1 --backup-to $url --backup-with './copy {source} {target}' \
      --mirror-to $url/records --mirror-with './copy {source} {target}' 2>watch.log & watch=$!
    five() { [ $(list run | grep -c manifest.json) = 5 ]; }; await five
    mirrored() { list records | grep -q metrics.jsonl; }; await mirrored; sleep 1
    kill $watch; wait $watch || true
    espalier checkpoint backup run --to $url --with './copy {source} {target}'
    curl -sSf $url/records/run/metrics.jsonl | cmp - run/metrics.jsonl && echo records
    curl -sSf $url/records/run/journal.md | grep -c 'Journal of'
    mirror() { espalier runs mirror run --to $url/records --with './copy {source} {target}'; }
    mirror >/dev/null; mirror | cut -d' ' -f 1-2
    echo '{"time":1.0,"event":"note","step":1,"detail":""}' >>run/events.jsonl; mirror | cut -d' ' -f 1-2
    espalier runs mirror run --to x --git --with 'cp {source} y' 2>error || echo "usage: $?"; grep -c 'lacks {target}' error)"));
  EXPECT_EQ(run.output,
            "74\n1\n65\n1\n0\nall tensors are bitwise equal\nall\n0\n1\nequal\nevery checkpoint has its copy\n"
            "records\n1\n0 files\n2 files\nusage: 2\n1\n")
      << run.errors << said("watch.log");
}

TEST_F(Watch, MirrorsRecordsToAGitRepository) {
  const Shell run = bash(R"(set -e
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c GIT_CONFIG_GLOBAL=/dev/null
    begin_run run; step run 1; mkdir run/step_00000001; echo big >run/step_00000001/manifest.json; echo said >job.out
    git init -q --bare origin; git clone -q origin copy 2>/dev/null
    git -C copy commit -q --allow-empty -m begin; git -C copy push -q -u origin HEAD
    mirror() { espalier runs mirror run --to copy --git --files job.out 2>/dev/null; }
    mirror; mirror; step run 2; mirror
    git -C origin log --oneline | wc -l
    git -C origin ls-tree -r --name-only HEAD
    git -C origin show HEAD:run/metrics.jsonl | wc -l
    mkdir plain; code=0; espalier runs mirror run --to plain --git 2>error || code=$?; echo $code)");
  EXPECT_EQ(run.output,
            "5 files copied to copy/run\n0 files copied to copy/run\n2 files copied to copy/run\n3\n"
            "run/config.toml\nrun/events.jsonl\nrun/journal.md\nrun/logs/job.out\nrun/metrics.jsonl\n2\n66\n")
      << run.errors;
}

}  // namespace watch_test
}  // namespace espalier::test
