package verbs

import (
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// program is a test that runs programs on two hosts.
type program interface{ run(rack *fixture.Rack) }

// pair is a server on ms0, which listens at a TCP port, and a client on cn0. SERVER in the client's
// arguments stands for the address of ms0.
type pair struct {
	server, client string
	port           int
	env            []string
	said           string // part of the client's output
}

// unanswered is the exit status of a client that was still waiting when its time was over.
const unanswered = 124

// qperfTooEarly is what a client qperf says whose request came before its server listened. qperf
// 0.4.11 names its port before it calls rdma_listen, so it has this race on every NIC; the request
// is rejected for an unknown service then.
const qperfTooEarly = "unexpected event from RDMA CM: Event rejected"

// run runs both. The reliable datagrams of libfabric are acknowledged by the library, and a server
// that has ended acknowledges nothing: if the acknowledgement of the client's last message is lost,
// or was not sent, the client waits for it until its time is over, though all data has been
// exchanged. Both are run again then, and if qperf is too early, up to 5 times.
func (s pair) run(rack *fixture.Rack) {
	GinkgoHelper()
	need(strings.Fields(s.server)[0])
	for range 5 {
		client := s.attempt(rack)
		if client.Code == unanswered && strings.Contains(s.client, "-e rdm") && regexp.MustCompile(s.said).MatchString(client.Stdout) {
			continue
		}
		if s.server == "qperf" && strings.Contains(client.Stdout+client.Stderr, qperfTooEarly) {
			continue
		}
		Expect(client).To(fixture.HaveExited(0))
		Expect(client.Stdout + client.Stderr).To(MatchRegexp(s.said))
		return
	}
	Fail(s.client + " waited for its server after the end, or was too early, 5 times")
}

// attempt runs both until they have ended. A server whose client has failed is ended.
func (s pair) attempt(rack *fixture.Rack) (client fixture.Result) {
	GinkgoHelper()
	patience := "90"
	if strings.Contains(s.client, "-e rdm") {
		patience = "60"
	}
	args := func(host, program string) []string {
		return append(append([]string{"exec", host, "--", "timeout", patience, "env"}, s.env...), strings.Fields(strings.ReplaceAll(program, "SERVER", rack.Host("ms0").IPv4))...)
	}
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run(args("ms0", s.server)...)
	}()
	awaitListener(rack, s.port)
	client = rack.Run(args("cn0", s.client)...)
	if client.Code != 0 || s.server == "qperf" { // which serves on
		rack.Run("exec", "ms0", "--", "pkill", strings.Fields(s.server)[0])
	}
	var server fixture.Result
	Eventually(ended).WithTimeout(100 * time.Second).Should(Receive(&server))
	return client
}

// ucx is what UCX needs to know to use the NIC and nothing else.
var ucx = []string{"UCX_TLS=rc_v,ud_v,self", "UCX_NET_DEVICES=rxe0:1"}

const (
	portQperf = 19765
	portUCX   = 13337
	portFI    = 47592
)

func ofUCX(args, said string) pair {
	server := "ucx_perftest"
	if at := strings.Index(args, "-d rxe0"); at >= 0 {
		server += " " + args[at:]
		server, _, _ = strings.Cut(server, " -t")
	}
	return pair{server, "ucx_perftest SERVER " + args, portUCX, ucx, said}
}

const final = `Final: +100 `

// others are programs of other packages, all of which check what they receive or how much it is.
var others = map[string]program{
	"qperf, RC":                    pair{"qperf", "qperf -t 1 -cm 1 SERVER rc_lat rc_bw rc_rdma_read_bw rc_rdma_write_bw rc_compare_swap_mr rc_fetch_add_mr", portQperf, nil, `(?s)rc_lat.*rc_fetch_add_mr`},
	"UCX, tagged messages":         ofUCX("-t tag_lat -n 100 -s 1024", final),
	"UCX, large tagged messages":   ofUCX("-t tag_lat -n 100 -s 100000", final),
	"UCX, active messages":         ofUCX("-t ucp_am_lat -n 100 -s 8", final),
	"UCX, put":                     ofUCX("-t ucp_put_lat -n 100 -s 1024", final),
	"UCX, get":                     ofUCX("-t ucp_get -n 100 -s 1024", final),
	"UCX, atomics":                 ofUCX("-t ucp_fadd -n 100 -s 8", final),
	"UCX, active messages over UD": ofUCX("-d rxe0:1 -x ud_verbs -t am_lat -n 100 -s 8", final),
	"UCX, atomics over UD":         pair{"ucx_perftest", "ucx_perftest SERVER -t ucp_fadd -n 50 -s 8", portUCX, []string{"UCX_TLS=ud_v,self", "UCX_NET_DEVICES=rxe0:1"}, `Final: +50 `},
	"libfabric, MSG":               pair{"fi_pingpong -p verbs -e msg -c -S 4096", "fi_pingpong -p verbs -e msg -c -S 4096 SERVER", portFI, nil, `4k +10 +=10`},
	"libfabric, RDM":               pair{"fi_pingpong -p verbs -e rdm -c -S 4096", "fi_pingpong -p verbs -e rdm -c -S 4096 SERVER", portFI, nil, `4k +10 +=10`},
	"libfabric, datagrams":         pair{"fi_pingpong -p verbs -e dgram -c -S 1024", "fi_pingpong -p verbs -e dgram -c -S 1024 SERVER", portFI, nil, `1k +10 +=10`},
	"rcopy":                        rcopy{},
	"cmtime":                       cmtime{},
	"fio, WRITE":                   fio{"write"},
	"fio, SEND, verified":          fio{"send"},
	"tgt, a disk over iSER":        iser{},
	"QEMU, a machine migrates":     migration{},
}

var _ = Describe("unmodified programs of other packages", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	for _, name := range slices.Sorted(maps.Keys(others)) {
		It("run: "+name, func() { others[name].run(rack) })
	}

	It("find the NIC in /sys/class without libibverbs", func() {
		Expect(rack.OK("exec", "cn0", "--", "cat", "/sys/class/infiniband/rxe0/ports/1/gids/0")).To(HavePrefix("0000:0000:0000:0000:0000:ffff:"))
		Expect(rack.OK("exec", "cn0", "--", "ls", "/sys/class/net")).To(ContainSubstring("lo"))
	})

	It("describe the NIC: ucx_info, fi_info", func() {
		need("ucx_info")
		need("fi_info")
		Expect(rack.OK("exec", "cn0", "--", "ucx_info", "-d")).To(And(ContainSubstring("rc_verbs"), ContainSubstring("ud_verbs"), ContainSubstring("rdmacm")))
		Expect(rack.OK("exec", "cn0", "--", "fi_info", "-p", "verbs")).To(And(ContainSubstring("FI_EP_MSG"), ContainSubstring("FI_EP_DGRAM"), ContainSubstring("FI_EP_RDM")))
	})
})

// need skips a spec if a program is not installed.
func need(program string) {
	GinkgoHelper()
	if _, err := exec.LookPath(program); err != nil {
		Skip(program + " is not installed: apt-get install qperf fio ucx-utils libfabric-bin tgt libiscsi-bin qemu-system-x86")
	}
}
