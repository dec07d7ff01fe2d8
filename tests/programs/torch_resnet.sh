#!/bin/bash
# benchmarks/torch_resnet.py with a stand-in for a Python that has PyTorch: which runs there are and in which order, what is
# written, and that neither a run that fails nor one that does not end keeps the others from theirs.
#
# Usage: torch_resnet.sh SOURCE
. "$(dirname "$0")/common.sh"
source=$1
command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
python3 -c 'import ast, sys; [ast.parse(open(name).read()) for name in sys.argv[1:]]' "$source"/benchmarks/torch_{step,models}.py

# Says which run it is, then fails, hangs with a process of its own beside it, or reports 100 images/s of each GPU.
cat >"$work/python" <<'SCRIPT'
#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in
    --way) way=$2 ;;
    --model) model=$2 ;;
    --precision) precision=$2 ;;
    --batch) batch=$2 ;;
    esac
    shift
done
world=${WORLD_SIZE:-1}
run=$way-$precision-$batch-$world
[ "$model" = resnet50 ] || run=$model-$run
echo "$run $RANK $LOCAL_RANK ${MASTER_ADDR:-alone}" >>"$CALLS"
[ "${SKIPS:-}" != yes ] || { echo "torch_step: there is none" >&2; exit 77; }
case $run-$RANK in
${FAILS:-none}) echo "it began" >&2; echo "it failed" >&2; exit 3 ;;
${HANGS:-none}) sleep 61.5 & echo $! >>"$HUNG"; wait ;;
esac
# The others wait for the one that failed or hangs.
case $run in ${FAILS:0:-2} | ${HANGS:0:-2}) sleep 62.5 & echo $! >>"$HUNG"; wait ;; esac
echo "a warning"
[ "$RANK" != 0 ] || echo "{\"median_us\": 7.5, \"images_per_second\": $((100 * world))}"
SCRIPT
chmod +x "$work/python"
export CALLS=$work/calls HUNG=$work/hung FAILS=none-0 HANGS=none-0
torch=("$source/benchmarks/torch_resnet.py" --python "$work/python" --out "$work/lines")

# Nothing that a run started may be left.
expect_ended() {
    local pid
    for pid in $(cat "$HUNG"); do
        for _ in {1..50}; do
            kill -0 "$pid" 2>/dev/null || continue 2
            sleep 0.1
        done
        fail "process $pid of a run is still there"
    done
    rm "$HUNG"
}

expect 0 "${torch[@]}"
[ "$(wc -l <"$CALLS")" -eq 20 ] || fail "$(wc -l <"$CALLS") runs, expected 20"
head -1 "$CALLS" | grep -q '^eager-bf16-256-1 0 0 alone$' || fail "the first run is $(head -1 "$CALLS")"
[ "$(tail -8 "$CALLS" | grep -c '^eager\|^compile\|^graph')" -eq 0 ] || fail "what takes long does not come last"
cmp "$work/out" "$work/lines" || fail "what is printed is not what is written"
sed -n 2p "$work/lines" >"$work/line.json"
expect_json "$work/line.json" way compile
expect_json "$work/line.json" images_per_second 100
expect_json "$work/line.json" batch 256

# On several GPUs, a process each.
rm "$CALLS" "$work/lines"
expect 0 "${torch[@]}" --gpus 1,3 --batches 32 --precisions fp16 --ways max-autotune,eager
[ "$(sort "$CALLS" | tr '\n' ';')" = "eager-fp16-32-1 0 0 alone;eager-fp16-32-3 0 0 127.0.0.1;eager-fp16-32-3 1 1 127.0.0.1;\
eager-fp16-32-3 2 2 127.0.0.1;max-autotune-fp16-32-1 0 0 alone;" ] || fail "runs: $(cat "$CALLS")"
grep -q '"gpus": 3.*"images_per_second": 300' "$work/lines" || fail "no line for 3 GPUs: $(cat "$work/lines")"

# Other models, each with all the rest.
rm "$CALLS" "$work/lines"
expect 0 "${torch[@]}" --models alexnet,googlenet --batches 32 --precisions bf16-pure --ways eager
[ "$(cut -d' ' -f1 "$CALLS" | tr '\n' ';')" = "alexnet-eager-bf16-pure-32-1;googlenet-eager-bf16-pure-32-1;" ] ||
    fail "runs: $(cat "$CALLS")"
grep -q '"model": "googlenet".*"images_per_second": 100' "$work/lines" || fail "no line: $(cat "$work/lines")"

# One that does not end, and one of which a rank fails.
rm "$work/lines"
HANGS=compile-bf16-32-2-1 FAILS=eager-fp16-32-2-1 expect 1 "${torch[@]}" --gpus 2 --batches 32 --ways eager,compile --limit 5
[ "$(wc -l <"$work/lines")" -eq 4 ] || fail "lines: $(cat "$work/lines")"
expect_out '"way": "compile", "precision": "bf16".*"error": "not finished in 5 s"'
expect_out '"way": "eager", "precision": "fp16".*"error": "rank 1 ended with 3: it failed"'
expect_out '"way": "compile", "precision": "fp16".*"images_per_second": 200'
expect_ended

# Ended from outside.
HANGS=eager-bf16-256-1-0 "${torch[@]}" >/dev/null 2>&1 &
until [ -s "$HUNG" ]; do sleep 0.1; done
kill $!
wait $! && fail "it did not end by a signal"
expect_ended

SKIPS=yes expect 77 "${torch[@]}"
expect_err 'torch_step: there is none'
expect 2 "${torch[@]}" --ways best
expect_err 'ways: best: expected one of eager, compile'
expect 2 "${torch[@]}" --batches 32,0
expect_err 'batches: 0: expected a number'
expect 2 "${torch[@]}" --models lenet
expect_err 'models: lenet: expected one of resnet50, alexnet'

# What cannot be is named before anything runs.
rm -f "$CALLS"
refuse() {
    expect 2 "${torch[@]}" "${@:2}"
    expect_err "^torch_resnet.py: error: .*$1"
    [ ! -e "$CALLS" ] || fail "it began"
}
refuse '--limit: -1: expected a number above 0' --limit=-1
refuse '--steps: 0: expected a whole number above 0' --steps 0
refuse '--python no-such-python: no such program' --python no-such-python
refuse '--out .*/calls/lines: No such file or directory' --out "$CALLS/lines"
