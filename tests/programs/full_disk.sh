#!/bin/bash
# A full disk, which /dev/full and a limit on the size of files stand for: each program says what it could not write and
# ends with 1, and what was there stays.
#
# Usage: full_disk.sh MPIEXEC NUMPROC_FLAG ALNICO-INFO ALNICO-PERF ALNICO-SIMULATE ALNICO-TUNE [ALNICO-TRAIN]
. "$(dirname "$0")/common.sh"
mpiexec=$1 flag=$2 info=$3 perf=$4 simulate=$5 tune=$6 train=${7:-}
[ -c /dev/full ] || exit 77

simulation=("$simulate" --ranks 4 --sizes 8,64,512,4K)
training=("$train" --model cnn --data synthetic:8x8x1 --steps 1 --test-images 0)

# The report.
report() {
    expect 1 "$@" --json /dev/full
    expect_err "^alnico-[a-z]*: --json /dev/full: cannot be written: No space left on device$"
}
report "$info"
report "${simulation[@]}"
report "$mpiexec" "$flag" 2 "$perf" allreduce -e 8 -n 1
[ -z "$train" ] || report "$mpiexec" "$flag" 2 "${training[@]}"
[ -z "$train" ] || report "${training[@]}" --profile

# What the old report says stays, and nothing is left beside it.
mkdir "$work/reports"
echo old >"$work/reports/a.json"
# shellcheck disable=SC2016
expect 1 bash -c 'ulimit -f 1 && exec "$@" >/dev/null' - "${simulation[@]}" --json "$work/reports/a.json"
expect_err '^alnico-simulate: --json .*/a.json: cannot be written: File too large$'
[ "$(cat "$work/reports/a.json")" = old ] || fail "the old report has gone"
[ "$(ls "$work/reports")" = a.json ] || fail "left behind: $(ls "$work/reports")"
expect 0 "${simulation[@]}" --json "$work/reports/a.json"
expect_json "$work/reports/a.json" program alnico-simulate
