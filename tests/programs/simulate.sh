#!/bin/bash
# alnico-simulate from end to end: tables, reports, machine files, and every usage error.
#
# Usage: simulate.sh ALNICO-SIMULATE SOURCE
. "$(dirname "$0")/common.sh"
simulate=$1 machines=$2/share/machines

run() {
    expect 0 "$simulate" "$@"
    ! grep -q WRONG "$work/out" || fail "wrong elements"
}

# The rows of the tables.
rows() {
    grep -cE '^ +[0-9]+ +[0-9]+\.' "$work/out"
}

# The formulas of the flat machine: 6 (1 + 4096 (0.1 + 0.05) ns), and where two of them cross.
run --machine flat --ranks 64 --sizes 64,4K,64K --json "$work/a.json"
expect_out '^# alnico-simulate .* 64 ranks, 1 a host, on simulated flat$'
expect_out '^ +4096 +9\.69 +13\.01 .* checked +recursive_doubling$'
expect_out '^# crossover: recursive_doubling up to 91[0-9]{2} B, then rabenseifner$'
[ "$(rows)" -eq 3 ] || fail "expected 3 rows"
expect_json "$work/a.json" 'kind' simulated
expect_json "$work/a.json" 'simulated_machine;name' flat
expect_json "$work/a.json" 'runs;0;ranks' 64
expect_json "$work/a.json" 'runs;0;rows;8;algorithm' recursive_doubling
expect_json "$work/a.json" 'runs;0;rows;8;time_us' '9\.686[34].*'
expect_json "$work/a.json" 'runs;0;rows;0;wrong' 0
expect_json "$work/a.json" 'runs;0;crossovers;0;above' rabenseifner

# Every operation, all algorithms of it; 6 us for the depth of a tree, and a barrier's one size.
for operation in reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv gather gatherv scatter scatterv \
    alltoall alltoallv sendrecv; do
    run "$operation" --machine flat --ranks 9,64 -b 4 -e 4K -f 32 --chunk 1K --json "$work/o.json"
    expect_out "^# alnico-simulate [^ ]+ $operation, float32"
    expect_json "$work/o.json" operation "$operation"
    [ "$(grep -c ' checked ' "$work/out")" -eq 6 ] || fail "$operation: expected 6 checked rows"
done
run barrier --machine flat --ranks 64
expect_out '^ +4 +6\.00 +6\.00 +checked +dissemination$'
[ "$(rows)" -eq 1 ] || fail "expected 1 row"
run --machine flat broadcast --ranks 64 --sizes 4K
expect_out '^ +4096 +8\.46 +63\.81 +8\.46 +63\.81 +checked +binomial$'

# Every shipped machine by name, and by file; ranges, hosts, chunks; the same again, by other threads.
for machine in sierra h200-ndr "$machines/sierra.json"; do
    run --machine "$machine" --ranks 4..64 -b 8 -e 64K -f 64
    [ "$(rows)" -eq 15 ] || fail "expected 15 rows"
done
run --machine sierra --ranks 6,37 --hosts 3 --sizes 8,10000 --chunk 1K --threads 1
expect_out ' 37 ranks, 13 a host'
cp "$work/out" "$work/before"
run --machine sierra --ranks 6,37 --hosts 3 --sizes 8,10000 --chunk 1K --threads 3
cmp -s "$work/out" "$work/before" || fail "a repeated run differs"

# A training step: 1 s alone, of which 0.5 s is backward in two halves. On 64 ranks of the flat machine 4 KB take 9.69 us; 64 KB
# beside the second half of the pass are not seen. Nothing hidden: both are.
cat >"$work/profile.json" <<'END'
{"prediction": {"parts": {"images": 10, "input": 0.1, "forward": 0.2, "update": 0.2, "hidden": 1,
 "buckets": [{"bytes": 65536, "backward": 0.25}, {"bytes": 4096, "backward": 0.25}]}}}
END
run --machine flat --ranks 64 --profile "$work/profile.json" --json "$work/p.json"
[ "$(rows)" -eq 2 ] || fail "expected 2 rows"
expect_out '^# step: 1000\.000 ms alone'
expect_out '^# step, overlapped: +1000\.010 ms, 640 images/s, speed-up 64\.00, exposed communication 0\.0 %$'
expect_json "$work/p.json" 'runs;0;step;overlapped;step' '1\.000009[67].*'
sed 's/"hidden": 1/"hidden": 0/' "$work/profile.json" >"$work/open.json"
run --machine flat --ranks 64 --profile "$work/open.json" --json "$work/q.json"
both=$(sed -n 's/^# step, not overlapped: *\([0-9.]*\) ms.*/\1/p' "$work/out")
expect_out "^# step, overlapped: +$both ms"

# Beside computing both messages take half as long again.
sed 's/"hidden": 1/"hidden": -0.5/' "$work/profile.json" >"$work/slow.json"
run --machine flat --ranks 64 --profile "$work/slow.json" --json "$work/r.json"
expect_out '^# step, overlapped: +1000\.057 ms' # 1.5 (28.13 + 9.69) us

# Ranks that communicate lag, here by 50 ms; one alone does not.
sed 's/"hidden": 1/"hidden": 1, "lag": 0.05/' "$work/profile.json" >"$work/late.json"
run --machine flat --ranks 64 --profile "$work/late.json"
expect_out '^# step: 1000\.000 ms alone'
expect_out '^# step, overlapped: +1050\.010 ms'

# Staged through the hosts: 2 (10 + n / 8 GB/s) us more, and a reduction of the host's 2 GB/s instead of none. A list of algorithms.
sed 's/"reduce_gbps": 20/"reduce_gbps": 0, "staging": {"latency_us": 10, "bandwidth_gbps": 8, "reduce_gbps": 2}/' \
    "$machines/flat.json" >"$work/staging.json"
run --machine "$work/staging.json" --ranks 64 --sizes 8000 --algorithm recursive_doubling,ring --staged recursive_doubling --json "$work/s.json"
expect_out '^# staged through the hosts: recursive_doubling$'
expect_json "$work/s.json" 'runs;0;rows;0;time_us' '56\.(8|79).*' # 6 (1 + 0.8 + 4) + 2 (10 + 1)
expect_json "$work/s.json" 'runs;0;rows;1;time_us' '127\.6.*' # 126 + 2 63/64 0.8
expect_json "$work/s.json" staged recursive_doubling
expect_json "$work/s.json" 'simulated_machine;staging;latency_us' 10

# Shipped: rings on GPUs beat trees on the hosts from the sizes on that LBANN has measured, within a factor of 2.
for row in 64:16 128:32 256:128 512:256; do
    ranks=${row%:*} kilobytes=${row#*:}
    run --machine sierra --ranks "$ranks" -b 4K -e 1M --algorithm recursive_doubling,rabenseifner,ring \
        --staged recursive_doubling,rabenseifner
    bytes=$(sed -nE 's/^# crossover: .* up to ([0-9]+) B, then ring$/\1/p' "$work/out")
    [ "${bytes:-0}" -ge $((kilobytes * 512)) ] && [ "$bytes" -le $((kilobytes * 2048)) ] ||
        fail "$ranks ranks: rings from ${bytes:-no} bytes on, expected about $kilobytes KB"
done

# Too large for real elements, and for time.
run --ranks 256 --sizes 64K --memory 1M --threads 1
expect_out ' sizes +rabenseifner$'
run --ranks 65536 --sizes 8 --algorithm recursive_doubling,rabenseifner,ring --memory 16M --threads 1 --json "$work/b.json"
expect_out '^ +8 +16\.0[0-9] +32\.0[0-9] +-  checked '
expect_json "$work/b.json" 'runs;0;rows;2;time_us' ''
run --algorithm ring --ranks 8 --sizes 4
expect_out '^# crossover: none$'

# Where nothing ran, nothing was checked.
run --rounds 1 --ranks 4 -b 8 -e 8
expect_out '^ +8( +-)+  -  +-$'

# A damaged machine file names file, key and value.
sed 's/"taper": 2/"taper": 0/' "$machines/sierra.json" >"$work/bad.json"
expect 2 "$simulate" --machine "$work/bad.json"
expect_err '/bad.json: taper is 0, expected a number from 1 to 1000$'
expect 2 "$simulate" --machine "$work/none.json"
expect_err 'none.json: No such file or directory'
expect 2 "$simulate" --machine atlantis
expect_err 'atlantis.json: No such file or directory'

usage() {
    local message=$1
    shift
    expect 2 "$simulate" "$@"
    expect_err "$message"
    [ ! -s "$work/out" ] || fail "a usage error prints a table"
}
usage '--ranks 3: expected a whole number from 4 to 65536' --ranks 3
usage '--ranks 65537: expected' --ranks 4..65537
usage '--ranks x: expected' --ranks 8,x
usage '--ranks : expected' --ranks 8,
usage '--ranks 64..8: the first is above the last' --ranks 64..8
usage '--hosts 65: more than the 64 ranks' --hosts 65
usage '--hosts 0: expected' --hosts 0
usage '-b 2: expected a size of at least 4' -b 2
usage '-b 8388608: above -e' -b 8M
usage '-f 1: expected' -f 1
usage '--sizes: 8 is not above 64' --sizes 64,8
usage '--sizes 8Q: expected a size' --sizes 8Q
usage '--algorithm foo: expected one of .*ring.* or all' --algorithm foo
usage '--algorithm foo: expected one of .*ring.* or all' --algorithm ring,foo
usage '--algorithm : expected one of' --algorithm ''
usage '--staged: .*/flat.json has no key staging' --staged ring
usage '--staged foo: expected one of .*ring.* or all' --machine sierra --staged foo
usage '--staged: expected the operation allreduce, not reduce' reduce --machine sierra --staged binomial
usage '--threads 0: expected' --threads 0
usage '--rounds 0: expected' --rounds 0
usage 'now: expected one of allreduce .*sendrecv' now
usage '--profile: expected the operation allreduce, not reduce' reduce --profile "$work/profile.json"
usage '--profile: it has sizes' --profile "$work/profile.json" --sizes 8
usage '--profile .*nowhere.*: ' --profile "$work/nowhere.json"
usage "--profile .*a.json: there is no 'prediction' with 'parts'" --profile "$work/a.json"
sed 's/"images": 10/"images": -1/' "$work/profile.json" >"$work/bad.json"
usage "--profile .*bad.json: 'images' is not a number from 0" --profile "$work/bad.json"
sed 's/"hidden": 1/"hidden": -2.1/' "$work/profile.json" >"$work/bad.json"
usage "--profile .*bad.json: 'hidden' is not a number from -2 to 1" --profile "$work/bad.json"
usage 'barrier: expected one operation only' reduce barrier
usage '--algorithm ring: expected one of binomial reduce_scatter_gather hierarchical_leaders or all' reduce --algorithm ring
usage 'unrecognized option' --bogus
expect 1 "$simulate" --ranks 4 --sizes 8 --json "$work/no/such/folder.json"
expect_err '--json .*/folder.json: cannot be opened: No such file or directory'
expect 0 "$simulate" --help
expect_out '--machine=NAME'
expect 0 "$simulate" --version
