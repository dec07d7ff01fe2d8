#!/bin/bash
# alnico-perf from end to end under mpirun: good runs, their tables and reports, and every usage error.
#
# Usage: perf.sh ALNICO-PERF MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
perf=$1 mpiexec=$2 flag=$3
quick=(-n 3 -w 0)

run() {
    local ranks=$1
    shift
    expect 0 "$mpiexec" "$flag" "$ranks" "$perf" allreduce "${quick[@]}" "$@"
    expect_out '^# Out of bounds values : 0 OK$'
}

# The rows of the table.
rows() {
    grep -cE '^ +[0-9]+ +[0-9]+ ' "$work/out"
}

# Against MPI, with a report.
run 2 --versus mpi -b 8 -e 1M -f 16 --seed 42 -w 5 -n 50 --json "$work/a.json"
expect_out 'inputs of seed 42'
expect_out '^ +8 +2 +float32 +sum +-1( +[0-9.]+){3} +0( +[0-9.]+){2}$'
expect_out '^# Avg bus bandwidth    : [0-9.]+$'
expect_out '^# Ratio ours / mpi     : geometric mean [0-9.]+, worst [0-9.]+ at [0-9]+ B$'
expect_out '^# Threads of Alnico    : 0 '
expect_out 'MPI_THREAD_SINGLE'
[ "$(rows)" -eq 5 ] || fail "expected 5 rows"
expect_json "$work/a.json" 'rows;4;bytes' 524288
expect_json "$work/a.json" 'rows;0;wrong' 0
expect_json "$work/a.json" 'rows;0;mpi_us' '[0-9.]+(e-[0-9]+)?'
expect_json "$work/a.json" 'rows;0;time_us' '[0-9.]+(e-[0-9]+)?'
expect_json "$work/a.json" 'summary;ratio_mean' '[0-9.]+'
expect_json "$work/a.json" 'options;seed' 42
expect_json "$work/a.json" 'ranks' 2
expect_json "$work/a.json" 'mpi;thread_level' MPI_THREAD_SINGLE
expect_json "$work/a.json" 'machine;cores' '[0-9]+'

# Every type and operation, with sizes that no type divides, on odd rank counts and on one rank.
run 1 -d all -o all -b 1 -e 3001 -f 3000
run 3 -d all -o all -b 3001 -e 3001
run 5 -d all -b 3001 -e 3001
run 5 -d bfloat16 -o average -b 3001 -e 3001
run 2 -d all -o all -b 30001 -e 30001 --in-place --versus all
expect_out '^ .* average .* n/a +n/a$'

# Every algorithm in columns.
run 3 --algorithm all -e 64K -f 64 --versus mpi --json "$work/b.json"
expect_out '^# .*recursive_doubling.*rabenseifner.*ring.*binomial'
expect_json "$work/b.json" 'rows;2;algorithm' ring
run 2 --algorithm ring -e 1K -f 16
expect_out '^# algorithm: ring;'
ALNICO_ALLREDUCE=binomial run 2 -e 8
expect_out '^# algorithm: binomial;'

# Nonblocking, streams, overlap.
run 2 --nonblocking --versus mpi -e 64K -f 64
expect_out MPI_THREAD_MULTIPLE
run 2 --nonblocking --threads single -e 64K -f 64
run 2 --stream -e 64K -f 64
run 2 --stream --nonblocking --in-place -e 64K -f 64
run 2 --overlap --versus mpi -b 1K -e 64K -f 64 --json "$work/c.json"
expect_out 'overall +compute +pure +overlap'
expect_json "$work/c.json" 'rows;0;overlap_percent' '[0-9.]+(e-[0-9]+)?'
run 2 --overlap --stream -b 64K -e 64K

# Another way to make the communicator: messages go through shared memory.
run 2 --bootstrap --algorithm ring -e 64K -f 64 --json "$work/d.json"
expect_json "$work/d.json" 'options;bootstrap' '(1|true|ON)'

# Steps, calls, no check.
run 2 -i 100 -b 100 -e 450 -n 20
[ "$(rows)" -eq 4 ] || fail "expected 4 rows"
run 2 -c 0 -e 8
expect_out ' N/A$'

# The names of nccl-tests.
run 2 -d half -o prod -e 8
expect_out '^ +8 +4 +float16 +product '

# Usage errors; under mpirun one rank names them.
usage() {
    local message=$1
    shift
    expect 2 "$perf" "$@"
    expect_err "$message"
    [ ! -s "$work/out" ] || fail "a usage error prints a table"
}
expect 2 "$mpiexec" "$flag" 2 "$perf" allreduce -b x
[ "$(grep -cE -- '-b x: expected a size' "$work/err")" -eq 1 ] || fail "not one message"
expect 2 "$mpiexec" "$flag" 2 "$perf" allreduce --bogus
[ "$(grep -cE -- 'unrecognized option' "$work/err")" -eq 1 ] || fail "not one message"
usage 'which OPERATION'
usage 'foo: no such operation' foo
usage 'one operation at a time' allreduce allreduce
usage '-b x: expected a size' allreduce -b x
usage '-b 0: expected a size' allreduce -b 0
usage '-b 8Q: expected a size' allreduce -b 8Q
usage '-e 99999999999999G: expected a size' allreduce -e 99999999999999G
usage '-b 8388608: above -e' allreduce -b 8M -e 4K
usage '-f 1: expected a whole number' allreduce -f 1
usage '-i 8: not together with -f 3' allreduce -f 3 -i 8
usage '-n 0: expected a whole number' allreduce -n 0
usage '-w -1: expected a whole number' allreduce -w -1
usage '-d foo: expected a type' allreduce -d foo
usage '-o foo: expected an operation' allreduce -o foo
usage '-o bitwise_or: float32 has no such operation' allreduce -o bitwise_or
usage '-c 2: expected 0 or 1' allreduce -c 2
usage '--device tpu: expected cpu or cuda' allreduce --device tpu
usage '--algorithm foo: expected one of .*ring.* or all' allreduce --algorithm foo
usage '--versus nccl: expected mpi, all or none' allreduce --versus nccl
usage '--versus mpi,x: expected mpi, all or none' allreduce --versus mpi,x
usage '-G: needs --device cuda' allreduce -G 5
usage '-G x: expected a whole number' allreduce -G x
usage '--register: needs --device cuda' allreduce --register
usage '--memory nccl: needs --device cuda' allreduce --memory nccl
usage '--memory x: expected cuda or nccl' allreduce --memory x
usage '--host-time: needs --device cuda' allreduce --host-time
usage '--gpu: needs --device cuda' allreduce --gpu 0,1
usage '--gpu 0,x: expected up to 16 GPU numbers' allreduce --gpu 0,x
usage '--threads many: expected single or multiple' allreduce --threads many
usage '--threads single: --stream needs multiple' allreduce --stream --threads single
usage '--overlap: not together with --algorithm all' allreduce --overlap --algorithm all
usage '--seconds 0: expected a number' allreduce --seconds 0
usage '--seed x: expected a whole number' allreduce --seed x
usage 'unrecognized option' allreduce --bogus

# A build without CUDA says so; one with it knows which options go together, and needs a GPU only after that.
"$perf" allreduce --device cuda --versus mpi >"$work/out" 2>"$work/err" </dev/null || true
if grep -q 'this build has no CUDA device' "$work/err"; then
    usage '--device cuda: this build has no CUDA device' allreduce --device cuda
else
    cuda=(allreduce --device cuda)
    usage '--versus mpi: expected staged, nccl, nccl-symmetric, all or none' "${cuda[@]}" --versus mpi
    usage '--versus staged,: expected staged' "${cuda[@]}" --versus staged,
    usage '--overlap: not together with -G' "${cuda[@]}" -G 5 --overlap
    usage '-n 1001: a graph holds 1000 calls at most' "${cuda[@]}" -G 5 -n 1001
    usage '--threads single: --device cuda needs multiple' "${cuda[@]}" --threads single
    usage '--gpu 0,x: expected up to 16 GPU numbers' "${cuda[@]}" --gpu 0,x
    if ! nvidia-smi -L >"$work/gpus" 2>&1; then
        expect 1 "$perf" "${cuda[@]}" -e 8
        expect_err '--device cuda: no GPU'
    fi
fi

# Failures, help and version.
expect 1 "$mpiexec" "$flag" 2 "$perf" allreduce -e 8 --json "$work/no/such/folder.json"
expect_err '--json .*/folder.json: cannot be opened: No such file or directory'
expect 0 "$mpiexec" "$flag" 2 "$perf" --help
expect_out '^  allreduce '
for names in 'half float double' 'prod min max avg'; do
    grep -q "as nccl-tests has it $names;" <<<"$(tr -s '\n ' ' ' <"$work/out")" || fail "--help does not name $names"
done
[ "$(grep -c '^Usage:' "$work/out")" -eq 1 ] || fail "help comes more than once"
expect 0 "$perf" --version
expect_out '^[0-9]+\.[0-9]+\.[0-9]+$'
