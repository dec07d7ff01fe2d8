#!/bin/bash
# benchmarks/collectives-mpi: a round of few calls with the real programs, and its judgement of invented figures.
#
# Usage: collectives_mpi.sh BUILD SOURCE
. "$(dirname "$0")/common.sh"
script=$2/benchmarks/collectives-mpi

expect 0 env BUILD="$1" SIZES="-b 8 -e 64K -f 4096 -n 3" "$script" 2 "$work/a.json"
for operation in broadcast allgather reduce_scatter alltoall reduce barrier pingpong allreduce allgatherv reduce_scatterv \
    gather gatherv scatter scatterv alltoallv sendrecv exchange; do
    expect_out "^$operation +[0-9.]+ at [0-9]+ .* (reached|MISSED)"
done
expect_json "$work/a.json" 'operations;5;operation' barrier
expect_json "$work/a.json" 'operations;0;mean' '[0-9.]+'
expect_json "$work/a.json" 'reports;16;ranks' 2

# A fake alnico-perf: ours and MPI's times of 8 B and 4 KB by operation.
mkdir -p "$work/build/tools"
cat >"$work/build/tools/alnico-perf" <<'FAKE'
#!/bin/bash
operation=$1
while [ $# -gt 0 ]; do [ "$1" != --json ] || json=$2; shift; done
case $operation in
alltoall) echo 'no luck'; exit 1 ;;
broadcast) ours=(8 10) ;;
allgather) ours=(8 10.6) ;;
reduce) ours=(9 9) ;;
pingpong) ours=(10.31 2) ;;
*) ours=(7 7) ;;
esac
row() { printf '{\n"bytes":\t%s,\n"time_us":\t%s,\n"mpi_us":\t10\n}' "$1" "$2"; }
{ printf '{"rows": [\n'; row 8 "${ours[0]}"; echo ,; row 4096 "${ours[1]}"; echo ']}'; } >"$json"
FAKE
chmod +x "$work/build/tools/alnico-perf"
printf '#!/bin/bash\nexec "${@:3}"\n' >"$work/launch"
chmod +x "$work/launch"
expect 1 env BUILD="$work/build" MPIRUN="$work/launch" REST=no "$script" 2 "$work/b.json"
expect_out '^broadcast +1.000 at 4096 +1.05 +0.894 0.85  MISSED$'
expect_out '^allgather +1.060 at 4096 .* MISSED$'
expect_out '^reduce_scatter +0.700 .* reached$'
expect_out '^reduce +0.900 at 8 .* MISSED$'
expect_out '^pingpong +1.031 at 8 .* MISSED  below 4 KB \+0.310 us, above 0.200$'
expect_err 'alltoall failed'
expect_json "$work/b.json" 'operations;2;operation' reduce_scatter
! grep -q '^allreduce' "$work/out" || fail "REST=no measures the rest"

expect 2 "$script" 1
expect_err 'usage: benchmarks/collectives-mpi RANKS'
expect 1 env BUILD="$work" "$script" 2 "$work/c.json"
expect_err 'collectives-mpi: no .*alnico-perf'
