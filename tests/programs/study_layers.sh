#!/bin/bash
# The study of layers, short: shares add up to 100 %, what runs as one is named as one, and what it refuses.
#
# Usage: study_layers.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--model=NAME'
expect 2 "$study" --batch 257
expect_err '--batch'
expect 2 "$study" --model none
expect_err '--model none'
expect 0 "$study" --model resnet20 --batch 4 --json "$work/a.json"
expect_json "$work/a.json" 'rows;1;linear' 4
awk '/%$/ { sum += $(NF - 1) } /^batch/ && NR > 1 { check() } END { check() }
    function check() { if (sum < 99.9 || sum > 100.1) { print "the shares add up to " sum; exit 1 } sum = 0 }' "$work/out" ||
    fail 'the shares of a batch do not add up to 100 %'
expect_out 'batch norm \+ relu'
expect_out '^  update '
