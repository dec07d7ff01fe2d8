#!/bin/bash
# scripts/gpu-check without a GPU: stand-ins for nvidia-smi, mpirun and the programs show that it chooses tests by the
# GPUs there are, goes on after failures, keeps its time limits, and computes the right ratios.
#
# Usage: gpu_check.sh SOURCE
. "$(dirname "$0")/common.sh"
check=$1/scripts/gpu-check
fakes=$work/fakes bundle=$work/bundle out=$work/reports
mkdir -p "$fakes" "$bundle/tools" "$bundle/tests" "$bundle/lib"
unset CUDA_VISIBLE_DEVICES ALNICO_TUNING
export PATH=$fakes:$PATH

fake() {
    cat >"$1"
    chmod +x "$1"
}
fake "$fakes/nvidia-smi" <<'FAKE'
#!/bin/bash
case $* in
-L) for gpu in 0 1 2 3; do echo "GPU $gpu: Test 9000 (UUID: GPU-$gpu)"; done ;;
*name*) echo 'Test 9000' ;;
*driver*) echo 580.1 ;;
*index*) seq 0 3 ;;
esac
FAKE
fake "$fakes/mpirun" <<'FAKE'
#!/bin/bash
[ "$1" != --version ] || { echo 'mpirun (Open MPI) 4.1.6'; exit; }
while [ "$1" != -n ]; do shift; done
FAKE_RANKS=$2 exec "${@:3}"
FAKE
fake "$fakes/compute-sanitizer" <<'FAKE'
#!/bin/bash
echo "$FAKE_RANKS $*" >>"$FAKE_LOG"
FAKE
# Two sizes: 0.5 and 0.6 of the fastest peer, of which one is much slower.
fake "$bundle/tools/alnico-perf" <<'FAKE'
#!/bin/bash
[ "$1" != --version ] || { echo 0.1.0; exit; }
echo "$FAKE_RANKS $*" >>"$FAKE_LOG"
[[ $* == *--host-time* ]] && host=1 || host=
[[ $* == *--nonblocking* && $* == *'--versus nccl'* ]] && theirs=1 || theirs=
while [ $# -gt 0 ]; do [ "$1" != --json ] || json=$2; shift; done
[[ $json != *graph-3* ]] || { echo 'no such luck'; exit 1; }
row() {
    printf '\t{\n\t\t"bytes":\t%s,\n\t\t"count":\t2,\n\t\t"time_us":\t%s,\n\t\t"nccl_us":\t%s,\n' "$1" "$2" "$3"
    printf '\t\t"nccl_p10_us":\t0.001,\n\t\t"nccl_symmetric_us":\t%s,\n\t\t"staged_us":\t10' "$4"
    [ -z "$host" ] || printf ',\n\t\t"host_us":\t4.5,\n\t\t"launch_us":\t3.25'
    [ -z "$theirs" ] || printf ',\n\t\t"nccl_host_us":\t0.25'
    printf '\n\t}'
}
{ printf '{\n\t"gpu":\t{"nccl":\t"2.28.3"},\n\t"rows":\t[\n'; row 8 2 4 8; echo ,; row 1024 3 100 5
printf '],\n\t"summary":\t{\n\t\t"ratio_worst_bytes":\t8\n\t}\n}\n'; } >"$json"
FAKE
fake "$bundle/tools/alnico-tune" <<'FAKE'
#!/bin/bash
echo "$FAKE_RANKS $ALNICO_TUNING $*" >>"$FAKE_LOG"
case $* in
*--verify*) echo 'The table in force is within 3 % or 0.2 us of the fastest way in 9 of 9 cases.' ;;
*) echo '{}' >"${*: -1}" ;;
esac
FAKE
fake "$bundle/tools/alnico-info" <<'FAKE'
#!/bin/bash
row() {
    printf '\t{\n\t\t"device":\t"%s",\n\t\t"bytes_up_to":\t%s,\n\t\t"backend":\t"%s",\n' "$1" "$2" "$3"
    printf '\t\t"algorithm":\t"%s",\n\t\t"chunk_bytes":\t%s,\n\t\t"origin":\t"built in"\n\t}' "$4" "$5"
}
{ printf '\t"allreduce_tuning":\t[{\n'
row cpu 9 host ring 1; row cuda 4096 peer one_shot 2; row cuda null shared shared_two_shot 5; row cuda 16384 host recursive_doubling 3000
row cuda null host rabenseifner 4000
printf '\t"reduce_tuning":\t[{\n'; row cuda 77 host binomial 5000; } >"$2"
FAKE
fake "$bundle/tests/good" <<'FAKE'
#!/bin/bash
echo "$FAKE_RANKS $*" >>"$FAKE_LOG"
FAKE
mkdir "$bundle/tests/conformance"
fake "$bundle/tests/conformance/alnico-conformance" <<'FAKE'
#!/bin/bash
echo "$FAKE_RANKS $*" >>"$FAKE_LOG"
echo '4 ranks: 7 calls'
FAKE
fake "$bundle/tests/bad" <<<$'#!/bin/bash\necho it broke; exit 3'
fake "$bundle/tests/skip" <<<$'#!/bin/bash\nexit 77'
cat >"$bundle/gpu-tests.txt" <<'LIST'
gpu.alone - tests/good one
gpu.two 2 tests/good two
gpu.three 3 tests/good three
gpu.eight 8 tests/good eight
gpu.bad 4 tests/bad
gpu.skip 1 tests/skip
LIST
export FAKE_LOG=$work/calls

# ldd of a script says "not a dynamic executable", and nothing is missing.
run() {
    local status=$1
    shift
    : >"$FAKE_LOG"
    expect "$status" "$check" --build "$bundle" --out "$out" "$@"
}
called() {
    grep -qE -- "$1" "$FAKE_LOG" || fail "no call like: $1; there were: $(cat "$FAKE_LOG")"
}

# A whole round: the failed test and benchmark show, the rest goes on.
run 1
expect_out '^gpu-check: 4 x Test 9000, driver 580.1;'
expect_out '^gpu.bad: failed \(status 3,'
expect_out '^ +it broke$'
expect_out '^tests: .*2 passed'
expect_out '^tests: .*1 skipped'
called '^2 two$'
called '^ *one$'
! grep -q three "$FAKE_LOG" || fail "3 is neither 1, 2 nor the 4 GPUs that there are"
! grep -q eight "$FAKE_LOG" || fail "a test of 8 ranks ran on 4 GPUs"
called '^2 --tool racecheck .*alnico-perf allreduce'
called '^4 allreduce --device cuda .*--json .*/graph.json -G 0 -n 20 -b 8 -e 1M -f 2 --versus nccl,nccl-symmetric$'
called '^2 allreduce .*graph-2.json'
called '^4 allreduce .*staged-shm.json .*--bootstrap'
called '^4 allreduce .*staged-mpi.json .*-b 4M'
called '^4 alltoall --device cuda .*--json .*/graph-alltoall.json -G 0 -n 20 -b 8 -e 512K -f 2 --versus nccl,nccl-symmetric$'
called '^4 broadcast .*graph-broadcast-large.json .*-e 64M -f 2 --register '
called '^4 exchange .*graph-exchange.json .*--versus nccl$'
called '^4  --device cuda .*tuning-4.json$'
called '^4 .*/tuning-4.json --device cuda --verify '
expect_out '^The table in force is .* 9 of 9 cases'
expect_out '^graph-3: failed'
expect_out '^graph \(size:us/ratio\): 8:2/0.50 1K:3/0.60$'
expect_out '^host-time \(size:us of a call/of an empty launch\): 8:4.50/3.25 1024:4.50/3.25$'
expect_out '^graph of 20 calls +8 B - 8 KB +0.600 at 1 KB +0.80 +0.65  aim$'
expect_out '^graph +16 KB - 1 MB +- +0.70 +0.60  no data$'
expect_out '^eager +8 B - 64 KB +0.600 at 1 KB +0.55 +0.45  MISSED$'
expect_out '^allgather +8 B - 512 KB +0.600 at 1 KB +0.90 +0.75  aim$'
expect_out '^exchange +64 KB - 64 KB +- +0.70 +0.50  no data$'
expect_out '^host time, us +above a launch +1.250 +1.5 +reached$'
expect_out '^nonblocking, us +above a launch +1.250 +4 +reached$'
expect_out "^nonblocking, us +above NCCL's call +4.250 +4 +MISSED$"
expect_out "^host-nccl-broadcast \(size:us of a call/of NCCL's\): 8:4.50/0.25 1024:4.50/0.25$"
called '^4 allgather .*host-allgather.json --host-time --nonblocking -b 64 -e 64K -f 32$'
called '^4 allreduce .*host-nccl-allreduce.json --host-time --nonblocking .* --algorithm nccl --versus nccl$'
! grep -q '^3 GPUs' "$work/out" || fail "a ratio of a benchmark that failed"
expect_out '^gpu-check: 2 failed, '
# The header and the manual say how long all phases may take.
minutes() {
    sed -n 's/^=== .* (at most \([0-9]*\) s)$/\1/p' "$work/out" | awk '{ sum += $1 } END { printf "%.0f", sum / 60 }'
}
whole=$(minutes)
expect_json "$out/summary.json" gpus 4
expect_json "$out/summary.json" nccl 2.28.3
expect_json "$out/summary.json" failures 2
expect_json "$out/summary.json" 'steps;1;result' failed
expect_json "$out/summary.json" 'musts;0;worst' '0\.(6|5999+).*'
expect_json "$out/graph.json" 'rows;1;bytes' 1024
expect_json "$out/host-only.table" 'rows;0;algorithm' recursive_doubling
expect_json "$out/host-only.table" 'rows;0;bytes_up_to' 16384
expect_json "$out/host-only.table" 'rows;1;bytes_up_to' ''
expect_json "$out/host-only.table" 'rows;1;chunk_bytes' 4000
! grep -q 77 "$out/host-only.table" || fail "rows of other operations are no allreduce's"
expect_json "$out/staged.table" 'rows;0;backend' shared
expect_json "$out/staged.table" 'rows;1;backend' host

# Fewer sizes, and chosen phases.
run 1 --quick
grep -q -- "--quick  at most $(minutes) minutes instead of $whole:" "$check" || fail "the header names another time"
grep -q "gpu-check  .* at most $whole minutes; --quick $(minutes);" "$1/docs/performance.md" || fail "the manual names another time"
run 1 --quick --only tests
expect_out '^=== tests \(at most 125 s\)$'
! grep -q two "$FAKE_LOG" || fail "a quick round on 4 GPUs needs no 2 ranks"
run 0 --only sanitizer,bench --quick
called 'memcheck'
! grep -q 'graph-3' "$FAKE_LOG" || fail "a quick round measures 3 GPUs"
run 0 --only peer
called 'peer-graph.json .*--algorithm all'

run 0 --only conformance
called '^ *--device cuda --ranks 4 --cases 100000$'
called '^4 --device cuda --cases 20000$'
expect_out '^4 ranks: 7 calls'

# Tests of fewer GPUs run side by side, each with its own: these wait for one another. What waits for room comes after.
fake "$bundle/tests/meet" <<'FAKE'
#!/bin/bash
echo "$1 with $CUDA_VISIBLE_DEVICES" >>"$FAKE_LOG"
touch "$FAKE_LOG.$1"
for try in $(seq 200); do
    [ "$(ls "$FAKE_LOG".[abc] | wc -l)" -lt 3 ] || exit 0
    sleep 0.05
done
exit 1
FAKE
cat >"$bundle/gpu-tests.txt" <<'LIST'
gpu.train_small - tests/meet a
gpu.pair 2 tests/meet b
gpu.train_ranks.1 1 tests/meet c
gpu.two 2 tests/good two
gpu.alone - tests/good one
gpu.three 3 tests/good three
LIST
run 0 --only tests
expect_out '^tests: 5 passed$'
called '^ *one$'
called '^2 two$'
[ "$(sed -n 's/^[abc] with //p' "$FAKE_LOG" | tr ',' '\n' | sort | tr -d '\n')" = 0123 ] ||
    fail "tests share GPUs: $(cat "$FAKE_LOG")"
[ ! -e "$out/running" ] || fail "what tests wrote is left behind"
rm "$FAKE_LOG".[abc]
CUDA_VISIBLE_DEVICES=GPU-3,GPU-1 run 0 --only tests --tests 'alone|two|three'
expect_out '^tests: 2 passed$'
run 0 --only tests --tests three
called '^3 three$'
expect 2 "$check" --tests
expect_err '--tests: which'

# Training by the scripts of the source folder, here without /dev/nvidia0 for the first of them.
fake "$bundle/tools/alnico-train" <<'FAKE'
#!/bin/bash
echo "$FAKE_RANKS $*" >>"$FAKE_LOG"
[[ $* == *--profile* ]] && echo '# all, as one step'
FAKE
run 1 --only train --quick
called '^ *--device cuda --profile --model resnet50 .*--json .*/profile.json$'
called '^4 --device cuda .*--batch 32 --precision bf16 .*--no-overlap --json .*/weak/late-4-32-bf16.json$'
expect_out '^# all, as one step'
expect_out '^weak-scaling: failed'

# Trouble.
expect 2 "$check" --only x
expect_err '--only x: expected tests, sanitizer, bench, collectives, tune, peer, conformance or train'
expect 2 "$check" --bogus
expect_err '--bogus: no such option'
rm "$bundle/gpu-tests.txt"
expect 1 "$check" --build "$bundle" --out "$out"
expect_err 'gpu-tests.txt is missing: is .* a bundle or a build'
fake "$fakes/nvidia-smi" <<<$'#!/bin/bash\nexit 9'
expect 1 "$check" --build "$bundle" --out "$out"
expect_err 'nvidia-smi lists no GPU'
