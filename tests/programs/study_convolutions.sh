#!/bin/bash
# The study of convolutions, short: all ways are near float64, also on images with an odd side, and what it refuses.
#
# Usage: study_convolutions.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--most=SIDE'
expect 2 "$study" --most 6
expect_err '--most'
expect 0 "$study" --most 14 --channels 5 --images 3 --seconds 0.01 --json "$work/a.json"
expect_json "$work/a.json" 'winograd_products' 16
expect_json "$work/a.json" 'rows;11;window' 11
expect_json "$work/a.json" 'rows;11;FFT' '[0-9.e-]+'
expect_json "$work/a.json" 'rows;1;Winograd' '[1-9][0-9.]*|0\.[0-9]+'
expect_json "$work/a.json" 'rows;1;Winograd_apart' '[0-9.]+e-(0[6-9]|[1-9][0-9])'
