#!/bin/bash
# The study of communication beside computing: where the lines cross, with stand-ins whose times this test decides; once with the
# programs; and what it refuses.
#
# Usage: study_overhead.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--machine NAME'

# A step of b images takes 8 + b ms, an update of 8 among them; n ranks communicate for n / 2 ms.
mkdir -p "$work/fake/tools"
cat >"$work/fake/tools/alnico-train" <<'SCRIPT'
#!/bin/bash
echo "$*" >>"$CALLS"
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$2 ;;
    --batch) batch=$2 ;;
    esac
    shift
done
[ "$batch" != "${FAILS:-}" ] || { echo "alnico-train: training on rank 0: $WHY"; exit 1; }
echo "{\"network\": {\"input\": [5, 6, 3]}, \"machine\": {\"cpu\": \"none\"}, \"date\": \"today\", \"prediction\": {\"parts\":
    {\"images\": $batch, \"input\": 0.001, \"forward\": 0.00025e0, \"update\": 0.008, \"hidden\": 0, \"buckets\":
    [{\"bytes\": 4, \"backward\": $((batch * 1000 - 250))e-6}]}}}" >"$json"
SCRIPT
cat >"$work/fake/tools/alnico-simulate" <<'SCRIPT'
#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$2 ;;
    --ranks) ranks=$2 ;;
    --profile) grep -q '"hidden": 1' "$2" || exit 1 ;;
    esac
    shift
done
[ -z "${json:-}" ] || echo "{\"runs\": [{\"step\": {\"communication\": $((ranks * 500))e-6, \"not_overlapped\": {\"step\": 0.5},
    \"overlapped\": {\"step\": 0.25}}}]}" >"$json"
SCRIPT
chmod +x "$work"/fake/tools/*
export CALLS=$work/calls
fake=("$study" --build "$work/fake" --json "$work/a.json")
expect 0 "${fake[@]}" --networks one:64,one:16
expect_out '^ +16 +4 +12.00 +4.50 +8.00 +500.00 +250.00 +0.29$'
expect_out 'crosses computing, measured: 22.4 ranks$'
expect_out 'crosses computing, if linear: 12.0 ranks$'
expect_out 'crosses computing, measured: not up to 16 ranks$'
expect_json "$work/a.json" communication simulated
expect_json "$work/a.json" computing measured
expect_json "$work/a.json" 'networks;0;rows;3;communication' '0.0320*1?'
expect_json "$work/a.json" 'machine;cpu' none
[ "$(grep -c -- --predict "$CALLS")" -eq 4 ] || fail "not 4 measurements: $(cat "$CALLS")"
expect 0 "${fake[@]}" --networks one:8 --full
expect_out '^ +8 +1 +9.00 +2.00 +4.00 '

# Networks that do not fit, and runs that fail.
WHY='out of memory: batch 4 needs 9 MiB' FAILS=4 expect 77 "${fake[@]}" --networks one:16
expect_err '^overhead: out of memory: batch 4 needs 9 MiB$'
WHY='no such thing' FAILS=4 expect 1 "${fake[@]}" --networks one:16
expect_err 'no such thing$'

expect 0 "$study" --networks cnn:4 --machine flat --steps 2 "${picture[@]}" --json "$work/a.json"
expect_json "$work/a.json" 'networks;0;rows;1;ranks' 4
expect_picture

refuse() {
    expect 2 "$study" "${@:2}"
    expect_err "$1"
}
refuse 'networks: cnn: expected NAME:BATCH' --networks cnn
refuse 'networks: cnn:6: expected NAME:BATCH, a batch being a power of two$' --networks cnn:6
refuse 'networks cnn:2: expected a batch of 4 images at least$' --networks cnn:2
refuse 'model nope: expected ' --networks nope:4
refuse 'machine nope: .*No such file' --machine nope --networks cnn:4
refuse 'steps: 0: expected whole numbers of at least 1$' --steps 0
refuse 'picture a.gif: expected a name that ends with .svg or .png$' --picture a.gif
expect 1 "$study" --json none/a.json
expect_err 'json none/a.json: No such file'
refuse "build $work: has no tools/alnico-train\$" --build "$work"
rm "$work/fake/tools/alnico-simulate"
refuse 'fake: has no tools/alnico-simulate$' --build "$work/fake"
refuse 'device: invalid choice' --device tpu
command -v nvidia-smi >/dev/null || { expect 77 "$study" --device cuda; expect_err 'this machine has no GPU$'; }
