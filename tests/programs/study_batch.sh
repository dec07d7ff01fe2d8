#!/bin/bash
# The study of batches, short: the formula's batch is among those that are measured, runs in a folder are not repeated, and what
# it refuses.
#
# Usage: study_batch.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
expect 0 "$study" --help
expect_out '--batches BATCHES'
for wrong in '--batches 8,x' '--batches 0' '--block 7' '--images 0' '--ranks 1.5' '--repeats 1,2' '--device tpu' '--picture a.pdf' \
    '--build /none'; do
    # shellcheck disable=SC2086
    expect 2 "$study" $wrong
    expect_err "error: .*${wrong%% *}"
done
expect 1 "$study" --json "$work/none/a.json"
expect_err '^batch: --json .*: No such file or directory'
CUDA_VISIBLE_DEVICES='' expect 77 "$study" --device cuda
expect_err 'this machine has no GPU'

# A block of 80 names 16 (16.3 images of 28 x 28 x 32 bits).
run=("$study" --data synthetic:28x28x1 --block 80 --batches 8,32 --images 64 --ranks 1,2 --folder "$work/runs")
expect 0 "${run[@]}" --json "$work/a.json"
expect_out '^# a block of 80 \(--block\) names a batch of 16$'
expect_out '^# (yes|no): an epoch with the formula.s batch of 16 takes [0-9.]+ times as long'
expect_out '^split +2 +64 '
expect_json "$work/a.json" 'formula_batch' 16
expect_json "$work/a.json" 'rows;1;batch' 16
expect_json "$work/a.json" 'rows;4;way' async
expect_json "$work/a.json" 'rows;4;ranks' 2
expect_json "$work/a.json" 'machine;cores' '[0-9]+'

# Again, with what is there: the table is the same, and only a run of other options is new.
cp "$work/out" "$work/before"
touch "$work/mark"
rm "$work/runs/adam-1-16-1.json"
sed -i 's/--seed 1/--seed 5/' "$work/runs/adam-1-8-1.options"
expect 0 "${run[@]}"
[ "$(grep -vE '^#|^adam' "$work/out")" = "$(grep -vE '^#|^adam' "$work/before")" ] || fail 'a second table differs'
new=$(cd "$work/runs" && find . -name '*.json' -newer "$work/mark" | sort | xargs)
[ "$new" = './adam-1-16-1.json ./adam-1-8-1.json' ] || fail "runs were repeated: $new"

expect 1 "$study" --data idx:/none --block 80 --batches 8 --images 64 --ranks 1
expect_err '^batch: adam-1-8-1: alnico-train: .*/none'
command -v gnuplot >/dev/null || exit 0
expect 0 "${run[@]}" --picture "$work/a.svg"
grep -q '>.*seconds an epoch' "$work/a.svg" || fail 'the picture has no axis of seconds'
