#!/bin/bash
# Ranks that meet by what their launcher says: by hand, under mpiexec of MPICH and of Open MPI, with the
# variables of torchrun and of Slurm, alone; and what is refused.
#
# Usage: launch.sh LAUNCHED LAUNCHED_MPI|none INFO PERF TUNE [TRAIN]
. "$(dirname "$0")/common.sh"
launched=$1 with_mpi=$2 info=$3 perf=$4 tune=$5 train=${6:-}
vendor=none # of the build's MPI
[ "$with_mpi" = none ] || vendor=openmpi
[ $vendor = none ] || [[ $(ldd "$with_mpi") != *libmpich* ]] || vendor=mpich
unset ${!ALNICO_*} ${!PMI*} ${!OMPI_COMM*} ${!SLURM*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ALNICO_TIMEOUT=30 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

# free_port: one where nobody listens, below those that the system gives away.
free_port() {
    local port
    while port=$((21000 + RANDOM % 10000)); (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
    echo $port
}

# start RANK VARIABLE=VALUE...: in the background, with output in $work/RANK.out and .err.
declare -A pids
start() {
    local rank=$1
    shift
    env "$@" "$launched" >"$work/$rank.out" 2>"$work/$rank.err" &
    pids[$rank]=$!
}
# finish RANK STATUS [PATTERN]: of its standard output, or error where it fails.
finish() {
    local status=0
    wait "${pids[$1]}" || status=$?
    cp "$work/$1.out" "$work/out"
    cp "$work/$1.err" "$work/err"
    [ $status -eq "$2" ] || fail "rank $1 ended with $status, expected $2"
    if [ "$2" = 0 ]; then expect_out "$3"; else expect_err "$3"; fi
}

# By hand; the last rank comes late, and rank 0 not first.
port=$(free_port)
for rank in 2 0 1; do
    start $rank ALNICO_RANK=$rank ALNICO_SIZE=3 ALNICO_ADDRESS=localhost:$port ALNICO_SECRET=open-sesame ALNICO_LOG=debug
    sleep 0.2
done
for rank in 0 1 2; do
    finish $rank 0 "^rank $rank of 3$"
    ! grep -q open-sesame "$work/out" "$work/err" || fail "the secret is in the log"
done

# The secret in a file, which is the same as in the variable.
port=$(free_port)
(umask 077; echo open-sesame >"$work/secret")
start 0 ALNICO_RANK=0 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_SECRET_FILE="$work/secret"
start 1 ALNICO_RANK=1 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_SECRET=open-sesame
finish 0 0 '^rank 0 of 2$'
finish 1 0 '^rank 1 of 2$'

# Another secret: refused, and the job goes on.
port=$(free_port)
start 0 ALNICO_RANK=0 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_SECRET=one
start 2 ALNICO_RANK=1 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_SECRET=other
finish 2 1 "^failed: alnico_comm_create_env: 127.0.0.1:$port: it has another secret"
start 1 ALNICO_RANK=1 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_SECRET=one
finish 1 0 '^rank 1 of 2$'
finish 0 0 '^rank 0 of 2$'

# A rank that does not come is named.
port=$(free_port)
start 0 ALNICO_RANK=0 ALNICO_SIZE=3 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_TIMEOUT=1
start 1 ALNICO_RANK=1 ALNICO_SIZE=3 ALNICO_ADDRESS=127.0.0.1:$port ALNICO_TIMEOUT=1
for rank in 0 1; do
    finish $rank 1 'failed: alnico_comm_create_env: rank 2 did not come within 1 s'
done

# torchrun; its agent's port is in use, as is the one behind it.
port=$(free_port)
for rank in 0 1; do
    start $rank RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=job
done
for rank in 0 1; do
    finish $rank 0 "^rank $rank of 2$"
done

# Slurm's variables, of a step on this host.
for rank in 0 1; do
    start $rank SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost
done
for rank in 0 1; do
    finish $rank 0 "^rank $rank of 2$"
done

# Launchers with a service of their own, each where it is installed; then MPI, where it is the build's.
for name in mpich openmpi; do
    mpiexec=$(command -v mpiexec.$name) || continue
    program=$launched
    [ "$name" != "$vendor" ] || program="$with_mpi --mpi"
    expect 0 "$mpiexec" -n 3 $program
    for rank in 0 1 2; do
        expect_out "^rank $rank of 3$"
    done
    [ "$name" != "$vendor" ] || expect_out '^MPI has 3 ranks$'
    expect 1 "$mpiexec" -n 2 sh -c 'if [ "${PMI_RANK:-$PMIX_RANK}" = 0 ]; then ALNICO_TIMEOUT=1 "$0"; else sleep 2; fi' "$launched"
    expect_err 'not every rank came to the launcher'
done
mpiexec=$(command -v mpiexec.openmpi) && [ -n "$mpiexec" ] && {
    mkdir "$work/none" && echo >"$work/none/libpmix.so.2" # which cannot be loaded
    expect 0 "$mpiexec" -n 2 env LD_LIBRARY_PATH="$work/none" "$launched"
    expect_out '^rank 1 of 2$'
}

# The programs, by hand: rank 0 prints.
by_hand() {
    local port rank
    port=$(free_port)
    for rank in 0 1; do
        ALNICO_RANK=$rank ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:$port "$@" >"$work/$rank.out" 2>"$work/$rank.err" &
        pids[$rank]=$!
    done
    wait "${pids[1]}" || fail "rank 1 of $1 ended with $?"
    [ ! -s "$work/1.out" ] || fail "rank 1 of $1 prints, too"
    finish 0 0 "$pattern"
}
pattern='^ +8 +2 +float32' by_hand "$perf" allreduce -e 8
pattern='barrier' by_hand "$tune" "$work/tuning.json" --quick --operations barrier
pattern='ranks +2|launch' by_hand "$info"
[ -z "$train" ] || pattern='test' by_hand "$train" --model mnist --data synthetic:28x28x1 --batch 8 --steps 2 --test-images 16

# Alone, and what is wrong.
expect 0 "$launched"
expect_out '^rank 0 of 1$'
expect 0 env ALNICO_RANK=0 ALNICO_SIZE=1 "$launched"
expect 1 env ALNICO_RANK=0 "$launched"
expect_err 'failed: alnico_comm_create_env: ALNICO_RANK: ALNICO_SIZE is not set'
expect 1 env ALNICO_RANK=2 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:1 "$launched"
expect_err "ALNICO_RANK is '2', expected a number from 0 to 1"
expect 1 env ALNICO_RANK=0 ALNICO_SIZE=2 "$launched"
expect_err 'ALNICO_ADDRESS is not set; expected HOST:PORT'
expect 1 env ALNICO_RANK=0 ALNICO_SIZE=2 ALNICO_ADDRESS=nowhere.invalid:80 "$launched"
expect_err "ALNICO_ADDRESS: 'nowhere.invalid:80': "
expect 1 env ALNICO_RANK=0 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:80 ALNICO_SECRET_FILE="$work/absent" "$launched"
expect_err 'ALNICO_SECRET_FILE .*/absent: No such file'
expect 0 env ALNICO_SECRET=open-sesame "$info"
! grep -q open-sesame "$work/out" "$work/err" || fail "alnico-info shows the secret"
