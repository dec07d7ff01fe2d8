#!/bin/bash
# alnico-info from end to end, with and without mpirun.
#
# Usage: info.sh ALNICO-INFO MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
info=$1 mpiexec=$2 flag=$3

expect 0 env ALNICO_TIMEOUT=7 "$info" --json "$work/a.json"
expect_out '^alnico [0-9]+\.[0-9]+\.[0-9]+$'
expect_out '^  cpu +available$'
expect_out '^  cuda +(not in this build|available|.*(CUDA|driver|GPU).*)$'
expect_out '^  rabenseifner +cpu +host '
expect_out '^  one_shot +cpu +peer '
expect_out '^  cpu +any +1 +4096 +host +recursive_doubling +4096 +0 +any +built in$'
expect_out '^  cpu +any +any +any '
for transport in mpi local shm sim; do
    expect_out "^  $transport +[a-z]"
done
expect_out '^  ALNICO_TIMEOUT +7 +environment '
expect_out '^  ALNICO_ALLREDUCE +- +default '
expect_json "$work/a.json" 'machine;cores' '[1-9][0-9]*'
expect_json "$work/a.json" 'launch;ranks' 1
if grep -qE '^  cuda +not in this build$' "$work/out"; then
    ! grep -q '^gpu_scratch' "$work/out" || fail "GPU scratch in a build without GPUs"
    ! grep -qE '^  [a-z]+ +(cpu )?cuda +[a-z]+ [a-z]' "$work/out" || fail "a backend on GPUs in a build without them"
else
    expect_out '^  two_shot_line +cuda +peer '
    expect_out '^  CUDA runtime +[0-9]+\.[0-9]+$'
    expect_json "$work/a.json" gpu_scratch_bytes_of_a_communicator '[1-9][0-9]{5,7}'
fi
expect_json "$work/a.json" 'allreduce_algorithms;0;name' '[a-z_]+'
expect_json "$work/a.json" 'allreduce_tuning;0;algorithm' '[a-z_]+'
for operation in allreduce reduce broadcast allgather allgatherv reduce_scatter reduce_scatterv gather gatherv scatter \
    scatterv alltoall alltoallv barrier sendrecv; do
    expect_json "$work/a.json" "${operation}_algorithms;0;name" '[a-z_]+'
    expect_json "$work/a.json" "${operation}_tuning;0;origin" 'built in'
    expect_out "^${operation}_tuning$"
done
expect_json "$work/a.json" 'environment;0;name' ALNICO_LOG

# Each variable but those that force an algorithm, which are one for each operation, is in the manual.
for variable in $(sed -n 's/^  \(ALNICO_[A-Z_]*\) .*/\1/p' "$work/out"); do
    operation=$(tr '[:upper:]' '[:lower:]' <<<"${variable#ALNICO_}")
    ! grep -q "^${operation}_algorithms$" "$work/out" || continue
    grep -qw "$variable" "$here"/../../docs/*.md "$here/../../include/alnico/alnico.h" || fail "$variable is not in the manual"
done
expect_json "$work/a.json" 'environment;1;origin' environment

expect 0 "$mpiexec" "$flag" 3 "$info" --json "$work/b.json"
[ "$(grep -c '^alnico ' "$work/out")" -eq 1 ] || fail "more than one rank prints"
expect_json "$work/b.json" 'launch;ranks' 3

# What a communicator would be refused for; the rest is printed all the same.
expect 1 env ALNICO_CHUNK=5 "$info" --json "$work/bad.json"
expect_out "^environment_error ALNICO_CHUNK is '5'"
expect_err "^alnico-info: ALNICO_CHUNK is '5' on rank 0, expected bytes from 1024"
expect_json "$work/bad.json" environment_error 'ALNICO_CHUNK is .*'
expect 1 env ALNICO_TUNING=/no/such/table "$mpiexec" "$flag" 2 "$info"
expect_err '^alnico-info: ALNICO_TUNING on rank 0: /no/such/table: No such file'

# The table in force, and where it comes from.
cat >"$work/table.json" <<'TABLE'
{"alnico_tuning": 1, "rows": [
    {"collective": "allreduce", "device": "cpu", "ranks_up_to": 3, "hosts_up_to": 1, "bytes_up_to": null,
     "backend": "host", "algorithm": "ring", "chunk_bytes": 12345},
    {"collective": "alltoall", "device": "cpu", "ranks_up_to": 5, "hosts_up_to": 2, "bytes_up_to": 77,
     "backend": "host", "algorithm": "bruck", "chunk_bytes": 2345}
]}
TABLE
expect 0 env ALNICO_TUNING="$work/table.json" "$info" --json "$work/c.json"
expect_out '^  cpu +3 +1 +any +host +ring +12345 +0 +any +file$'
expect_out '^  cpu +any +1 +4096 +host +recursive_doubling +4096 +0 +any +built in$'
expect_json "$work/c.json" tuning_file "$work/table.json"
expect_json "$work/c.json" 'allreduce_tuning;0;algorithm' ring
expect_json "$work/c.json" 'alltoall_tuning;0;algorithm' bruck
expect_json "$work/c.json" 'alltoall_tuning;0;bytes_up_to' 77
expect_json "$work/c.json" 'alltoall_tuning;1;origin' 'built in'
expect_json "$work/c.json" 'broadcast_tuning;0;origin' 'built in'
expect_json "$work/a.json" tuning_file ''
sed -i 's/12345/0/' "$work/table.json"
expect 1 env ALNICO_TUNING="$work/table.json" "$info"
expect_out "^tuning_error ALNICO_TUNING on rank 0: .*table.json, line 3: chunk_bytes is 0, expected"
expect_err "^alnico-info: ALNICO_TUNING on rank 0: .*table.json, line 3: chunk_bytes is 0, expected"

# Some operations only.
expect 0 "$info" --operations broadcast,sendrecv --json "$work/d.json"
expect_out '^broadcast_algorithms$'
expect_out '^sendrecv_tuning$'
! grep -qE '^(allreduce|allgather)_' "$work/out" || fail "operations that were not asked for"
expect_json "$work/d.json" 'broadcast_tuning;0;device' 'c[a-z]+'
expect 2 "$info" --operations broadcast,bcast
expect_err '--operations bcast: expected a comma list of names'
expect 2 "$info" --operations ''
expect_err '--operations : expected a comma list of names'

expect 0 env ALNICO_NONSENSE=1 "$info"
expect_err 'unknown variable ALNICO_NONSENSE'
expect 2 "$info" now
expect_err 'now: expected options only'
expect 2 "$info" --bogus
"$info" --json /dev/fd/3 3>&1 >/dev/null | cat >"$work/pipe.json"
expect_json "$work/pipe.json" 'launch;ranks' 1
expect 1 "$info" --json "$work/no/such/folder.json"
expect_err '--json .*/folder.json: cannot be opened: No such file or directory'
expect 0 "$info" --help
expect_out '--json=FILE'
