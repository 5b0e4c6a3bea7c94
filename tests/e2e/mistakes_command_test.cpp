// Mistakes that people make, as whole commands: what was wrong, where and what to do is reported, nothing else is, and
// nothing is left behind.
#include <gtest/gtest.h>

#include "tests/support/command.h"

namespace espalier {
namespace {

struct Mistake {
  const char* command;
  int exit_code;
  const char* said;
};

void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.command; }

class MistakesCommand : public Command, public testing::WithParamInterface<Mistake> {
 protected:
  // $TRAIN and $DATA of the commands.
  std::string variables() const {
    const std::string tokenizer = root() + "/tests/data/gpt2-tiny/";
    return "V=" + tokenizer + "vocab.json; M=" + tokenizer + "merges.txt; DATA=" + root() +
           "/tests/data/owt-20_text_document; SHAPE='train gpt --num-layers 2 --hidden-size 16 --num-attention-heads 2 "
           "--seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --lr 1e-3 --split 1,0,0 --eval-iters 0'; "
           "TOKENIZER=\"--tokenizer-type GPT2BPETokenizer --vocab-file $V --merge-file $M\"; "
           "NODATA=\"$SHAPE $TOKENIZER\"; BARE=\"$NODATA --data-path $DATA\"; "
           "TRAIN=\"$BARE --train-iters 2\"\n";
  }
};

TEST_P(MistakesCommand, IsAnsweredWithWhatToDo) {
  const Outcome outcome = bash(variables() + "set --; rm -rf ./*; " + GetParam().command);
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.errors;
  EXPECT_NE(outcome.errors.find(GetParam().said), std::string::npos) << outcome.errors;
  EXPECT_EQ(outcome.errors.find("problems:"), std::string::npos) << "one mistake is one problem: " << outcome.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

class RecordedOptions : public Command {};

// A run that is only named by --load: its options are in its folder.
TEST_F(RecordedOptions, AreNamedWhereTheyAreMissing) {
  const Outcome outcome =
      bash("mkdir r; touch r/config.toml; espalier train gpt --load r; code=$?; rm -r r; exit $code");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("has its options in config.toml: --recipe r/config.toml takes them"), std::string::npos)
      << outcome.errors;
}

// Options by the names of other programs.
INSTANTIATE_TEST_SUITE_P(
    NamesElsewhere, MistakesCommand,
    testing::Values(
        Mistake{"espalier $TRAIN --learning-rate 1e-4", 2, "unknown option --learning-rate: here it is --lr"},
        Mistake{"espalier $BARE --max_steps 100", 2, "unknown option --max_steps: here it is --train-iters"},
        Mistake{"espalier $BARE --num_train_epochs 3", 2, "not in epochs: --train-iters or --train-samples"},
        Mistake{"espalier $TRAIN --gradient_accumulation_steps 4", 2, "it follows from --global-batch-size / ("},
        Mistake{"espalier $TRAIN --output_dir out", 2, "unknown option --output_dir: here it is --save"},
        Mistake{"espalier $TRAIN -X out", 2, "names begin with two dashes"},
        Mistake{"espalier $TRAIN -o out", 2, "unknown option -o: here it is --save"},
        Mistake{"espalier $TRAIN -b 4", 2, "unknown option -b: here it is --micro-batch-size"},
        Mistake{"espalier $BARE -x -1", 2, "unknown option -x: here it is --train-iters"},
        Mistake{"espalier $TRAIN -i 'data/*.bin'", 2,
                "here it is --data-path, with token files of `espalier preprocess`"},
        Mistake{"espalier $TRAIN -d 524288", 2, "which counts samples: tokens / --seq-length"},
        Mistake{"espalier $TRAIN -e d12", 2, "GPT-2's weights are imported by `espalier checkpoint import-hf`"},
        Mistake{"espalier $TRAIN -pn 2", 2, "it belongs to `espalier launch`: --nproc-per-node"},
        Mistake{"espalier $TRAIN –bf16", 2, "its dash is U+2013"},
        Mistake{"espalier $TRAIN -–seed 5", 2, "write --seed"},
        Mistake{"espalier $TRAIN --deepspeed ds.json", 2, "write --deepspeed_config ds.json"},
        Mistake{"espalier generate --load x --prompt A --int8-weights --device cuda", 2,
                "--int8-weights and --device cuda: models with 8-bit weights run on the CPU"},
        Mistake{"espalier serve --load x --stream-layers --device cuda", 2,
                "--stream-layers and --device cuda: layers are read one by one on the CPU"},
        Mistake{"CUDA_VISIBLE_DEVICES= espalier generate --load x --prompt A --device cuda", 2,
                "--device cuda: no GPU was found"},
        Mistake{"espalier generate --load x --prompt A --dtype bf16", 2, "it computes in the type of the checkpoint"},
        Mistake{"espalier generate --load r --prompt x --max-new-tokens 5", 2, "here it is --tokens-to-generate"},
        Mistake{"espalier generate --model r --prompt x", 2, "unknown option --model: here it is --load"},
        Mistake{"espalier launch -np 2 $TRAIN", 2, "unknown option -np: here it is --nproc-per-node"},
        Mistake{"espalier launch --num-layers 2 $TRAIN", 2, "options of the run come after its command"}));

// What follows from a mistake is no news.
INSTANTIATE_TEST_SUITE_P(
    OneProblem, MistakesCommand,
    testing::Values(
        Mistake{"espalier $BARE --train-iters 1e3", 2, "--train-iters 1e3 (command line) is not an integer"},
        Mistake{"espalier $BARE --train-iters -5", 2, "is below the smallest value, 1"},
        Mistake{"espalier $BARE --train-iters", 2, "--train-iters expects a value"},
        Mistake{"espalier $SHAPE --data-path $DATA --train-iters 2 --tokenizer-type gpt2", 2,
                "--tokenizer-type gpt2 (command line) is not one of"},
        Mistake{"espalier $TRAIN --num-attention-heads 3 --num-attention-heads x", 2, "x (command line) is not"},
        Mistake{"espalier $TRAIN --global-batch-size 7 --micro-batch-size 2.5", 2, "2.5 (command line) is not"},
        Mistake{"espalier $TRAIN --global-batch-size 7 --tensor-model-parallel-size two", 2,
                "--tensor-model-parallel-size two (command line) is not an integer"},
        Mistake{"espalier $TRAIN --min-lr 1 --lr -1", 2, "--lr -1 (command line) is below"},
        Mistake{"espalier $BARE --train-samples 1e6 --train-tokens 1000", 2, "1e6 (command line) is not"},
        Mistake{"espalier $TRAIN --seq-length 30 --sequence-parallel --tensor-model-parallel-size 2 "
                "--validate-only --seq-length 2k",
                2, "--seq-length 2k (command line) is not an integer"},
        Mistake{"echo '{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2}' >ds.json; espalier "
                "$TRAIN --deepspeed --deepspeed_config ds.json --global-batch-size 8.0; code=$?; rm ds.json; "
                "exit $code",
                2, "--global-batch-size 8.0 (command line) is not an integer"}));

// What the machine, or what started the process, does not go with.
INSTANTIATE_TEST_SUITE_P(
    Machine, MistakesCommand,
    testing::Values(Mistake{"espalier generate --load r --prompt x --num-threads 4096", 2,
                            "--num-threads 4096 (command line) is more than 8 threads for "},
                    Mistake{"espalier $TRAIN --num-threads 4096", 2,
                            "--num-threads 4096 (command line) is more than 8 "},
                    Mistake{"espalier $TRAIN --num-threads 4096 --validate-only", 0, "valid: "},  // for another machine
                    Mistake{"SLURM_JOB_ID=12 SLURM_PROCID=3 SLURM_NTASKS=8 espalier $TRAIN", 2,
                            "the environment has SLURM_PROCID=3, of one of several tasks"},
                    // Without its engine: what it says before it begins.
                    Mistake{"cp $(command -v espalier) alone; SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_NTASKS=8 ./alone "
                            "$TRAIN; code=$?; rm alone; exit $code",
                            1, "one process trains alone: SLURM's job 12 has 8 tasks on 1 node"}));

INSTANTIATE_TEST_SUITE_P(
    FilesAndFolders, MistakesCommand,
    testing::Values(
        Mistake{"espalier $TRAIN --load $DATA.bin", 2, "is a file; give the run folder"},
        Mistake{"espalier $TRAIN --save \"$UNSET\" --save-interval 1", 2, "is a variable of the script unset?"},
        Mistake{"espalier $TRAIN --save ' ' --save-interval 1", 2, "is a variable of the script unset?"},
        Mistake{"ln -s nowhere link; espalier $TRAIN --save link/run --save-interval 1; code=$?; rm link; exit $code",
                2, "link is a link to nowhere, which does not exist"},
        Mistake{"cd " ESPALIER_SOURCE_FOLDER "; espalier train gpt --recipe tiny", 2,
                "there is no file 'tiny'; did you mean 'recipes/tiny.toml'?"},
        Mistake{
            "printf 'num_layers = 2' | iconv -t UTF-16 >r.toml; espalier $TRAIN --recipe r.toml; code=$?; rm r.toml; "
            "exit $code",
            2, "r.toml: is UTF-16; expected UTF-8"},
        Mistake{"espalier $SHAPE --data-path $DATA --train-iters 2 --tokenizer-type GPT2BPETokenizer --vocab-file $M "
                "--merge-file $V",
                2, "exchange --vocab-file and --merge-file"},
        Mistake{"espalier $SHAPE --data-path $DATA --train-iters 2 --tokenizer-type SentencePieceTokenizer "
                "--tokenizer-model $V",
                65, "is JSON, not a SentencePiece model"},
        Mistake{"espalier data check " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl", 65, "is text (JSON)"}));

// Answers that were crashes, wrong results without a word, or no help.
INSTANTIATE_TEST_SUITE_P(
    Once, MistakesCommand,
    testing::Values(
        Mistake{"espalier train gpt --num-layers 2 --hidden-size 16 --seq-length 32 --max-position-embeddings 32 "
                "--micro-batch-size 2 --lr 1e-3 --train-iters 2 $TOKENIZER --data-path $DATA",
                2, "--num-attention-heads is required: "},
        Mistake{"printf '[=x]\n' >r.toml; espalier $TRAIN --recipe r.toml; code=$?; rm r.toml; exit $code", 2,
                "r.toml:1: not TOML"},
        Mistake{"printf '[=x]\n' >r.toml; espalier curate r.toml; code=$?; rm r.toml; exit $code", 2,
                "r.toml:1: not TOML: expected a key"},
        Mistake{"echo '5 99999999' | espalier tokenizer decode $TOKENIZER", 65,
                "standard input: 99999999 is not an id of this tokenizer, which has 0 to "},
        Mistake{"echo '5 x' | espalier tokenizer decode $TOKENIZER", 65, "expected whole numbers, found \"x\""},
        Mistake{"espalier tokenizer encode $TOKENIZER --input a.txt", 2, "text is read from standard input"},
        Mistake{"head -c 99 /dev/zero >w.safetensors; espalier tokenizer inspect --tokenizer-type PretrainedFromHF "
                "--tokenizer-name-or-path w.safetensors; code=$?; rm w.safetensors; exit $code",
                65, "'w.safetensors' is a binary file, and JSON is expected"},
        Mistake{"espalier $TRAIN --micro-batch-size 99999999999999999999", 2,
                "is too large for an integer of 64 bits, at most 9223372036854775807"},
        Mistake{"echo x >r.toml; espalier recipe --depth 4 --output r.toml; code=$?; grep -q x r.toml && rm r.toml; "
                "exit $code",
                2, "'r.toml' (2 B) exists"},
        Mistake{"printf 'a\nb\n' >in; espalier curate step length --input in --output out --least 1; code=$?; rm in; "
                "exit $code",
                65, "none of the 2 records is a document. The first: in:1: "},
        Mistake{
            "echo '{\"text\": \"a\"}' >in; espalier curate step exact --input in --output out --report ./out; code=$?; "
            "rm in; exit $code",
            2, "--output and --report name the same file"},
        Mistake{"mkdir -p scratch/mine; espalier curate step exact --input " ESPALIER_SOURCE_FOLDER
                "/tests/data/owt-20.jsonl --output out.jsonl --temporary-folder scratch; code=$?; rm out.jsonl; "
                "rmdir scratch/mine scratch; exit $code",
                0, "exact: 20 documents in"},
        Mistake{"echo '{\"text\": \"a\"}' >in; espalier detoxify score --input in --scorer nosuchprogram --output out; "
                "code=$?; rm in; exit $code",
                1, "'nosuchprogram' ended with exit code 127: the shell cannot run it"},
        Mistake{"espalier $TRAIN --seq-length-stages '0: 64'", 2,
                "'0: 64' is longer than --seq-length 32 (command line), the length of samples"},
        Mistake{"espalier $TRAIN --lr-decay-style wsd", 2, "did you mean WSD?"},
        Mistake{"espalier $TRAIN --lr-phases 'linear:1 constant:rest'", 2, "give each phase as a word of its own"},
        Mistake{
            "espalier $TRAIN --save run --save-interval 2; espalier checkpoint average run run/step_00000002 --save "
            "mean; code=$?; rm -r run; exit $code",
            2, "step_00000002' is given twice; give each checkpoint once, and --weights"},
        Mistake{"espalier $TRAIN --save a --save-interval 2; espalier $TRAIN --save b --save-interval 2 --mup "
                "--mup-base-hidden-size 8; espalier checkpoint average a b --save mean; code=$?; rm -r a b; exit $code",
                2,
                "'b/step_00000002' is another model than 'a/step_00000002': mup is true and not false, "
                "mup_base_hidden_size is 8 and not (unset)"},
        Mistake{"espalier checkpoint import-hf --input none --save out", 66, "--input 'none' does not exist"},
        Mistake{"echo x >in; espalier checkpoint import-hf --input in --save out; code=$?; rm in; exit $code", 2,
                "is a file; give the folder, with config.json"}));

// A word or an option where another is meant: the right line is said.
INSTANTIATE_TEST_SUITE_P(
    Usage, MistakesCommand,
    testing::Values(
        Mistake{"espalier checkpoint verify --load run", 2,
                "unknown option --load: here FOLDER is given without an option: espalier checkpoint verify FOLDER"},
        Mistake{"espalier checkpoint inspect --load=run", 2, "espalier checkpoint inspect FOLDER"},
        Mistake{"espalier checkpoint prune --load run --keep-last 1", 2, "espalier checkpoint prune RUN_FOLDER"},
        Mistake{"espalier checkpoint diff --load a b", 2, "espalier checkpoint diff FOLDER..."},
        Mistake{"espalier checkpoint average --input a b --save mean", 2, "espalier checkpoint average FOLDER..."},
        Mistake{"espalier runs show --save run", 2, "espalier runs show FOLDER"},
        Mistake{"mkdir here; espalier runs list --from here; code=$?; rmdir here; exit $code", 2,
                "unknown option --from: here FOLDER is given without an option"},
        Mistake{"mkdir run; espalier watch --run run; code=$?; rmdir run; exit $code", 2, "espalier watch RUN..."},
        Mistake{"espalier data check --data-path corpus", 2, "espalier data check PREFIX..."},
        Mistake{"espalier ctl status run", 2, "the run comes before the command: espalier ctl run status"},
        Mistake{"espalier checkpoint export-hf --input run --output hf", 2,
                "unknown option --input: here it is --load"},
        Mistake{"espalier checkpoint export-hf run --output hf", 2, "unexpected word run: write --load run"},
        Mistake{"espalier checkpoint import-hf --load hf --save run", 2, "unknown option --load: here it is --input"},
        Mistake{"espalier checkpoint import-megatron --load old --save run", 2, "--load: here it is --input"},
        Mistake{"espalier replay run --step 2", 2, "unexpected word run: write --load run"},
        Mistake{"espalier serve run", 2, "unexpected word run: write --load run"},
        Mistake{"mkdir run; espalier generate run; code=$?; rmdir run; exit $code", 2, "run: write --load run"},
        Mistake{"espalier $TRAIN --version", 2, "unknown option --version: `espalier version` shows it"},
        Mistake{"espalier launch --nproc-per-node 2 train --lr 3", 2, "'--lr' is not a model family"},
        Mistake{"espalier launch --nnodes 2 preprocess --input x", 2,
                "espalier preprocess runs in one process: leave espalier launch --nnodes out"},
        Mistake{"espalier checkpoint prune --keep 2 run --keep-last 1", 66,
                "'run' does not exist; nothing is removed"}));

// Words of other programs, and files in place of folders.
INSTANTIATE_TEST_SUITE_P(
    Strangers, MistakesCommand,
    testing::Values(
        Mistake{"espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl $TOKENIZER "
                "--output-prefix o/",
                2, "--output-prefix o/ is a folder: what is written needs a name after it, as o/corpus"},
        Mistake{"espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl $TOKENIZER "
                "--output-prefix o --seq-length 1024",
                2, "documents are stored whole; training cuts samples of --seq-length"},
        Mistake{"espalier index build --input a.safetensors --embedding-path i", 2, "--input: here it is --embeddings"},
        Mistake{"espalier checkpoint prune run --keep-last -1", 2, "--keep-last -1 (command line) is below"},
        Mistake{"echo 'steps:' >r.yaml; espalier curate r.yaml; code=$?; rm r.yaml; exit $code", 2,
                "'r.yaml' is a file, and a recipe of curate is in TOML: espalier curate FILE.toml"},
        Mistake{"printf '[output]\nfolder = \"mix\"\n[[source]]\nname = \"a\"\nfile = \"in\"\n' >r.toml; "
                "espalier curate r.toml; code=$?; rm r.toml; exit $code",
                2, "r.toml:5: unknown key file; did you mean files?"},
        Mistake{"echo x >out; espalier checkpoint import-hf --input . --save out; code=$?; rm out; exit $code", 73,
                "out' is a file; nothing is overwritten. Give a new folder"},
        Mistake{"echo x >logs; espalier launch --nproc-per-node 2 --log-dir logs $TRAIN; code=$?; rm logs; exit $code",
                2, "--log-dir logs is a file; name a folder"}));

// Folders of runs and of checkpoints in each other's place.
INSTANTIATE_TEST_SUITE_P(
    Folders, MistakesCommand,
    testing::Values(
        Mistake{
            "mkdir -p runs/a runs/b; touch runs/{a,b}/metrics.jsonl; espalier watch runs --once; code=$?; rm -r runs; "
            "exit $code",
            2, "'runs' is not a run folder, but holds some: runs/a, runs/b. Each run is watched by its own name"},
        Mistake{"mkdir -p runs/a; touch runs/a/metrics.jsonl; espalier watch runs --check; code=$?; rm -r runs; "
                "exit $code",
                2, "'runs' is not a run folder, but holds one: runs/a"},
        Mistake{"mkdir -p run/step_00000002; touch run/metrics.jsonl run/step_00000002/manifest.json; "
                "espalier watch run/step_00000002 --once; code=$?; rm -r run; exit $code",
                2, "'run/step_00000002' is a step folder; name the run folder above it, 'run'"},
        Mistake{"mkdir -p runs/a to; touch runs/a/metrics.jsonl; espalier checkpoint backup runs --to to; code=$?; "
                "rm -r runs to; exit $code",
                66, "'runs' is not a run folder, but holds one: runs/a"},
        Mistake{
            "mkdir -p runs/a; touch runs/a/metrics.jsonl; espalier data who --run runs --step 1; code=$?; rm -r runs; "
            "exit $code",
            66, "'runs' is not a run folder, but holds one: runs/a"},
        Mistake{"mkdir -p runs/a; touch runs/a/metrics.jsonl; espalier checkpoint prune runs --keep-last 1; code=$?; "
                "rm -r runs; exit $code",
                66, "'runs' is not a run folder, but holds one: runs/a; nothing is removed"}));

// Inputs that are damaged: bad data, and nothing of the output stays.
INSTANTIATE_TEST_SUITE_P(
    Damaged, MistakesCommand,
    testing::Values(
        Mistake{"espalier $TRAIN --save a --save-interval 2; espalier $TRAIN --save b --save-interval 2 --seed 2; "
                "printf x | dd of=b/step_00000002/weights-final.safetensors bs=1 conv=notrunc seek=$(($(stat -c %s "
                "b/step_00000002/weights-final.safetensors) - 3)); espalier checkpoint average a b --save mean; "
                "code=$?; rm -r a b; exit $code",
                65, "expected checksum"},
        Mistake{"printf '[output]\nfolder = \"mix\"\n[[source]]\nname = \"a\"\nfiles = [\"in.jsonl\"]\n' >r.toml; "
                "printf 'x\ny\n' >in.jsonl; espalier curate r.toml; code=$?; rm r.toml in.jsonl; exit $code",
                65, "[[source]] a: none of its 2 records is a document. The first: in.jsonl:1: "},
        Mistake{
            "printf '[output]\nfolder = \"mix\"\n[[source]]\nname = \"a\"\nfiles = [\"in.jsonl\"]\n' >r.toml; "
            ">in.jsonl; espalier curate r.toml; code=$?; rm r.toml in.jsonl; exit $code",
            65,
            "[[source]] a: there is no record in its 1 file (in.jsonl). Nothing was written; may_be_empty = true"}));

INSTANTIATE_TEST_SUITE_P(Surroundings, MistakesCommand,
                         testing::Values(Mistake{"OMP_NUM_THREADS=0 espalier $TRAIN", 2,
                                                 "OMP_NUM_THREADS='0' is not a number of threads"},
                                         Mistake{"OMP_NUM_THREADS=abc espalier launch --nproc-per-node 1 $TRAIN", 2,
                                                 "is not a number of threads"},
                                         Mistake{"ESPALIER_CPU_ISA=sse espalier $TRAIN", 2,
                                                 "ESPALIER_CPU_ISA=sse is not an instruction set"},
                                         Mistake{"ulimit -f 10; espalier preprocess --input " ESPALIER_SOURCE_FOLDER
                                                 "/tests/data/owt-20.jsonl --output-prefix o $TOKENIZER",
                                                 74, "File too large"}));

// Asked once more by people who had not seen the program before.
INSTANTIATE_TEST_SUITE_P(
    Asked, MistakesCommand,
    testing::Values(
        Mistake{"espalier preprocess --version", 2, "unknown option --version: `espalier version` shows it"},
        Mistake{"espalier $TRAIN --split 90,5,3,2", 2,
                "--split '90,5,3,2' has 4 parts, and there are three sets: train, valid, test. Write 90,5,3."},
        Mistake{"espalier $SHAPE --data-path $DATA --train-iters 2 --tokenizer-type PretrainedFromHF "
                "--tokenizer-name-or-path " ESPALIER_SOURCE_FOLDER "/tests/data/gpt2-tiny",
                2, "holds no tokenizer.json. It can be used by --tokenizer-type GPT2BPETokenizer"},
        Mistake{"espalier eval --model run --tasks wikitext103 --data wikitext103=$V", 2, "--model: here it is --load"},
        Mistake{"espalier eval --load run --tasks lambada --data nowhere", 2, "--data nowhere: no such file or folder"},
        Mistake{"mkdir d; espalier eval --load run --tasks lambada --data lambada=d; code=$?; rmdir d; exit $code", 2,
                "--data lambada=d is a folder; the task is read from a file"},
        Mistake{"mkfifo f; espalier eval --load run --tasks lambada --data lambada=f; code=$?; rm f; exit $code", 2,
                "--data lambada=f is a pipe (FIFO)"},
        Mistake{"espalier eval --load run --tasks mmlu --data mmlu=$V", 2,
                "those of lm_eval 0.4 come from its task files: --task-files DIR"},
        Mistake{"espalier eval --load run --tasks lambada --data lambada=$V --num-fewshot 3", 2,
                "only tasks of lm-eval-0.4 have examples: --task-files DIR, and lm-eval-0.4:NAME"},
        Mistake{"espalier submit slurm --nodes 4 $TRAIN", 2, "the ranks cannot run slurm: it is not a command"},
        Mistake{"espalier generate --load r --sample-input-file $V --genfile g", 2,
                "of --sample-input-file use --sample-output-file"},
        Mistake{"espalier generate --load r --prompt x --tokenizer-type GPT2BPETokenizer", 2,
                "unknown option --tokenizer-type: a checkpoint has its own tokenizer"},
        Mistake{"espalier $TRAIN --fp32", 2, "--fp32: numbers are fp32 unless --bf16 or --fp16 is given"},
        Mistake{"espalier $TRAIN --lora-rank 8", 2, "--lora-rank: all parameters are trained"},
        Mistake{"espalier $BARE --training.steps 10", 2, "--training.steps: here it is --train-iters"},
        Mistake{"espalier $TRAIN --zebra", 2,
                "unknown option --zebra: `espalier train gpt --help` lists what there is"},
        Mistake{"mkdir run; espalier checkpoint verify run --step 5; code=$?; rmdir run; exit $code", 2,
                "unknown option --step: here it is --ckpt-step"},
        Mistake{"espalier checkpoint prune run --keep-last 1 --dry-run", 2, "nothing is removed without --yes"},
        Mistake{"espalier checkpoint export-megatron --load run --output m --target-tensor-parallel-size 2", 2,
                "here it is --tensor-model-parallel-size"},
        Mistake{"espalier recipe --params 125M", 2, "--params: here it is --depth; the number of parameters follows"},
        Mistake{"espalier train", 2, "no model family: there are gpt, bert"},
        Mistake{"espalier train recipes/tiny.toml", 2, "a recipe is given as espalier train gpt --recipe"},
        Mistake{"mkdir run; espalier ctl restart run; code=$?; rmdir run; exit $code", 2, "unknown command restart; "},
        Mistake{"espalier curate " ESPALIER_SOURCE_FOLDER "/recipes/tiny.toml", 2,
                "A recipe of options is given as espalier train gpt --recipe "},
        Mistake{"printf '[output]\nfolder = \"a\"\n[[source]]\nname = \"b\"\n' >r.toml; espalier train gpt --recipe "
                "r.toml; code=$?; rm r.toml; exit $code",
                2, "r.toml:3: [[source]] belongs to a recipe of espalier curate"},
        Mistake{"cp " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl in; espalier curate step exact --input in "
                "--output in; code=$?; rm in; exit $code",
                2, "in is an input, which would be replaced while it is read"},
        Mistake{"espalier data sample $DATA --seq-length 32 --json", 2, "write --data-path "}));

// Results that would be wrong without a word: a warning says so.
INSTANTIATE_TEST_SUITE_P(
    Silence, MistakesCommand,
    testing::Values(
        Mistake{
            "espalier ${NODATA/--split 1,0,0/} --train-iters 2 --train-weighted-split-paths \"TRAIN: 1 0:0.7 $DATA\" "
            "--valid-weighted-split-paths \"VALID: 1 0.3:1 $DATA\" --validate-only",
            0, "'VALID' and the training set share 0.3:0.7 of '"},
        Mistake{"espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl $TOKENIZER "
                "--output-prefix o; rm o_*",
                0, "nothing marks the ends of documents"},
        Mistake{"espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl $TOKENIZER "
                "--output-prefix o; espalier $NODATA --data-path o_text_document --train-iters 2 --eod-mask-loss "
                "--validate-only; code=$?; rm o_*; exit $code",
                0, "'o_text_document' does not end its documents with the end-of-document token "},
        Mistake{"espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl $TOKENIZER "
                "--output-prefix o --split-sentences; espalier $NODATA --data-path o_text_sentence --train-iters 2 "
                "--validate-only; code=$?; rm o_*; exit $code",
                0, "'o_text_sentence' keeps the sentences of its documents apart"},
        Mistake{"espalier parity ${SHAPE#train } --data-path $DATA --train-iters 2 --tokenizer-type PretrainedFromHF "
                "--tokenizer-name-or-path " ESPALIER_SOURCE_FOLDER "/tests/data/gpt2-tiny --layouts tp1,tp2",
                66, "holds no tokenizer.json. It can be used by --tokenizer-type GPT2BPETokenizer"},
        Mistake{"espalier parity gpt ${TRAIN#train gpt} --layouts tp2", 2,
                "--layouts tp2 names one layout, which is compared with none"},
        Mistake{
            "mkdir run; touch run/metrics.jsonl; espalier runs plot run --output x.png; code=$?; rm -r run; exit $code",
            2, "--output x.png: the picture is in SVG; name it x.svg"},
        Mistake{"espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl --tokenizer-type "
                "NullTokenizer --vocab-size 99 --output-prefix o",
                65, "It knows no words: those need the tokenizer of the model"},
        Mistake{"espalier generate --load r --prompt x --greedy --temperature 0.5", 66,
                "--greedy takes the likeliest token: --temperature, --top-k and --top-p have no effect"}));

// Copies of a run in the run itself, and folders that are not a run's.
INSTANTIATE_TEST_SUITE_P(
    Places, MistakesCommand,
    testing::Values(
        Mistake{"mkdir run; touch run/metrics.jsonl; espalier checkpoint backup run --to run; code=$?; rm -r run; "
                "exit $code",
                2, "--to 'run' is in 'run' itself, with which the copy would be lost"},
        Mistake{"mkdir -p run/deep; touch run/metrics.jsonl; espalier checkpoint backup run --to run/deep; code=$?; rm "
                "-r run; exit $code",
                2, "--to 'run/deep' is in 'run' itself"},
        Mistake{"mkdir -p run/copy; touch run/metrics.jsonl; espalier runs mirror run --to run/copy; code=$?; rm -r "
                "run; exit $code",
                2, "--to 'run/copy' is in "},
        Mistake{
            "mkdir run; touch run/metrics.jsonl; espalier watch run --once --backup-to run; code=$?; rm -r run; exit "
            "$code",
            2, "--to 'run' is in 'run' itself"},
        Mistake{"mkdir -p runs/a; touch runs/a/metrics.jsonl; espalier checkpoint backup runs/a --to runs; code=$?; "
                "test -e "
                "runs/a/backup_of.txt && code=99; rm -r runs; exit $code",
                2, "--to 'runs' is where 'runs/a' itself lies, so 'runs/a' would be no copy"},
        Mistake{
            "mkdir -p runs/a; touch runs/a/metrics.jsonl; espalier runs mirror runs/a/ --to runs; code=$?; rm -r runs; "
            "exit $code",
            2, "--to 'runs' is where "},
        Mistake{"mkdir -p runs/a; touch runs/a/metrics.jsonl; espalier watch runs/a --once --backup-to runs; code=$?; "
                "rm -r "
                "runs; exit $code",
                2, "--to 'runs' is where 'runs/a' itself lies"},
        Mistake{"mkdir hf; echo '{}' >hf/config.json; touch hf/model.safetensors; espalier watch hf --once; code=$?; "
                "test -e hf/watch && code=99; "
                "rm -r hf; exit $code",
                2, "'hf' is not the folder of a run (--save): "},
        Mistake{"espalier $TRAIN --tensorboard-dir /proc/nowhere", 73,
                "cannot create the folder '/proc/nowhere' for TensorBoard"},
        Mistake{"espalier $TRAIN --save r --save-interval 2; espalier checkpoint export-hf --load r --output "
                "/proc/nowhere; code=$?; rm -r r; exit $code",
                73, "Name a folder that can be created and written to."}));

// Data in another form, cut off, or more than there is room for.
INSTANTIATE_TEST_SUITE_P(
    Forms, MistakesCommand,
    testing::Values(
        Mistake{"tar cf a.tar -C " ESPALIER_SOURCE_FOLDER "/tests/data owt-20.jsonl; espalier preprocess --input a.tar "
                "--output-prefix o $TOKENIZER; code=$?; rm a.tar; exit $code",
                65, "'a.tar' is a tar archive"},
        Mistake{"tar czf a.tgz -C " ESPALIER_SOURCE_FOLDER
                "/tests/data owt-20.jsonl; espalier preprocess --input a.tgz "
                "--output-prefix o $TOKENIZER; code=$?; rm a.tgz; exit $code",
                65, "'a.tgz' is a tar archive"},
        Mistake{"printf '\\004\\042\\115\\030data' >a.lz4; espalier preprocess --input a.lz4 --output-prefix o "
                "$TOKENIZER; code=$?; rm a.lz4; exit $code",
                65, "'a.lz4' is a lz4 file"},
        Mistake{"espalier $BARE --train-iters 1000000000000", 2,
                "does not fit into memory. Ask for fewer steps or samples, of training or of --eval-iters"},
        Mistake{"espalier $TRAIN --lr 0 --min-lr 0 --validate-only", 0, "(command line): no step changes a weight"},
        Mistake{
            "head -c 900 $V >v; espalier preprocess --input " ESPALIER_SOURCE_FOLDER "/tests/data/owt-20.jsonl "
            "--output-prefix o --tokenizer-type GPT2BPETokenizer --vocab-file v --merge-file $M; code=$?; rm v; exit "
            "$code",
            65, "'v'"},
        Mistake{
            "espalier $TRAIN --save r --save-interval 2; echo '{\"text\": \"a b\"}' >l; TMPDIR=/nowhere espalier eval "
            "--load r --tasks lambada --data lambada=l; code=$?; rm -r r l; exit $code",
            73, "TMPDIR=/nowhere names no folder"},
        Mistake{"mkdir -p runs/a/step_00000002; touch runs/a/step_00000002/manifest.json; espalier $TRAIN --save runs "
                "--save-interval 2 --validate-only; code=$?; rm -r runs; exit $code",
                0, "--save runs (command line) holds runs, and becomes one itself; there are runs below it: runs/a"},
        Mistake{"mkdir hf; echo '{}' >hf/config.json; touch hf/model.safetensors; espalier $TRAIN --save hf "
                "--save-interval 2; code=$?; rm -r hf; exit $code",
                2, "--save hf (command line) is not the folder of a run: it is a Hugging Face model"},
        Mistake{
            "head -c 900 $V >v; espalier $SHAPE --data-path $DATA --train-iters 2 --tokenizer-type GPT2BPETokenizer "
            "--vocab-file v --merge-file $M; code=$?; rm v; exit $code",
            65, "'v'"},
        Mistake{"espalier $TRAIN --init-method-std 0 --validate-only", 0,
                "weights that all begin as 0 get no gradient"},
        Mistake{"espalier train retro ${TRAIN#train gpt} --validate-only", 0,
                "without --retro-add-retriever nothing is retrieved"},
        Mistake{
            "espalier $TRAIN --save r --save-interval 2; rm -r r/step_00000002/tokenizer; espalier generate --load r "
            "--prompt x; code=$?; rm -r r; exit $code",
            66, "has no tokenizer: there is no 'r/step_00000002/tokenizer'. Copy that folder from another checkpoint"},
        Mistake{"espalier checkpoint import-hf --input " ESPALIER_SOURCE_FOLDER
                "/tests/data/hf/bert --save b; espalier "
                "generate --load b --prompt x; code=$?; rm -r b; exit $code",
                2, "has no tokens CLS, SEP and MASK, without which nothing can be filled in"}));

}  // namespace
}  // namespace espalier
