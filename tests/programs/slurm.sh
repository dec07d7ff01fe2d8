#!/bin/bash
# Ranks that srun starts, by a Slurm of one node that this test runs for itself. Skipped without Slurm, or not as root.
#
# Usage: slurm.sh LAUNCHED PERF [TRAIN]
. "$(dirname "$0")/common.sh"
launched=$1 perf=$2 train=${3:-}
export PATH=$PATH:/usr/sbin
for tool in srun sinfo slurmctld slurmd munged; do
    command -v $tool >/dev/null || exit 77
done
[ "$(id -u)" = 0 ] || exit 77
unset ${!ALNICO_*} ${!PMI*} ${!OMPI_COMM*} ${!SLURM*} RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
export ALNICO_TIMEOUT=30 OMP_NUM_THREADS=1 SLURM_CONF=$work/slurm.conf

stop() {
    local daemon
    for daemon in slurmd slurmctld munged; do
        [ ! -s "$work/$daemon.pid" ] || kill "$(cat "$work/$daemon.pid")" 2>/dev/null || true
    done
    sleep 1
    rm -rf "$work"
}
trap stop EXIT

port=$((23000 + RANDOM % 8000)) node=$(hostname -s)
cat >"$SLURM_CONF" <<END
ClusterName=here
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
SlurmUser=root
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
StateSaveLocation=$work
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$node Default=YES State=UP
END
mkdir "$work/spool"
chmod 755 "$work"
(umask 077; head -c 128 /dev/urandom >"$work/munge.key")
expect 0 munged --force --key-file "$work/munge.key" --socket "$work/munge.socket" --pid-file "$work/munged.pid" \
    --log-file "$work/munged.log" --seed-file "$work/munge.seed"
expect 0 slurmctld
expect 0 slurmd
for ((i = 0; i < 100; i++)); do
    [ "$(sinfo -h -o %T 2>/dev/null)" != idle ] || break
    sleep 0.2
done
expect 0 sinfo
expect_out ' idle '

under_srun() {
    expect 0 timeout 120 srun --overcommit -n "$@"
}
for mpi in none pmi2; do
    under_srun 3 --mpi=$mpi "$launched"
    for rank in 0 1 2; do
        expect_out "^rank $rank of 3$"
    done
done
under_srun 2 "$perf" allreduce -e 8
expect_out '^ +8 +2 +float32'
[ -z "$train" ] || {
    under_srun 2 "$train" --model mnist --data synthetic:28x28x1 --batch 8 --steps 2 --test-images 16
    expect_out '^parameters: .* equal on all ranks$'
}
