#!/bin/bash
# The study of realignment, short: matrices are right, both layers agree, and what it refuses.
#
# Usage: study_realign.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--columns=N'
expect 2 "$study" --columns 0
expect_err '--columns'
expect 0 "$study" --columns 1000 --batch 30 --outputs 40 --seconds 0.01 --json "$work/a.json"
expect_json "$work/a.json" 'rows;3;rows' 16000
expect_json "$work/a.json" 'rows;3;copy' '[0-9.]+'
expect_json "$work/a.json" 'layer_apart' '0|[0-9.]+e-(0[6-9]|[1-9][0-9])'
