#!/bin/bash
# The study of the roof, short: intensities and operations are those of the products, the fastest is at the roof, and what
# it refuses.
#
# Usage: study_roofline.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--model=NAME'
expect 2 "$study" --batch 0
expect_err '--batch'
expect 2 "$study" --model none
expect_err '--model none'
expect 0 "$study" --model mnist --batch 8 --size 256 --seconds 0.01 --json "$work/a.json"
expect_json "$work/a.json" 'rows;0;intensity' '0\.25|0\.2499[0-9]*'
expect_json "$work/a.json" 'rows;1;intensity' '0\.49[0-9]*'
# Forward, 8 images: conv1, 26 x 26 x 32 numbers of 9 products each.
expect_json "$work/a.json" 'rows;7;name' 'conv1, forward'
expect_json "$work/a.json" 'rows;7;flops' $((2 * 8 * 26 * 26 * 32 * 9))
for i in 2 3 4 5 6; do json "$work/a.json" "rows;$i;gflops"; done | sort -g | tail -1 >"$work/best"
expect_json "$work/a.json" peak_gflops "$(cat "$work/best")"
