#!/bin/bash
# benchmarks/input_overlap on the CPU: the packed file is made once, both ways train on one and two ranks, and what they took is
# summed up.
#
# Usage: input_overlap.sh SOURCE BUILD MPIRUN
. "$(dirname "$0")/common.sh"
source=$1 build=$2 mpirun=$3
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

run=("$source/benchmarks/input_overlap" "$work/folder" --build "$build" --mpirun "$mpirun" --device cpu --model cnn
    --precision fp32 --image 16 --images 48 --classes 3 --batch 8 --steps 6 --loaders 2)
expect 0 "${run[@]}" --gpus 1,2 --rounds 2
expect_out '^GPUs +synthetic +packed +ratio +io +h2d$'
expect_out '^ +1 +[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+ % +[0-9.]+ %$'
expect_out '^ +2 +[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+ % +[0-9.]+ %$'
python3 - "$work/folder" <<'SCRIPT'
import json
import sys

folder = sys.argv[1]
rows = json.load(open(folder + "/summary.json"))["rows"]
assert [row["gpus"] for row in rows] == [1, 2], rows
assert all(len(row["ratios"]) == 2 and row["ratio"] > 0 for row in rows), rows
for way, data in ("packed", f"packed:{folder}/images.packed"), ("synthetic", "synthetic:16x16x3"):
    report = json.load(open(f"{folder}/{way}-2-1.json"))
    assert report["ranks"] == 2 and report["options"]["data"] == data, report
    assert report["options"]["loaders"] == 2 and report["options"]["classes"] == (3 if way == "synthetic" else 0), report
SCRIPT
[ ! -e "$work/folder/images" ]

# The packed file stays as it is, and one that is damaged fails the runs that read it.
printf x | dd of="$work/folder/images.packed" bs=1 seek=5000 conv=notrunc status=none
expect 1 "${run[@]}" --rounds 1
expect_out 'images.packed: record 1, at byte 4880, is damaged'

expect 2 "${run[@]}" --classes 100
expect_err 'classes 100: expected at most --images 48$'
expect 2 "$source/benchmarks/input_overlap" "$work/folder" --build "$work/none"
expect_err 'has no tools/alnico-train$'
