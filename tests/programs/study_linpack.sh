#!/bin/bash
# The study of Linpack, short: residuals are HPL's on 1, 2 and 4 ranks, the batch is the formula's, and what it refuses.
#
# Usage: study_linpack.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--ranks=N'
expect 2 "$study" --ranks 0
expect_err '--ranks'
expect 2 "$study" --device cuda --ranks 2
expect_err "--ranks 2: --device cuda is of one GPU"
# 545 = 17 x 32 + 1: b stands in a block with a column, in one of its own, and in the first.
expect 0 "$study" --size 545 --ranks 4 --repeats 1 --json "$work/a.json"
expect_json "$work/a.json" 'rows;26;ranks' 4
expect_json "$work/a.json" 'rows;26;block' 512
expect_json "$work/a.json" 'rows;26;residual' '0\.[0-9]+'
expect 0 "$study" --size 544 --ranks 2 --repeats 1
expect 0 "$study" --size 1 --ranks 2 --repeats 1
block=$(json "$work/a.json" 'best;2;block')
awk -v block="$block" 'BEGIN { printf "%d\n", 2 ^ int(log(block * block * 64 / (28 * 28 * 32)) / log(2) + 0.5) }' >"$work/batch"
expect_json "$work/a.json" 'best;2;batch' "$(cat "$work/batch")|1"
