#!/bin/bash
# The study of small batches, short: both layers' numbers are those of float64, its rates are of its times, and what it
# refuses.
#
# Usage: study_skinny.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--outputs=N'
expect 2 "$study" --inputs 0
expect_err '--inputs'
expect 2 "$study" --device tpu
expect_err '--device'
expect 0 "$study" --inputs 300 --outputs 200 --seconds 0.01 --full --json "$work/a.json"
expect_json "$work/a.json" 'rows;8;batch' 256
expect_json "$work/a.json" 'rows;2;apart' '[0-9.]+e-0[6-9]'
us=$(json "$work/a.json" 'rows;8;backward;us')
rate=$(json "$work/a.json" 'rows;8;backward;gflops')
awk -v us="$us" -v rate="$rate" 'BEGIN { d = us * rate * 1000 / (4 * 256 * 300 * 200); exit d < 0.999 || d > 1.001 }' ||
    fail "$rate GFLOP/s are not those of $us us"
