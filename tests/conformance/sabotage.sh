#!/bin/bash
# That alnico-conformance finds what it must: a wrong element, a byte written where none may be, ranks that do not agree,
# and a rank that does not come; and that the command which it prints repeats the failure, but not what is right.
#
# Usage: sabotage.sh PROGRAM [crash]
#   crash: a crash too, which sanitizers keep to themselves
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$(dirname "$program"):$PATH

fail() {
    echo "sabotage: $*" >&2
    cat "$work/err" >&2
    exit 1
}

# spoil WHAT PATTERN OPTION...: a run in which this goes wrong must fail and say so.
spoil() {
    local what=$1 pattern=$2 status=0
    shift 2
    "$program" --ranks 3 --seed 5 --cases 4000 --sabotage "$what" "$@" >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq 1 ] || fail "$what: exit status $status"
    grep -qE -- "$pattern" "$work/err" || fail "$what: does not say $pattern"
    command=$(sed -n 's/^    //p' "$work/err" | head -1)
    case $command in *" --case "*) ;; *) fail "$what: no command" ;; esac
    ! sh -c "$command" >"$work/out" 2>"$work/err" || fail "$what: is not repeated by $command"
    grep -qE -- "$pattern" "$work/err" || fail "$what: repeated, it does not say $pattern"
    sh -c "${command/--sabotage $what/}" >"$work/out" 2>"$work/err" || fail "$what: fails without sabotage: $command"
}

spoil result 'elements are wrong; element 0' --only allreduce
spoil result 'bytes of recv are wrong; the first, byte 0 of [0-9]+, in element 0 of block' --only alltoall
spoil margin '1 bytes of recv are wrong; the first, .*, behind the buffer, '
spoil gap '1 bytes of recv are wrong; the first, .*, between the blocks, '
spoil input 'bytes of send are wrong; the first, .*, in element'
spoil bits 'other bits than on rank' --only allreduce
spoil refusal 'refused here: ., on rank'
spoil barrier 'ended on rank . before it began here' --only barrier
[ "${2:-}" != crash ] || spoil crash 'alnico-conformance: aborted'
export ALNICO_TIMEOUT=2
spoil absence 'deadline passed' --only barrier
echo "all found"
