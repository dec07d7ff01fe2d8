#!/bin/bash
# alnico-tune from end to end: a quick run writes a table, which is good, listed, and taken by later runs; what
# the table says about other ranks stays; every usage error.
#
# Usage: tune.sh ALNICO-TUNE ALNICO-INFO ALNICO-PERF MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
tune=$1 info=$2 perf=$3 mpiexec=$4 flag=$5
table=$work/table.json
quick=(--quick --seconds 0.05)

# A new file.
expect 0 "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" "$table"
expect_out '^ +8 +[a-z]+ [a-z_]+, whole +[0-9.]+ '
expect_out '^ +2097152 +[a-z]+ [a-z_]+, ([0-9]+|whole) +[0-9.]+ '
expect_out '^ +2 +1 +any +[a-z]+ '
expect_out "table.json: [1-7] rows; use it by ALNICO_TUNING="
expect 0 "$tune" --check "$table"
expect_out 'table.json: good, [1-7] rows$'
expect_json "$table" 'machines;0;ranks' 2
expect_json "$table" 'machines;0;cores' '[1-9][0-9]*'
expect_json "$table" 'machines;0;date' '20[0-9-]+T[0-9:]+Z'
expect_json "$table" 'machines;0;command' '.*alnico-tune --quick .*'
expect_json "$table" 'rows;0;ranks_up_to' 2

# It is taken, and listed with its origin.
expect 0 env ALNICO_TUNING="$table" "$info"
expect_out "^  cpu +2 +1 +.* file$"
expect_out "^tuning_file $table$"
expect 0 env ALNICO_TUNING="$table" "$mpiexec" "$flag" 2 "$perf" allreduce -n 3 -w 0 -b 8 -e 1M -f 8
expect_out '^# Out of bounds values : 0 OK$'

# A way that the table names is the one in force. Rows for other ranks stay, those for these are replaced.
cat >"$table" <<'TABLE'
{"alnico_tuning": 1, "machines": [{"ranks": 2, "hosts": 1, "host": "old"}, {"ranks": 9, "hosts": 1}], "rows": [
    {"collective": "allreduce", "device": "cpu", "ranks_up_to": 9, "hosts_up_to": 1, "bytes_up_to": 7777,
     "backend": "host", "algorithm": "ring", "chunk_bytes": 9999},
    {"collective": "allreduce", "device": "cpu", "ranks_up_to": 2, "hosts_up_to": 1, "bytes_up_to": 40404,
     "backend": "host", "algorithm": "binomial", "chunk_bytes": 5555}
]}
TABLE
expect 0 env ALNICO_TUNING="$table" "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" -b 32K -e 32K "$table"
expect_out '^ +32768 .* host binomial, 5555 '
expect 0 "$tune" --check "$table"
! grep -q '40404\|"old"' "$table" || fail "the old row or its machine is still there"
expect_json "$table" 'machines;0;ranks' 9
expect_json "$table" 'machines;1;ranks' 2
expect_json "$table" 'rows;0;ranks_up_to' 2
expect_json "$table" 'rows;1;ranks_up_to' 9
expect_json "$table" 'rows;1;chunk_bytes' 9999

# Other operations: rows of each, of blocks as long as fit into -e together, and one where the table knows no size.
expect 0 "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" -b 64 -e 1K --operations allgather,alltoallv,barrier "$work/more.json"
expect_out '^allgather$'
expect_out '^ +512 +[a-z]+ (bruck|recursive_doubling|ring|one_shot|[a-z_]+), '
! grep -qE '^ +4096 ' "$work/out" || fail "blocks of all ranks together go beyond -e"
expect_out '^ +1024 +[a-z]+ [a-z_]+, '
expect_json "$work/more.json" 'rows;0;collective' allgather
grep -q '"alltoallv".*"bytes_up_to": *null' "$work/more.json" || fail "no row of every alltoallv"
grep -q '"barrier".*"bytes_up_to": *null' "$work/more.json" || fail "no row of barriers"
! grep -q '"allreduce"' "$work/more.json" || fail "rows of what was not asked for"
expect 0 "$tune" --check "$work/more.json"
expect 0 env ALNICO_TUNING="$work/more.json" "$mpiexec" "$flag" 2 "$perf" alltoallv -n 3 -w 0 -e 64K -f 16
expect 1 env ALNICO_BARRIER=dissemination "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" --operations barrier
expect_err "or another operation's variable"

# The table in force is judged; a busy machine may find a faster way.
status=0
"$mpiexec" "$flag" 2 "$tune" "${quick[@]}" -e 4K --verify >"$work/out" 2>"$work/err" </dev/null || status=$?
expect_out '^The table in force is within 3 % or 0.2 us of the fastest way in [0-9]+ of 4 cases\.$'
slow=$(grep -cE '^ +[0-9]+  eager: [0-9.]+ us, and [0-9.]+ are possible$' "$work/out" || true)
[ "$status" -eq $((slow > 0)) ] || fail "$slow slow cases, and exit status $status"

# Without a file it prints only. Damage and other trouble.
expect 0 "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" -e 64
expect_out '^ +2 +1 +any '
sed -i 's/"chunk_bytes": [0-9]*/"chunk_bytes": 5/' "$table"
expect 1 "$tune" --check "$table"
expect_err 'alnico-tune: .*table.json, line 5: chunk_bytes is 5, expected'
cp "$table" "$work/before"
expect 1 "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" "$table"
expect_err 'table.json, line 5: chunk_bytes is 5'
cmp "$table" "$work/before" || fail "a damaged file was changed"
expect 1 "$tune" --check "$work/none.json"
expect_err 'none.json: No such file or directory'
expect 1 "$tune" --check "$work"
expect_err 'is a directory, expected a file'
expect 1 "$mpiexec" "$flag" 2 "$tune" "${quick[@]}" "$work/no/such.json"
expect_err 'no/such.json: No such file or directory'
expect 1 "$tune" "${quick[@]}"
expect_err 'one rank has nothing to choose'
expect 1 env ALNICO_ALLREDUCE=ring "$mpiexec" "$flag" 2 "$tune" "${quick[@]}"
expect_err 'ALNICO_ALLREDUCE or ALNICO_CHUNK is set'

usage() {
    local message=$1
    shift
    expect 2 "$tune" "$@"
    expect_err "$message"
}
usage '-b 0: expected a size' -b 0
usage '-b 128: above -e 64' -b 128 -e 64
usage '-f 1: expected at least 2' -f 1
usage '-f x: expected a number' -f x
usage '--seconds 0: expected a number' --seconds 0
usage '--margin -1: expected a number' --margin -1
usage 'b: expected one FILE, and a is given' a b
usage '--check: takes no other file' --check a b
usage '--verify: takes no file, and a is given' --verify a
usage '--operations x: expected names of collectives' --operations allreduce,x
usage '--operations exchange: expected names of collectives' --operations exchange
usage '--operations: allreduce is there twice' --operations allreduce,allreduce
usage '--device tpu: expected cpu or cuda' --device tpu
usage '--memory nccl: needs --device cuda' --memory nccl
"$tune" --device cuda >"$work/out" 2>"$work/err" </dev/null || true
grep -q 'one rank has nothing to choose' "$work/err" ||
    usage '--device cuda: this build has no CUDA device' --device cuda
usage 'unrecognized option' --bogus
expect 0 "$tune" --help
expect_out '--check=FILE'
expect 0 "$tune" --version
