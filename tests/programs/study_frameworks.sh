#!/bin/bash
# The study of presets: speed-ups, verdicts and predictions of stand-ins whose speeds this test decides; once with the programs; and
# what it refuses.
#
# Usage: study_frameworks.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--ranks N,...'

# 100 images/s on one rank. On two: pipelined 190 (but mxnet 60), not pipelined 180, the server
# $SERVER; 190 and 180 are predicted.
mkdir -p "$work/fake/tools"
cat >"$work/fake/tools/alnico-train" <<'SCRIPT'
#!/bin/bash
echo "${ALNICO_RANK:-alone} $*" >>"$CALLS"
speed=190
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=$2 ;;
    --preset) [ "$2" != cntk ] || speed=180; [ "$2" != mxnet ] || speed=60; [ "$2" != tf-ps ] || speed=$SERVER ;;
    esac
    shift
done
[ -n "${ALNICO_RANK:-}" ] || speed=100
[ "${ALNICO_RANK:-0}" != 0 ] || echo "{\"network\": {\"input\": [6, 5, ${CHANNELS:-3}]}, \"machine\": {\"cpu\": \"none\"}, \"steps\": 10,
    \"median_images_per_second\": $speed, \"seconds\": {\"io\": 0.01, \"forward\": 0.02, \"backward\": 0.04, \"update\": 0.08},
    \"prediction\": {\"predicted\": [{\"not_overlapped\": {\"images_per_second\": 180}, \"overlapped\": {\"images_per_second\": ${PREDICTED:-190}}}]}}" >"$json"
SCRIPT
printf '#!/bin/bash\n[ "$(find "${2#folder:}" -name "*.png" | wc -l)" = "${IMAGES:-16}" ]\n' >"$work/fake/tools/alnico-pack"
chmod +x "$work"/fake/tools/*
export CALLS=$work/calls SERVER=170
fake=("$study" --build "$work/fake" --networks one:4)
expect 0 "${fake[@]}" --json "$work/a.json"
expect_out '^ +cntk +2 +44.44 +180 +1.00 +0.00 +2.00 +4.00 +0.00 +0.00 +8.00 +0.00 +1.80 +1.80$'
expect_out '^ +tf-ps +2 .* 1.70 +-$'
expect_out '2 ranks: pipelined / not 1.06, not / server 1.06: as published; prediction within 217 %: no$'
expect_json "$work/a.json" 'networks;0;judged;0;ordered' ON
expect_json "$work/a.json" 'networks;0;rows;9;ranks' 2
[ "$(grep -c '^1 .*--preset tf-ps' "$CALLS")" -eq 1 ] || fail "rank 1 of the server: $(cat "$CALLS")"
SERVER=184 expect 0 "${fake[@]}"
expect_out 'not in the published order'
SERVER=183 IMAGES=32 expect 0 "${fake[@]}" --rounds 3 --ranks 2,4
expect_out '4 ranks: .* as published'
CHANNELS=1 expect 2 "${fake[@]}"
expect_err 'networks one: its images are not of three colours$'
sed -i 's/speed=60/speed=190/' "$work/fake/tools/alnico-train"
expect 0 "${fake[@]}"
expect_out 'prediction within 0 %: yes$'
PREDICTED=220 expect 0 "${fake[@]}"
expect_out 'prediction within 16 %: no$'

# On a GPU the input is pinned or pageable, and only what is copied alike is compared.
sed -i 's/= mxnet \] || speed=190/= mxnet -a "$2" != tf-allreduce ] || speed=100/' "$work/fake/tools/alnico-train"
expect 0 "${fake[@]}"
expect_out 'pipelined / not 0.56, .* not in the published order'
CUDA_VISIBLE_DEVICES=0,1 expect 0 "${fake[@]}" --device cuda --rounds 1
expect_out 'pipelined / not 1.06, not / server 1.06: as published'

expect 0 "$study" --networks alexnet-cifar:2 --steps 5 "${picture[@]}" --json "$work/a.json"
expect_json "$work/a.json" 'networks;0;rows;5;preset' cntk
expect_picture

refuse() {
    expect 2 "$study" "${@:2}"
    expect_err "$1"
}
refuse 'networks: one: expected NAME:BATCH$' --networks one
refuse 'model nope: expected ' --networks nope:4
refuse 'ranks: 1: expected whole numbers from 2 to 64$' --ranks 1
refuse 'steps: 4: expected whole numbers of at least 5$' --steps 4
refuse 'rounds: 0: expected ' --rounds 0
refuse 'picture a.gif: expected a name that ends with .svg or .png$' --picture a.gif
command -v nvidia-smi >/dev/null || { expect 77 "$study" --device cuda; expect_err 'this machine has no GPU$'; }
