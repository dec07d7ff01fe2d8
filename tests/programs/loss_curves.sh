#!/bin/bash
# benchmarks/loss_curves with a stand-in for alnico-train, whose losses this test decides, and once with the program.
#
# Usage: loss_curves.sh SOURCE ALNICO-TRAIN
. "$(dirname "$0")/common.sh"
curves=$1/benchmarks/loss_curves train=$2
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }

# The stand-in writes losses of 1 for all steps but the last 20, which have the number in LOSS_<precision>.
mkdir -p "$work/fake/tools" "$work/fake/fashion-mnist"
touch "$work/fake/fashion-mnist/train-images-idx3-ubyte"
cat >"$work/fake/tools/alnico-train" <<'SCRIPT'
#!/bin/bash
echo "$*" >>"${CALLS:-/dev/null}"
while [ $# -gt 0 ]; do
    case $1 in
    --precision) precision=$2 ;;
    --json) json=$2 ;;
    --no-tf32) precision=$precision-exact ;;
    esac
    shift
done
case $precision in
fp32-exact) loss=${LOSS_FP32:-0.5} ;;
fp32) loss=${LOSS_TF32:-0.5} ;;
*) name=LOSS_${precision^^} && loss=${!name:-0.5} ;;
esac
[ "$loss" != fail ] || { echo "alnico-train: no such thing"; exit 1; }
echo "{\"losses\": [{\"step\": 10, \"loss\": 1}, {\"step\": ${MIDDLE:-30}, \"loss\": 1}, {\"step\": 45, \"loss\": $loss},
    {\"step\": 50, \"loss\": $loss}]}" >"$json"
SCRIPT
chmod +x "$work/fake/tools/alnico-train"
fake=("$curves" "$work/out-folder" --build "$work/fake" --device cpu --steps 50 --last 20 --seeds 1,2)

CALLS=$work/calls expect 0 "${fake[@]}"
expect_out 'resnet20 on fashion-mnist: 50 steps of 64 images'
expect_out '^ +2 fp16 +0.5000 +0.0000 +0.0200  fine$'
[ "$(wc -l <"$work/calls")" -eq 8 ] || fail "$(wc -l <"$work/calls") runs, expected 8"
grep -q -- "--data idx:$work/fake/fashion-mnist .*--seed 2 .*--precision bf16" "$work/calls" || fail "no bf16 run of seed 2"
expect_json "$work/out-folder/summary.json" 'rows;7;kind' fp16

# Two hundredths apart are fine, or 2 %; not more, on either side.
LOSS_BF16=0.519 expect 0 "${fake[@]}"
LOSS_BF16=0.521 expect 1 "${fake[@]}"
expect_out '^ +1 bf16 +0.5210 +0.0210 +0.0200  FAILED$'
expect_out '^ +1 fp16 .* fine$'
LOSS_FP16=0.479 expect 1 "${fake[@]}"
LOSS_FP32=2 LOSS_TF32=2 LOSS_BF16=2.039 LOSS_FP16=1.961 expect 0 "${fake[@]}"
LOSS_FP32=2 LOSS_TF32=2 LOSS_BF16=2.041 LOSS_FP16=2 expect 1 "${fake[@]}"
LOSS_FP16=NaN expect 1 "${fake[@]}"
expect_out '^ +1 fp16 +nan .*FAILED$'
LOSS_BF16=fail expect 1 "${fake[@]}"
expect_out 'bf16, seed 1: alnico-train: no such thing'
LOSS_FP32=fail expect 1 "${fake[@]}"
MIDDLE=29 expect 1 "${fake[@]}"
expect_err 'no row of losses ends with step 30'

expect 2 "${fake[@]}" --kinds fp8
expect_err "kinds fp8: expected one of fp32, tf32, bf16, fp16"
expect 2 "$curves" "$work/out-folder" --build "$work/none"
expect_err 'has no tools/alnico-train'

# The program itself, on made-up images where the data set is not installed.
mkdir -p "$work/real/tools"
ln -s "$train" "$work/real/tools/alnico-train"
expect 0 "$curves" "$work/real-out" --build "$work/real" --device cpu --kinds fp32 --seeds 3 --steps 60 --batch 8
expect_json "$work/real-out/summary.json" 'rows;0;loss' '[12]\.[0-9]*'
PYTHONPATH=$1/benchmarks python3 - "$curves" "$work/idx" <<'PYTHON'
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("loss_curves", sys.argv[1])
module = importlib.util.module_from_spec(importlib.util.spec_from_loader("loss_curves", loader))
sys.dont_write_bytecode = True
loader.exec_module(module)
module.make_up(sys.argv[2], 3200)
PYTHON
expect 0 "$train" --model cnn --data "idx:$work/idx" --steps 100 --batch 32 --test-images 0 --json "$work/idx.json"
expect_json "$work/idx.json" 'losses;9;loss' '[01]\.[0-9]*'
