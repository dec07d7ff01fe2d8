#!/bin/bash
# The study of Linpack, short: residuals are HPL's on 1, 2 and 4 ranks, the batch is the formula's, and what it refuses.
#
# Usage: study_linpack.sh STUDY
. "$(dirname "$0")/common.sh"
study=$1
expect 0 "$study" --help
expect_out '--ranks=N'
expect 2 "$study" --ranks 0
expect_err '--ranks'
expect 2 "$study" --device cuda --ranks 2
expect_err "--ranks 2: --device cuda is of one GPU"
expect 2 "$study" --device cuda --versus hpcc
expect_err '--versus hpcc: it runs on the CPU only'
PATH=/none expect 77 "$study" --versus hpcc
expect_err '--versus hpcc: needs'
# hpcc sees our N, blocks and grid, and the table has what it says.
mkdir "$work/bin"
cat >"$work/bin/mpirun.openmpi" <<'SCRIPT'
#!/bin/bash
sed -n '6p;12p' hpccinf.txt >"$SEEN"
for block in $(sed -n 8p hpccinf.txt); do
    echo "WALL 40 40 $block $block 1 2 PASSED 0.00 5.0"
    echo "WR11C2R4 100 $block 1 2 0.12 $((1000 * block)).0"
    echo "||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)= 0.0032136 ...... ${CHECK:-PASSED}"
done >hpccoutf.txt
printf 'Success=1\nStarSTREAM_Triad=5\nStarDGEMM_Gflops=7\n' >>hpccoutf.txt
SCRIPT
cp "$work/bin/mpirun.openmpi" "$work/bin/hpcc"
chmod +x "$work"/bin/*
export SEEN=$work/seen
PATH=$work/bin:$PATH expect 0 "$study" --size 100 --repeats 2 --versus hpcc --json "$work/a.json"
[ "$(xargs <"$SEEN")" = '100 2' ] || fail "hpcc was asked for N and a grid of $(xargs <"$SEEN")"
expect_json "$work/a.json" 'rows;10;hpcc_gflops' 64000
expect_json "$work/a.json" 'best;1;hpcc_block' 512
PATH=$work/bin:$PATH CHECK=FAILED expect 1 "$study" --size 100 --repeats 1 --versus hpcc
expect_err 'hpcc: 0 of 9 runs of Linpack passed'
rm -rf "$(grep -o '/tmp/study-hpcc-[A-Za-z0-9]*' "$work/err")"
# 545 = 17 x 32 + 1: b stands in a block with a column, in one of its own, and in the first.
expect 0 "$study" --size 545 --ranks 4 --repeats 1 --json "$work/a.json"
expect_json "$work/a.json" 'rows;26;ranks' 4
expect_json "$work/a.json" 'rows;26;block' 512
expect_json "$work/a.json" 'rows;26;residual' '0\.[0-9]+'
expect 0 "$study" --size 544 --ranks 2 --repeats 1
expect 0 "$study" --size 1 --ranks 2 --repeats 1
block=$(json "$work/a.json" 'best;2;block')
awk -v block="$block" 'BEGIN { printf "%d\n", 2 ^ int(log(block * block * 64 / (28 * 28 * 32)) / log(2) + 0.5) }' >"$work/batch"
expect_json "$work/a.json" 'best;2;batch' "$(cat "$work/batch")|1"
