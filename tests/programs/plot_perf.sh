#!/bin/bash
# scripts/plot-perf on a small report, where gnuplot is there, and every way to use it wrongly.
#
# Usage: plot_perf.sh SOURCE
. "$(dirname "$0")/common.sh"
plot=$1/scripts/plot-perf
cat >"$work/a.json" <<'REPORT'
{
	"operation":	"allreduce",
	"ranks":	4,
	"options":	{
		"device":	"cuda",
		"registered":	true,
		"graph_calls":	20
	},
	"gpu":	{
		"name":	"Test \"9000\""
	},
	"rows":	[{
			"bytes":	8,
			"algorithm":	"one_shot",
			"time_us":	2.5,
			"nccl_us":	5,
			"nccl_symmetric_us":	4
		}, {
			"bytes":	8,
			"algorithm":	"two_shot_line",
			"time_us":	3,
			"nccl_us":	5,
			"nccl_symmetric_us":	4
		}, {
			"bytes":	1024,
			"algorithm":	"one_shot",
			"time_us":	3.5,
			"nccl_us":	6
		}],
	"summary":	{
		"wrong":	0,
		"nccl_us":	77
	}
}
REPORT
expect 2 "$plot"
expect_err 'expected RESULTS.json'
expect 2 "$plot" "$work/a.json" "$work/a.pdf"
expect_err 'a.pdf: expected a name that ends with .svg or .png'
expect 1 "$plot" "$work/none.json"
expect_err 'none.json: cannot be read'
if ! command -v gnuplot >/dev/null; then
    expect 1 "$plot" "$work/a.json"
    expect_err 'gnuplot is not installed'
    exit 0
fi
expect 0 "$plot" "$work/a.json"
expect_out 'a.svg$'
for text in one-shot two-shot-line nccl nccl-symmetric 'allreduce, 4 ranks, cuda, graph of 20 calls, registered' \
    'time ours / theirs'; do
    grep -q ">.*$text" "$work/a.svg" || fail "the picture does not say '$text'"
done
expect 0 "$plot" "$work/a.json" "$work/b.png"
head -c 4 "$work/b.png" | grep -q PNG || fail "b.png is no PNG"
echo '{"rows": []}' >"$work/empty.json"
expect 1 "$plot" "$work/empty.json"
expect_err 'empty.json: has no rows of alnico-perf'
