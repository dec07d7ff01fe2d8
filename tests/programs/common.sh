# Shared by the end-to-end tests of the programs, which set `work` through it: a folder that is removed at
# the end.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here=$(cd "$(dirname "$0")" && pwd)

fail() {
    echo "FAILED: $*" >&2
    echo "--- stdout" >&2
    cat "$work/out" >&2
    echo "--- stderr" >&2
    cat "$work/err" >&2
    exit 1
}

# Runs a command, keeps its output in $work/out and $work/err, and expects an exit status.
expect() {
    local wanted=$1 status=0
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
    [ $status -eq "$wanted" ] || fail "'$*' ended with $status, expected $wanted"
}

# The last command's stdout, or stderr, has a line that matches.
expect_out() {
    grep -qE -- "$1" "$work/out" || fail "no line on stdout like: $1"
}
expect_err() {
    grep -qE -- "$1" "$work/err" || fail "no line on stderr like: $1"
}

# What draws a study's picture, where gnuplot is there, and whether it did.
picture=()
! command -v gnuplot >/dev/null || picture=(--picture "$work/a.svg")
expect_picture() {
    [ ${#picture[@]} -eq 0 ] || [ "$(head -c 5 "$work/a.svg")" = '<?xml' ] || fail 'no picture'
}

# A value of a JSON file: json FILE KEY;KEY;...
json() {
    cmake "-DFILE=$1" "-DKEY=$2" -P "$here/../../cmake/json.cmake" || fail "$1 has no $2"
}
expect_json() {
    local value
    value=$(json "$1" "$2")
    [[ $value =~ ^($3)$ ]] || fail "$2 in $1 is '$value', expected $3"
}
