package apps

import (
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// program is a test that runs programs on hosts.
type program interface{ run(s *stage) }

// met is a program over librdmacm.
type met struct{ fixture.Meeting }

func (m met) run(s *stage) {
	GinkgoHelper()
	fixture.Need(strings.Fields(m.Server)[0], packages)
	m.Run(s.Rack, s.server)
}

// pair is a server, which listens at a TCP port, and a client on cn0. SERVER in the client's
// arguments stands for the address of the server.
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

// datagrams marks clients of libfabric's reliable datagrams.
const datagrams = "-e rdm"

// closedTooEarly is what fi_pingpong says when it dies at its end: the layer ofi_rxm of libfabric 1.17
// posts receives to an endpoint that it has closed, on every NIC, after all data has been exchanged.
const closedTooEarly = "terminated with signal 11"

// run runs both, and expects that both end with 0, but for qperf's server, which serves on and is killed.
// The reliable datagrams of libfabric and of UCX are acknowledged by the library, and a program that has ended
// acknowledges nothing: if the acknowledgement of the peer's last message is lost, or was not sent, the
// peer waits for it until its time is over, though all data has been exchanged. Both are run again then,
// if one of them dies after it, and if qperf is too early, up to 5 times.
func (p pair) run(s *stage) {
	GinkgoHelper()
	fixture.Need(strings.Fields(p.server)[0], packages)
	for range 5 {
		client, server := p.attempt(s)
		if (late(client) || late(server)) && p.byDatagrams() && regexp.MustCompile(p.said).MatchString(client.Stdout) {
			continue
		}
		if p.server == "qperf" && strings.Contains(client.Stdout+client.Stderr, qperfTooEarly) {
			continue
		}
		Expect(client).To(fixture.HaveExited(0))
		Expect(client.Stdout + client.Stderr).To(MatchRegexp(p.said))
		if p.server != "qperf" { // which is killed
			Expect(server).To(fixture.HaveExited(0))
		}
		return
	}
	Fail(p.client + " or its server waited for the other after the end, died then, or was too early, 5 times")
}

// byDatagrams reports whether a library acknowledges the messages of the pair, or its end: that of
// libfabric, or UCX, which closes its endpoints over ud_v.
func (p pair) byDatagrams() bool {
	return strings.Contains(p.client, datagrams) || strings.HasPrefix(p.client, "ucx_perftest")
}

// late reports whether a program waited until its time was over for its peer's last acknowledgement, or died after it.
func late(r fixture.Result) bool {
	return r.Code == unanswered || strings.Contains(r.Stdout+r.Stderr, closedTooEarly)
}

// attempt runs both until they have ended. A server whose client has failed is ended.
func (p pair) attempt(s *stage) (client, server fixture.Result) {
	GinkgoHelper()
	patience := "90"
	if p.byDatagrams() {
		patience = "45"
	}
	args := func(host, program string) []string {
		return append(append([]string{"exec", host, "--", "timeout", patience, "env"}, p.env...), strings.Fields(strings.ReplaceAll(program, "SERVER", s.address()))...)
	}
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- s.Run(args(s.server, p.server)...)
	}()
	s.AwaitTCP(s.server, p.port)
	client = s.Run(args("cn0", p.client)...)
	if client.Code != 0 || p.server == "qperf" { // which serves on
		s.Run("exec", s.server, "--", "pkill", strings.Fields(p.server)[0])
	}
	Eventually(ended).WithTimeout(100 * time.Second).Should(Receive(&server))
	return client, server
}

// ucx is what UCX needs to know to use the NIC and nothing else.
var ucx = []string{"UCX_TLS=rc_v,ud_v,self", "UCX_NET_DEVICES=rxe0:1"}

const (
	portQperf = 19765
	portUCX   = 13337
	portFI    = 47592
)

// ofUCX runs ucx_perftest. The server gets the arguments that name a transport of UCT.
func ofUCX(args, said string) pair {
	server := "ucx_perftest"
	if at := strings.Index(args, "-d rxe0"); at >= 0 {
		server += " " + args[at:]
		server, _, _ = strings.Cut(server, " -t")
	}
	return pair{server, "ucx_perftest SERVER " + args, portUCX, ucx, said}
}

// ofFabric runs fi_pingpong, which compares what it receives.
func ofFabric(args, said string, env ...string) pair {
	p := "fi_pingpong " + args + " -c"
	return pair{p, p + " SERVER", portFI, env, said}
}
