#!/bin/bash
# The study of a parameter server's times, short: averages are right, the line is through the times, and what it refuses.
#
# Usage: study_server_times.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--numbers=N'
expect 2 "$study" --repeats 0
expect_err '--repeats'
expect 2 "$study" --gpus 2
expect_err '--gpus 2'
expect 0 "$study" --numbers 10007 --repeats 3 --json "$work/a.json"
expect_json "$work/a.json" 'rows;3;workers' 8
expect_json "$work/a.json" 'rows;0;average' '[0-9.e-]+'
for i in 1 2 3; do json "$work/a.json" "rows;$i;average"; done >"$work/times"
expected=$(awk 'NR == 1 { a = $1 } NR == 2 { b = $1 } NR == 3 { c = $1 }
    END { m = (a + b + c) / 3; print (-8 * (a - m) - 2 * (b - m) + 10 * (c - m)) / 56 }' "$work/times")
awk -v got="$(json "$work/a.json" average_ms_each)" -v expected="$expected" \
    'BEGIN { d = got - expected; exit d * d > 1e-8 * expected * expected + 1e-16 }' || fail "the slope is not $expected"
