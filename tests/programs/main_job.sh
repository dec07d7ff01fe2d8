#!/bin/bash
# The main job's script, with a launcher that makes both parts short: the summary finds every figure in
# the reports, and what is missing is named.
#
# Usage: main_job.sh BUILD SOURCE MPIEXEC NUMPROC_FLAG
. "$(dirname "$0")/common.sh"
build=$1 source=$2 mpiexec=$3 flag=$4
tree=$work/tree
mkdir -p "$tree/scripts" "$tree/cmake" "$tree/build/tools"
cp "$source/cmake/json.cmake" "$tree/cmake"
ln -s "$build/tools/alnico-perf" "$build/tools/alnico-train" "$tree/build/tools"
printf 'MPIEXEC_EXECUTABLE:FILEPATH=%s\nMPIEXEC_NUMPROC_FLAG:STRING=%s\n' "$work/launch" "$flag" \
    >"$tree/build/CMakeCache.txt"

cat >"$work/launch" <<END
#!/bin/bash
case \$3 in
*alnico-perf) exec "$mpiexec" "\$@" -n 1 ;;
*alnico-train) exec "$mpiexec" $flag 2 "\$3" --model cnn --data synthetic:16x16x1 --batch 4 --steps 2 \
    --json results/training.json ;;
esac
END
chmod +x "$work/launch"

# The script, with small messages, and the data set at a place of ours.
sed "s#^dataset=.*#dataset=$work/data#; s/-e 64M/-e 64/" "$source/scripts/main-job" >"$tree/scripts/main-job"
chmod +x "$tree/scripts/main-job"

expect 1 "$tree/scripts/main-job" build
expect_err 'install the package dataset-fashion-mnist'
mkdir "$work/data"
touch "$work/data/train-images-idx3-ubyte.gz"
expect 0 "$tree/scripts/main-job" build
expect_out '^  allreduce  time ours / MPI: geometric mean [0-9.]+, worst [0-9.]+ at [0-9]+ B; 0 wrong values$'
expect_out '^  training   [0-9]+ images/s; test accuracy [0-9.]+ % after [0-9.]+ epochs; [0-9.]+ % of the time'
rm "$tree/build/tools/alnico-train"
expect 1 "$tree/scripts/main-job" build
expect_err 'the trainer is not built: .*libdnnl-dev'
