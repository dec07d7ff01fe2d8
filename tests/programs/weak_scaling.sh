#!/bin/bash
# benchmarks/weak_scaling with stand-ins for nvidia-smi, mpirun and alnico-train, and scripts/plot-train on what it wrote and on
# lines of benchmarks/torch_resnet.py.
#
# Usage: weak_scaling.sh SOURCE
. "$(dirname "$0")/common.sh"
source=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

mkdir -p "$work/bin" "$work/build/tools"
cat >"$work/bin/nvidia-smi" <<'SCRIPT'
#!/bin/bash
seq 0 $((GPUS - 1))
SCRIPT
cat >"$work/bin/mpirun" <<'SCRIPT'
#!/bin/bash
[ "$1" != --version ] || { echo "mpirun (Open MPI) 4.1.6"; exit 0; }
echo "$*" >>"$CALLS"
while [ "$1" != -n ]; do shift; done
export RANKS=$2
shift 2
exec "$@"
SCRIPT
# 1000 images/s of each GPU, 950 by NCCL, 900 without overlap, 500 launch by launch.
cat >"$work/build/tools/alnico-train" <<'SCRIPT'
#!/bin/bash
speed=1000
[ "${ALNICO_ALLREDUCE:-}" != nccl ] || speed=950
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$2 ;;
    --precision) precision=$2 ;;
    --batch) batch=$2 ;;
    --no-overlap) speed=900 ;;
    --no-graph) speed=500 ;;
    esac
    shift
done
[ "$precision" != fp32 ] || speed=100
[ "$speed-$RANKS-$batch" != "${FAILS:-}" ] || { echo "alnico-train: it failed"; exit 1; }
[ "$speed-$RANKS-$batch" != "${HANGS:-}" ] || exec sleep 60
echo "{\"machine\": {\"cpu\": \"none\"}, \"options\": {\"precision\": \"$precision\"}, \"graph\": true, \"bucket_count\": 3,
    \"median_images_per_second\": $((speed * RANKS)), \"memory_bytes\": {\"total\": 7},
    \"seconds\": {\"io\": 0, \"h2d\": 0, \"forward\": 3, \"backward\": 6, \"exposed_communication\": 0.5, \"update\": 0.5,
    \"total\": 10, \"median_step\": 0.25}}" >"$json"
SCRIPT
chmod +x "$work"/bin/* "$work/build/tools/alnico-train"
export PATH=$work/bin:$PATH CALLS=$work/calls GPUS=2
scaling=("$source/benchmarks/weak_scaling" "$work/folder" --build "$work/build" --precision bf16)

expect 0 "${scaling[@]}"
expect_out '^table +bf16 +256 +1 +1000 +100.0 % +250000 +5.0 %$'
expect_out '^nccl +bf16 +32 +2 +1900 +95.0 % '
expect_out '^late +bf16 +256 +2 +1800 +90.0 % '
expect_out '^launches +bf16 +256 +2 +1000 +100.0 % '
[ "$(wc -l <"$CALLS")" -eq 12 ] || fail "$(wc -l <"$CALLS") runs, expected 12"
grep -q -- '--bind-to none -n 2 .*--data synthetic:224x224x3 .*--batch 32 .*--no-overlap' "$CALLS" || fail "no run without overlap"
summary=$work/folder/summary.json
expect_json "$summary" 'rows;2;way' table
expect_json "$summary" 'rows;3;way' nccl
expect_json "$summary" 'rows;3;efficiency' '0\.9(5|4999)[0-9]*'
expect_json "$summary" 'rows;3;shares;exposed_communication' '0\.05[0-9]*'

# Each precision by itself, also what it is compared with.
expect 0 "${scaling[@]}" --precision fp32,bf16 --batches 32 --ways table
expect_out '^table +fp32 +32 +1 +100 +100.0 % '
expect_out '^table +fp32 +32 +2 +200 +100.0 % '
expect_out '^table +bf16 +32 +2 +2000 +100.0 % '
expect_json "$summary" 'rows;2;precision' bf16
: >"$CALLS"

# What fails, or takes too long, is named; all else is written.
FAILS=900-2-256 expect 1 "${scaling[@]}" --batches 256
expect_out 'late on 2 GPUs, batch 256, bf16: 1'
expect_out 'it failed'
expect_json "$summary" 'rows;4;way' launches
HANGS=950-2-256 expect 1 "${scaling[@]}" --batches 256 --limit 1
expect_out 'nccl on 2 GPUs, batch 256, bf16: not done after 1 s'
GPUS=0 expect 77 "${scaling[@]}"
expect 2 "${scaling[@]}" --ways best
expect_err 'ways best: expected one of table, nccl, late, launches'
expect 2 "$source/benchmarks/weak_scaling" "$work/folder" --build "$work/none"
expect_err 'has no tools/alnico-train'

# What cannot be measured is named before anything runs, in one line behind the usage.
: >"$CALLS"
refuse() {
    expect 2 "${scaling[@]}" "${@:2}"
    expect_err "^weak_scaling: (error: )?$1"
    ! grep -q Traceback "$work/err" || fail "a traceback"
    [ ! -s "$CALLS" ] || fail "it began"
}
refuse '.*--gpus: x: expected a whole number above 0' --gpus 1,x
refuse '.*--gpus: 0: expected' --gpus 0
refuse '.*--gpus: -1: expected' --gpus=-1
refuse '.*--batches: x: expected' --batches x
refuse '.*--steps: 0: expected' --steps 0
refuse '.*--limit: -1: expected a number above 0' --limit=-1
refuse '--precision fp8: expected one of fp32, bf16, fp16' --precision fp8
refuse '--mpirun no-such-mpirun: no such program' --mpirun no-such-mpirun
expect 2 "$source/benchmarks/weak_scaling" "$CALLS/folder" --build "$work/build"
expect_err '^weak_scaling: FOLDER .*/calls/folder: Not a directory$'

# Too few GPUs for any run is a failure, and an older summary is none of it.
expect 1 "${scaling[@]}" --gpus 8
expect_err '^weak_scaling: --gpus 8: this machine has 2; nothing is left to measure$'
[ ! -e "$summary" ] || fail "an old summary.json stays"
expect 0 "${scaling[@]}" --gpus 4,2,1 --ways table --batches 32
expect_err '^weak_scaling: --gpus 4: this machine has 2; left out$'
expect_out '^table +bf16 +32 +2 +2000 +100.0 % '

plot=$source/scripts/plot-train
cat >"$work/torch.json" <<'LINES'
a warning of PyTorch
{"program": "torch_resnet", "gpus": 1, "way": "eager", "precision": "bf16", "batch": 256, "images_per_second": 700}
{"program": "torch_resnet", "gpus": 1, "way": "compile", "precision": "bf16", "batch": 256, "images_per_second": 800}
{"program": "torch_resnet", "gpus": 2, "way": "compile", "precision": "bf16", "batch": 256, "error": "RuntimeError: no"}
{"program": "torch_resnet", "gpus": 1, "way": "compile", "precision": "bf16", "batch": 128, "images_per_second": 750}
LINES
expect 0 "${scaling[@]}"
expect 2 "$plot" "$summary" --out "$work/a.pdf"
expect_err 'a.pdf: expected a name that ends with .svg or .png'
expect 1 "$plot" "$work/none.json"
expect_err 'none.json: No such file'
expect 1 "$plot" "$CALLS"
expect_err 'is no summary of weak_scaling'
if ! command -v gnuplot >/dev/null; then
    expect 1 "$plot" "$summary"
    expect_err 'gnuplot is not installed'
    exit 0
fi
expect 0 "$plot" "$summary" "$work/torch.json"
expect_out 'summary.svg$'
for text in 'Alnico, bf16' 'Alnico, NCCL only, bf16' 'PyTorch, bf16' 'GPUs, 256 images on each' 'GPUs, 32 images on each' \
    'resnet50 at 224x224'; do
    grep -q ">.*$text" "$work/folder/summary.svg" || fail "the picture does not say '$text'"
done
! grep -q 'GPUs, 128 images on each' "$work/folder/summary.svg" || fail 'the picture has a batch that was not measured'
marks=$(grep -c "#gpPt6' transform" "$work/folder/summary.svg") # 13 points; 5 and 4 series in the keys
[ "$marks" -eq 22 ] || fail "the picture has $marks marks, expected 22"
expect 0 "$plot" "$summary" --out "$work/b.png"
head -c 4 "$work/b.png" | grep -q PNG || fail "b.png is no PNG"
