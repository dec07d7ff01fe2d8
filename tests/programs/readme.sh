#!/bin/bash
# The README's first C block compiles as it stands and prints what the averages are; and every public call is in an example.
#
# Usage: readme.sh SOURCE MPICC LIBRARY_FOLDER MPIEXEC NUMPROC_FLAG [COMPILER FLAG...]
. "$(dirname "$0")/common.sh"
source=$1 mpicc=$2 library=$3 mpiexec=$4 flag=$5
shift 5
for call in $(grep -ohE '\balnico_[a-z_]+\(' "$source"/include/alnico/*.h | sort -u); do
    grep -qF "$call" "$source"/examples/*.c || fail "no example shows ${call%(}"
done
awk '/^```c$/ { inside = 1; next } /^```/ && inside { exit } inside' "$source/README.md" >"$work/example.c"
[ -s "$work/example.c" ] || fail "the README shows no C program"
lines=$(grep -c . "$work/example.c")
[ "$lines" -le 14 ] || fail "the README's example has $lines lines"
expect 0 "$mpicc" -std=c11 -Wall -Werror "$@" -I"$source/include" -o "$work/example" "$work/example.c" \
    -L"$library" -lalnico -Wl,-rpath,"$library"
expect 0 "$mpiexec" "$flag" 2 "$work/example"
[ "$(grep -c '^1 2 0\.5$' "$work/out")" -eq 2 ] || fail "expected two lines '1 2 0.5'"
