#!/bin/bash
# The study of one neuron, short: its runs are its replays', its report and its picture are there, and what it refuses.
#
# Usage: study_neuron.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--every=H'
expect 2 "$study" --steps 99
expect_err '--steps'
expect 2 "$study" --picture "$work/a.pdf"
expect_err 'a.pdf: expected a name that ends with .svg or .png'
expect 1 "$study" --json "$work/none/a.json"
expect_err '--json'
expect 0 "$study" --steps 300 --every 7 --json "$work/a.json"
expect_json "$work/a.json" 'rows;14;workers' 16
expect_json "$work/a.json" 'rows;14;every' 7
expect_json "$work/a.json" 'rows;3;curve;2;step' 300
expect_json "$work/a.json" 'machine;cores' '[0-9]+'
if ! command -v gnuplot >/dev/null; then
    expect 77 "$study" --picture "$work/a.svg"
    expect_err 'gnuplot is not installed'
    exit 0
fi
expect 0 "$study" --steps 100 --picture "$work/a.svg"
grep -q '>.*averages of gradients' "$work/a.svg" || fail 'the picture has no title'
