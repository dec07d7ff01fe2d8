#!/bin/bash
# The study of larger batches, short: batches and rates grow together, means are of the seeds' accuracies, and what it refuses.
#
# Usage: study_large_batch.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
expect 0 "$study" --help
expect_out '--factors FACTORS'
for wrong in '--factors 0' '--seeds 1,,2' '--batch x' '--images 5,6' '--epochs 0' '--recipes plain,none' '--at-once 2' '--data'; do
    # shellcheck disable=SC2086
    expect 2 "$study" $wrong
    expect_err "error: .*${wrong%% *}"
done
expect 2 "$study" --images 5 --epochs 1
expect_err 'not allowed with'
expect 1 "$study" --models none --images 64 --folder "$work/none"
expect_err '^large_batch: none-plain-64-[1-3]: alnico-train: .*none'

run=("$study" --data synthetic:12x12x1 --images 512 --batch 8 --factors 1,8 --seeds 1,2 --recipes plain,lars --folder "$work/runs")
expect 0 "${run[@]}" --json "$work/a.json"
expect_out '^cnn-lars-64-2: rate 0.05, test accuracy [0-9.]+ %$'
expect_out '^cnn +plain +8 +64 '
for options in 'plain-8-1 learning_rate 0.00625[0-9]*' 'plain-8-1 warmup 0' 'lars-64-2 lars 0.02' 'lars-64-2 seed 2' 'lars-64-2 batch 64'; do
    read -r name key value <<<"$options"
    expect_json "$work/runs/cnn-$name.json" "options;$key" "$value"
done
expect_json "$work/runs/cnn-plain-64-1.json" steps 8
expect_json "$work/runs/cnn-plain-8-1.json" steps 64
for row in 0 1 2 3; do
    json "$work/a.json" "rows;$row;mean"
    json "$work/a.json" "rows;$row;spread"
    json "$work/a.json" "rows;$row;accuracies;0"
    json "$work/a.json" "rows;$row;accuracies;1"
done | awk 'function abs(x) { return x < 0 ? -x : x }
    { v[NR % 4] = $1 }
    NR % 4 == 0 && (abs(v[1] - (v[3] + v[0]) / 2) > 1e-6 || abs(v[2] - abs(v[3] - v[0]) / sqrt(2)) > 1e-6) { print "row " NR / 4; exit 1 }' ||
    fail 'a mean or a spread is not that of its two accuracies'

# A run that diverged has no accuracy; it is known the next time.
echo '{"diverged": "not a number"}' >"$work/runs/cnn-plain-8-1.json"
expect 0 "${run[@]}" --json "$work/b.json"
expect_out '^cnn-plain-8-1: diverged$'
expect_json "$work/b.json" 'rows;0;diverged' 1
[ "$(json "$work/b.json" 'rows;0;mean')" = "$(json "$work/b.json" 'rows;0;accuracies;0')" ] || fail 'the mean is not of what is left'
command -v gnuplot >/dev/null || exit 0
expect 0 "${run[@]}" --picture "$work/a.svg"
grep -q '>.*test accuracy, %' "$work/a.svg" || fail 'the picture has no axis of accuracies'
