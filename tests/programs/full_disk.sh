#!/bin/bash
# A full disk, which /dev/full and a limit on the size of files stand for: each program says what it could not write and
# ends with 1, and what was there stays.
#
# Usage: full_disk.sh MPIEXEC NUMPROC_FLAG REDUCE-BANDWIDTH ALNICO-INFO ALNICO-PERF ALNICO-SIMULATE ALNICO-TUNE [ALNICO-TRAIN]
. "$(dirname "$0")/common.sh"
mpiexec=$1 flag=$2 bandwidth=$3 info=$4 perf=$5 simulate=$6 tune=$7 train=${8:-}
[ -c /dev/full ] || exit 77

simulation=("$simulate" --ranks 4 --sizes 8,64,512,4K)
training=("$train" --model cnn --data synthetic:8x8x1 --steps 1 --test-images 0)

# Standard output: of one process, and of rank 0 of two, while the other has nothing to print.
output() {
    # shellcheck disable=SC2016
    expect 1 "${launch[@]}" bash -c 'exec "$@" >/dev/full' - "$@"
    [ "$(grep -c '^[a-z_-]*: cannot write to standard output: No space left on device$' "$work/err")" -eq 1 ] ||
        fail "expected one line on stderr that says what could not be written"
}
launch=()
for program in "$info" "$perf" "$simulate" "$tune" $train; do
    output "$program" --help
done
cat >"$work/table.json" <<'TABLE'
{"alnico_tuning": 1, "rows": [{"collective": "allreduce", "device": "cpu", "ranks_up_to": 3, "hosts_up_to": 1,
    "bytes_up_to": null, "backend": "host", "algorithm": "ring", "chunk_bytes": 12345}]}
TABLE
output "$info"
output "${simulation[@]}"
output "$perf" allreduce -e 8 -n 1
output "$bandwidth" --bytes 4096 --repetitions 1
output "$tune" --check "$work/table.json"
[ -z "$train" ] || output "${training[@]}"
[ -z "$train" ] || output "${training[@]}" --memory
[ -z "$train" ] || output "${training[@]}" --profile
launch=("$mpiexec" "$flag" 2)
output "$info"
output "$perf" allreduce -e 8 -n 1
output "$tune" --quick --seconds 0.05 -b 8 -e 8
[ -z "$train" ] || output "${training[@]}"

# The report.
report() {
    expect 1 "$@" --json /dev/full
    expect_err "^[a-z_-]*: --json.* /dev/full: cannot be written: No space left on device$"
}
report "$info"
report "$bandwidth" --bytes 4096 --repetitions 1
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
