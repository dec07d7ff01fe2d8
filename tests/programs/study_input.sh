#!/bin/bash
# The study of exposed input, short: a row for each source and number of loaders, whose parts are those of its step, nothing left
# behind, and what it refuses.
#
# Usage: study_input.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--loaders=N'
mkdir "$work/files"
expect 0 "$study" --model alexnet-cifar --batch 4 --images 12 --steps 5 --loaders 3,1 --cold --folder "$work/files" \
    --json "$work/a.json" "${picture[@]}"
[ -z "$(ls "$work/files")" ] || fail "left behind: $(ls "$work/files")"
expect_picture
expect_json "$work/a.json" 'rows;0;source' files
expect_json "$work/a.json" 'rows;1;source' packed
expect_json "$work/a.json" 'rows;2;source' memory
expect_json "$work/a.json" 'rows;0;loaders' 3
expect_json "$work/a.json" 'rows;5;loaders' 1
# Exposed is (io + h2d) / step; the least of the packed rows is named.
awk '$1 == "files" || $1 == "packed" || $1 == "memory" {
        share = 100 * ($5 + $6) / $4
        if (share - $7 > 0.1 + 1 / $4 || $7 - share > 0.1 + 1 / $4) { print "exposed " $7 ", expected " share; exit 1 }
        if ($1 == "packed" && (least == "" || $7 + 0 < least)) least = $7 + 0
        rows++
    }
    /^packed: exposed/ { told = $3 }
    END { if (rows != 6 || told != least) { print rows " rows; told " told ", expected " least; exit 1 } }' "$work/out" ||
    fail 'the rows are not those of the steps'

refuse() {
    expect 2 "$study" "${@:2}"
    expect_err "$1"
}
refuse '--loaders' --loaders 0
refuse '--loaders' --loaders 1,x
refuse '--loaders 1,1,1,1,1,1,1,1,1: expected at most 8 numbers' --loaders 1,1,1,1,1,1,1,1,1
refuse '--model none: there is no such network' --model none
refuse '--model mnist: its images are not of three colours' --model mnist
refuse '--batch 9: expected at most --images 8' --batch 9 --images 8
refuse '--steps' --steps 1
expect 1 "$study" --folder "$work/none"
expect_err "$work/none/.*: No such file"
command -v nvidia-smi >/dev/null || expect 77 "$study" --device cuda --folder "$work/files"
[ -z "$(ls "$work/files")" ] || fail "left behind: $(ls "$work/files")"
