#!/bin/bash
# The library under SimGrid's MPI, built and run by scripts/simgrid, against alnico-simulate on the same machine: recursive
# doubling within 5 % at every size. Skipped where libsimgrid-dev is missing.
#
# Usage: simgrid.sh ALNICO-SIMULATE SOURCE RANKS
. "$(dirname "$0")/common.sh"
simulate=$1 scripts=$2/scripts/simgrid ranks=$3
sizes='8 512 4096 32768'
command -v smpicc >/dev/null && command -v smpirun >/dev/null || { echo "no smpicc"; exit 77; }

cat >"$work/machine.json" <<'JSON'
{
    "name": "simgrid", "about": "the hosts of scripts/simgrid/run", "sources": ["its defaults"],
    "ranks_per_host": 1, "hosts_per_leaf": 0,
    "same_host": {"latency_us": 2, "bandwidth_gbps": 10},
    "same_leaf": {"latency_us": 2, "bandwidth_gbps": 10},
    "other_leaf": {"latency_us": 2, "bandwidth_gbps": 10},
    "injection_gbps": 10, "taper": 1, "reduce_gbps": 0
}
JSON
expect 0 "$simulate" --machine "$work/machine.json" --ranks "$ranks" --sizes "${sizes// /,}" \
    --algorithm recursive_doubling
grep -E '^ +[0-9]+ ' "$work/out" | awk '{ print $1, $2 }' >"$work/ours"

expect 0 "$scripts/build" "$work/build"
expect 0 timeout 200 env ALNICO_ALLREDUCE=recursive_doubling ALNICO_CHUNK=1048576 \
    "$scripts/run" "$ranks" "$work/build/allreduce" $sizes
grep -E '^[0-9]+ [0-9.]+$' "$work/out" >"$work/theirs" || fail "no times"
[ "$(wc -l <"$work/theirs")" -eq 4 ] || fail "expected 4 sizes"

paste -d ' ' "$work/ours" "$work/theirs" | awk '
{ ratio = $4 / $2; print $1, "B: alnico-simulate", $2, "us, SimGrid", $4, "us, ratio", ratio }
$1 != $3 || ratio < 0.95 || ratio > 1.05 { bad = 1 }
END { exit bad || NR != 4 }' >"$work/compared" || { cat "$work/compared"; fail "not within 5 %"; }
cat "$work/compared"
