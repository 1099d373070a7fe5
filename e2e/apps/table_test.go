package apps

import (
	"regexp"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// packages are all that the suite needs of Debian 12.
const packages = "qperf fio ucx-utils libfabric-bin openmpi-bin libopenmpi-dev rdmacm-utils ibverbs-utils perftest tgt libiscsi-bin qemu-system-x86 python3-torch ceph-mon ceph-osd ceph-common"

// An app is a row of the page.
type app struct {
	name string // of the program, as on the page; "UCX: put"
	pkg  string // the Debian package whose version the page shows
	what string // what is run
	by   program
	// apart says that its requests must not be moved: a switch that moves requests to ms0 sends them
	// to the protection domain of ms0's memory service, where memory of the program's own is not. The
	// server then is on a host without a rule, and the switch moves other requests meanwhile.
	apart bool
	// long says that only a whole run has it.
	long bool
	// in are the ways in which it runs; nil: all. It takes minutes.
	in *regexp.Regexp
	// without has the ways in which it cannot run, each with the reason.
	without map[string]string
}

// skips says why a program does not run in a way; "" if it does.
func (a *app) skips(w *way) string {
	if a.in != nil && !a.in.MatchString(w.name) {
		return notTried
	}
	return a.without[w.name]
}

const notTried = "not tried"

const (
	final  = `Final: +100 `
	lossOf = "where a packet in a hundred is lost"
)

// portMeet is where perftest and the examples of libibverbs listen.
const portMeet = 18515

var noXRC = map[string]string{"with the provider of rdma-core": "rdma-core's provider for rxe has no XRC"}

// apps are all programs, all of which check what they receive or how much it is.
var apps = []app{
	{
		name: "qperf", pkg: "qperf", what: "RC: latency, bandwidth, READ, WRITE, atomics", apart: true,
		by:      pair{"qperf", "qperf -t 1 -cm 1 SERVER rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_bw rc_compare_swap_mr rc_fetch_add_mr", portQperf, nil, `(?s)rc_lat.*rc_fetch_add_mr`},
		without: map[string]string{lossOf: "qperf ends its connection while the other side waits for an acknowledgement"},
	},
	{name: "UCX: tagged messages", pkg: "ucx-utils", what: "`ucx_perftest -t tag_lat`, 1 KiB", by: ofUCX("-t tag_lat -n 100 -s 1024", final), apart: true},
	{name: "UCX: large tagged messages", pkg: "ucx-utils", what: "`ucx_perftest -t tag_lat`, 100 kB: rendezvous", by: ofUCX("-t tag_lat -n 100 -s 100000", final)},
	{name: "UCX: active messages", pkg: "ucx-utils", what: "`ucx_perftest -t ucp_am_lat`", by: ofUCX("-t ucp_am_lat -n 100 -s 8", final)},
	{name: "UCX: put", pkg: "ucx-utils", what: "`ucx_perftest -t ucp_put_lat`", by: ofUCX("-t ucp_put_lat -n 100 -s 1024", final), apart: true},
	{name: "UCX: get", pkg: "ucx-utils", what: "`ucx_perftest -t ucp_get`", by: ofUCX("-t ucp_get -n 100 -s 1024", final), apart: true},
	{name: "UCX: atomics", pkg: "ucx-utils", what: "`ucx_perftest -t ucp_fadd`", by: ofUCX("-t ucp_fadd -n 100 -s 8", final)},
	{name: "UCX: streams", pkg: "ucx-utils", what: "`ucx_perftest -t stream_lat`", by: ofUCX("-t stream_lat -n 100 -s 1024", final), apart: true, long: true},
	{name: "UCX: tag bandwidth", pkg: "ucx-utils", what: "`ucx_perftest -t tag_bw`, 64 KiB", by: ofUCX("-t tag_bw -n 100 -s 65536", final), apart: true, long: true},
	{name: "UCX: compare and swap", pkg: "ucx-utils", what: "`ucx_perftest -t ucp_cswap`", by: ofUCX("-t ucp_cswap -n 100 -s 8", final), apart: true, long: true},
	{name: "UCX: active messages over UD", pkg: "ucx-utils", what: "`ucx_perftest -x ud_verbs -t am_lat`", by: ofUCX("-d rxe0:1 -x ud_verbs -t am_lat -n 100 -s 8", final)},
	{
		name: "UCX: atomics over UD", pkg: "ucx-utils", what: "`ucx_perftest -t ucp_fadd`, `UCX_TLS=ud_v,self`",
		by: pair{"ucx_perftest", "ucx_perftest SERVER -t ucp_fadd -n 50 -s 8", portUCX, []string{"UCX_TLS=ud_v,self", "UCX_NET_DEVICES=rxe0:1"}, `Final: +50 `},
	},
	{name: "libfabric: MSG", pkg: "libfabric-bin", what: "`fi_pingpong -p verbs -e msg`, 4 KiB", by: ofFabric("-p verbs -e msg -S 4096", `4k +10 +=10`), apart: true},
	{name: "libfabric: RDM", pkg: "libfabric-bin", what: "`fi_pingpong -p verbs -e rdm`: verbs;ofi_rxm", by: ofFabric("-p verbs -e rdm -S 4096", `4k +10 +=10`), apart: true},
	{name: "libfabric: RDM of large messages", pkg: "libfabric-bin", what: "`fi_pingpong -p verbs -e rdm`, 1 MiB: rendezvous", by: ofFabric("-p verbs -e rdm -S 1048576 -I 20", `1m +20 +=20`), apart: true, long: true},
	{name: "libfabric: MSG of large messages", pkg: "libfabric-bin", what: "`fi_pingpong -p verbs -e msg`, 1 MiB", by: ofFabric("-p verbs -e msg -S 1048576 -I 20", `1m +20 +=20`), apart: true, long: true},
	{
		name: "libfabric: datagrams", pkg: "libfabric-bin", what: "`fi_pingpong -p verbs -e dgram`", by: ofFabric("-p verbs -e dgram -S 1024", `1k +10 +=10`), apart: true,
		without: map[string]string{lossOf: "fi_pingpong sends no datagram again"},
	},
	{name: "Open MPI over UCX", pkg: "openmpi-bin", what: "`mpibench` on four hosts: latency, bandwidth, allreduce", by: mpi{ucxBelow}, apart: true},
	{name: "Open MPI over libfabric", pkg: "openmpi-bin", what: "`mpibench` on four hosts, `--mca mtl ofi`: verbs;ofi_rxm", by: mpi{fabricBelow}, apart: true},
	{name: "rping", pkg: "rdmacm-utils", what: "`rping -V`, 10 rounds: WRITE, READ and SEND, compared", by: met{fixture.Meet("rping -s -V -C 10", "rping -c -V -v -C 10 -a SERVER", `rdma-ping-9`)}, apart: true, long: true},
	{name: "rcopy", pkg: "rdmacm-utils", what: "a file by rsockets, compared", by: rcopy{}, apart: true},
	{name: "cmtime", pkg: "rdmacm-utils", what: "20 connections", by: cmtime{}, apart: true},
	{name: "perftest: WRITE", pkg: "perftest", what: "`ib_write_bw -R`", by: met{fixture.Meet("ib_write_bw -R -n 100 -F", "ib_write_bw -R -n 100 -F SERVER", `#bytes`)}, apart: true, long: true},
	{name: "perftest: READ", pkg: "perftest", what: "`ib_read_bw -R`", by: met{fixture.Meet("ib_read_bw -R -n 100 -F", "ib_read_bw -R -n 100 -F SERVER", `#bytes`)}, apart: true, long: true},
	{
		name: "perftest: XRC", pkg: "perftest", what: "`ib_send_bw -c XRC -x 0`", long: true, without: noXRC,
		by: pair{"ib_send_bw -c XRC -x 0 -n 100 -F", "ib_send_bw -c XRC -x 0 -n 100 -F SERVER", portMeet, nil, `#bytes`},
	},
	{
		name: "libibverbs: XRC", pkg: "ibverbs-utils", what: "`ibv_xsrq_pingpong -g 0`", long: true, without: noXRC,
		by: pair{"ibv_xsrq_pingpong -g 0 -n 100", "ibv_xsrq_pingpong -g 0 -n 100 SERVER", portMeet, nil, `success`},
	},
	{name: "fio: WRITE", pkg: "fio", what: "engine rdma, 1 MiB", by: fio{"write"}, apart: true},
	{name: "fio: SEND", pkg: "fio", what: "engine rdma, 1 MiB, each block verified", by: fio{"send"}, apart: true},
	{name: "tgt", pkg: "tgt", what: "a disk by iSER, two tests of libiscsi, the disk compared", by: iser{}},
	{name: "QEMU", pkg: "qemu-system-x86", what: "a running machine migrates by `rdma:`, its memory compared", by: migration{}},
	{name: "Ceph", pkg: "ceph-osd", what: "a monitor, two OSDs, `rados bench`; an OSD's host crashes and comes back, objects compared; messenger async+rdma", by: ceph{}, apart: true, long: true, in: regexp.MustCompile(`^(as it is|where a packet|through a switch that moves)`)},
	{name: "PyTorch RPC", pkg: "python3-torch", what: "tensors to 16 MB to a function of another worker and back, compared; with default settings, and with all bytes by TensorPipe's ibv", by: torch{}, apart: true, long: true},
}

// missing are programs that do not run here, with the reason, for the page.
var missing = [][2]string{
	{"fabtests (libfabric)", "Debian has no package of them, and this project builds no foreign source. `fi_pingpong` runs the same endpoints: MSG, RDM, datagrams"},
	{"Open MPI over its own `openib`", "Debian's build connects queue pairs by `udcm` alone, which needs an InfiniBand subnet; on RoCE Open MPI wants `rdmacm`. It ends with \"unable to reach each other\", also on hardware"},
	{"valkey and memcached over RDMA", "Debian has valkey and memcached without an RDMA module. `connections.c` of [e2e/verbs](../../e2e/verbs/testdata/connections.c) makes the same calls as such a server: a completion channel, two queues and a pair for each of its clients"},
	{"brpc", "Debian's build is without RDMA. `channels.c` and `depth.c` of [e2e/verbs](../../e2e/verbs/testdata/channels.c) prepare channels, queues and pairs as it does"},
	{"Sherman, SMART, Aceso, pDPM", "sources that are not in Debian, with `ibv_exp_*` of MLNX_OFED; [what ran by hand](../explain/provider.md#ibv_exp_-of-mlnx_ofed)"},
	{"FORD, rdma_bench", "sources that are not in Debian: not tried"},
}
