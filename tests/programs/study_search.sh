#!/bin/bash
# The search of batch and rate, short: areas are those of the logs, a search that is stopped goes on, runs that diverge are 0, and
# what it refuses.
#
# Usage: study_search.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
expect 0 "$study" --help
expect_out '--threshold THRESHOLD'
for wrong in '--rates 0' '--rates 0.1,x' '--batches 1.5' '--workers 0' '--threshold -1' '--images 0' '--at-once 1'; do
    # shellcheck disable=SC2086
    expect 2 "$study" $wrong
    expect_err "error: .*${wrong%% *}"
done
expect 2 "$study" --build /none
expect_err 'has no tools/alnico-train'

# 900 diverges at once; of 3 workers each of 1 or 2 cores has some in turn, or all have their own.
run=("$study" --model mnist --data synthetic:14x14x1 --images 4096 --batches 8,16 --rates 0.02,900 --workers 1,3 --threshold 100 --folder "$work/runs")

# Stopped while the first runs are under way: they leave checkpoints, and no results.
"${run[@]}" >"$work/out" 2>"$work/err" &
pid=$!
for _ in $(seq 1000); do
    [ "$(wc -l 2>/dev/null <"$work/runs/1-8-0.02-1.csv" || echo 0)" -lt 20 ] || break
    sleep 0.02
done
kill -TERM $pid || fail "the search was over before it was stopped"
status=0
wait $pid || status=$?
[ $status -eq 143 ] || fail "a stopped search ended with $status, expected 143"
[ ! -e "$work/runs/1-8-0.02-1.json" ] || fail 'a run was over before the search was stopped'
[ -e "$work/runs/1-8-0.02-1.checkpoint" ] || fail 'a stopped run left no checkpoint'

expect 0 "${run[@]}" --json "$work/a.json"
expect_out '^ +1 +8 +900 diverged$'
expect_out '^# 1 worker: batch (8|16) and rate 0.02, [0-9.]+ % in [0-9.]+ s; with another seed [0-9.]+ %, (not )?within a point$'
expect_out '^# 3 workers: batch '
expect_json "$work/a.json" 'rows;1;area' 0
expect_json "$work/a.json" 'rows;4;workers' 3
awk -F, 'NR > 1 { if ($3 < last) falls++; last = $3 } END { exit falls != 1 }' "$work/runs/1-8-0.02-1.csv" ||
    fail 'the stopped run did not go on: its log is not of two pieces'
[ -z "$(find "$work/runs" -name '*.checkpoint')" ] || fail 'finished runs leave checkpoints'
expect_json "$work/runs/1-8-0.02-1.json" steps 512
ranks=$(json "$work/runs/3-8-0.02-1.json" ranks)
expect_json "$work/runs/3-8-0.02-1.json" 'options;accumulate' $((3 / ranks))
expect_json "$work/runs/3-8-0.02-1.json" steps 170

# The area of each run that counts, from its log; the first one's seconds began anew where it went on.
for row in 0 2 4 6; do
    name=$(json "$work/a.json" "rows;$row;workers")-$(json "$work/a.json" "rows;$row;batch")-0.02-1
    awk -F, -v wanted="$(json "$work/a.json" "rows;$row;area")" 'NR > 1 && $4 != "" {
        if ($3 < last) last = 0
        area += ($3 - last) * $4; last = $3 }
        END { if (!(area > 0.99999 * wanted && area < 1.00001 * wanted)) { print area " is not " wanted; exit 1 } }' "$work/runs/$name.csv" ||
        fail "the area of $name is not that of its log"
done

# A threshold that no run reaches.
expect 0 "${run[@]}" --threshold 0 --json "$work/b.json"
expect_out '^# 1 worker: no run has a loss of at most 0$'
expect_json "$work/b.json" 'rows;0;area' 0
command -v gnuplot >/dev/null || exit 0
expect 0 "${run[@]}" --picture "$work/a.svg"
grep -q '>.*3 workers: 2 of 4 are 0' "$work/a.svg" || fail 'the picture has no histogram of 3 workers'
