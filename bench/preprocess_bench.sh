#!/bin/bash
# How fast text becomes token files: documents/s and MB/s of the whole command, start to renamed files.
#
#   bench/preprocess_bench.sh FILE.jsonl VOCAB_FOLDER [COPIES]
#
# Runs build/bin/espalier preprocess over COPIES (10) copies of FILE with the vocab.json and merges.txt of VOCAB_FOLDER,
# plain and compressed, with one worker and with all cores. Best of three runs, by the wall clock; memory is the peak of
# the process.
set -euo pipefail
cd "$(dirname "$0")/.."
input=$1 vocabulary=$2 copies=${3:-10}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for ((copy = 0; copy < copies; ++copy)); do cat "$input"; done > "$work/corpus"
gzip -kc "$work/corpus" > "$work/corpus.gz"
if command -v zstd > /dev/null; then zstd -qc "$work/corpus" > "$work/corpus.zst"; fi
bytes=$(stat -c %s "$work/corpus")
documents=$(wc -l < "$work/corpus")
printf '%d documents, %.1f MB\n\n' "$documents" "$(awk "BEGIN{print $bytes/1e6}")"
printf '%-12s %8s %10s %10s %14s %10s\n' input workers seconds MB/s documents/s 'peak MiB'

measure() {  # measure FILE WORKERS
  local file=$1 workers=$2 best='' seconds memory=0 started ended
  for _ in 1 2 3; do
    started=$(date +%s.%N)
    memory=$(bash -c '"$@" 2> /dev/null & child=$!; peak=0
      while [ -r /proc/$child/status ]; do
        now=$(awk "/VmHWM/{print \$2}" /proc/$child/status 2> /dev/null); peak=${now:-$peak}; sleep 0.02
      done; wait $child || exit 1; echo "$peak"' - \
      build/bin/espalier preprocess --input "$file" --output-prefix "$work/out" --tokenizer-type GPT2BPETokenizer \
      --vocab-file "$vocabulary/vocab.json" --merge-file "$vocabulary/merges.txt" --append-eod --overwrite --workers "$workers")
    ended=$(date +%s.%N)
    seconds=$(awk "BEGIN{print $ended-$started}")
    if [ -z "$best" ] || awk "BEGIN{exit !($seconds < $best)}"; then best=$seconds; fi
  done
  awk -v name="$(basename "$file")" -v workers="$workers" -v seconds="$best" -v bytes="$bytes" -v documents="$documents" \
    -v memory="$memory" 'BEGIN{printf "%-12s %8d %10.3f %10.1f %14.0f %10.0f\n",
    name, workers, seconds, bytes / 1e6 / seconds, documents / seconds, memory / 1024}'
}

measure "$work/corpus" 1
measure "$work/corpus" "$(nproc)"
for packed in "$work"/corpus.*; do measure "$packed" "$(nproc)"; done
