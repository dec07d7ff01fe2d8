#!/bin/bash
# The README's first C block compiles as it stands and prints what the averages are; every public call is in an example; and
# docs/performance.md cites the reports in benchmarks/results, all of them and no others.
#
# Usage: readme.sh SOURCE MPICC LIBRARY_FOLDER MPIEXEC NUMPROC_FLAG [COMPILER FLAG...]
. "$(dirname "$0")/common.sh"
source=$1 mpicc=$2 library=$3 mpiexec=$4 flag=$5
shift 5
for call in $(grep -ohE '\balnico_[a-z_]+\(' "$source"/include/alnico/*.h | sort -u); do
    grep -qF "$call" "$source"/examples/*.c || fail "no example shows ${call%(}"
done
cited=$(eval printf '%s\\n' $(grep -ohE '`[a-z0-9_{},.-]+\.(json|txt)`' "$source/docs/performance.md" | tr -d '`') | sort -u)
[ -n "$cited" ] || fail "docs/performance.md cites no report"
for report in $cited; do
    [ -s "$source/benchmarks/results/$report" ] || fail "docs/performance.md cites $report, which is not in benchmarks/results"
done
for report in $(git -C "$source" ls-files benchmarks/results 2>/dev/null); do
    grep -qxF "${report##*/}" <<<"$cited" || fail "no document cites $report"
done
awk '/^```c$/ { inside = 1; next } /^```/ && inside { exit } inside' "$source/README.md" >"$work/example.c"
[ -s "$work/example.c" ] || fail "the README shows no C program"
lines=$(grep -c . "$work/example.c")
[ "$lines" -le 14 ] || fail "the README's example has $lines lines"
expect 0 "$mpicc" -std=c11 -Wall -Werror "$@" -I"$source/include" -o "$work/example" "$work/example.c" \
    -L"$library" -lalnico -Wl,-rpath,"$library"
expect 0 "$mpiexec" "$flag" 2 "$work/example"
[ "$(grep -c '^1 2 0\.5$' "$work/out")" -eq 2 ] || fail "expected two lines '1 2 0.5'"
