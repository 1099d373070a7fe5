package verbs

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// session is a server on ms0 and a client on cn0 that meet by librdmacm. SERVER in the arguments
// stands for the address of ms0.
type session struct {
	server, client string
	// said is what the client prints when its data were right.
	said string
}

// listeners is how many services programs on a host listen at.
func listeners(rack *fixture.Rack, host string) (n int) {
	GinkgoHelper()
	var s struct {
		Hosts []struct {
			Name   string `json:"name"`
			Daemon struct {
				Programs []struct {
					Listeners int `json:"listeners"`
				} `json:"programs"`
			} `json:"daemon"`
		} `json:"hosts"`
	}
	rack.JSON(&s, "status")
	for _, h := range s.Hosts {
		if h.Name != host {
			continue
		}
		for _, p := range h.Daemon.Programs {
			n += p.Listeners
		}
	}
	return n
}

// run runs both programs. A server that ends by itself must succeed, too; one that does not is
// ended.
func (s session) run(rack *fixture.Rack) (client, server fixture.Result) {
	GinkgoHelper()
	ip := rack.Host("ms0").IPv4
	if strings.Contains(s.client, "SERVER6") {
		ip = rack.Host("ms0").IPv6
	}
	args := func(host, program string) []string {
		return append([]string{"exec", host, "--", "timeout", "60"}, strings.Fields(strings.NewReplacer("SERVER6", ip, "SERVER", ip).Replace(program))...)
	}
	listening := func() int { return listeners(rack, "ms0") }
	Eventually(listening).WithTimeout(20 * time.Second).Should(BeZero()) // of earlier sessions
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run(args("ms0", s.server)...)
	}()
	Eventually(listening).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
	client = rack.Run(args("cn0", s.client)...)
	Expect(client).To(fixture.HaveExited(0))
	Expect(client.Stdout).To(ContainSubstring(s.said))
	Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&server))
	Expect(server).To(fixture.HaveExited(0))
	return client, server
}

// lastPing is the last of 10 lines of data that rping prints behind "ping data: ", by the rules of
// rping: line n begins with letter n, and letters follow each other.
func lastPing() string {
	line := []byte("rdma-ping-9: ")
	for c := byte('A' + 9); len(line) < 63; c++ {
		if c > 'z' {
			c = 'A'
		}
		line = append(line, c)
	}
	return string(line)
}

// sessions are the programs of package rdmacm-utils, and perftest over librdmacm.
var sessions = []session{
	{"rping -s -v -V -C 10", "rping -c -a SERVER -v -V -C 10", lastPing()},
	{"rping -s -a SERVER6 -v -V -C 10", "rping -c -a SERVER6 -v -V -C 10", lastPing()},
	{"ucmatose", "ucmatose -s SERVER", "return status 0"},
	{"ucmatose -c 20 -C 5", "ucmatose -c 20 -C 5 -s SERVER", "return status 0"},
	{"ucmatose -m", "ucmatose -m -s SERVER", "return status 0"},
	{"udaddy", "udaddy -s SERVER", "return status 0"},
	{"rdma_server", "rdma_client -s SERVER", "rdma_client: end 0"},
	{"rstream -S 1024 -C 50 -I 2 -T v", "rstream -s SERVER -S 1024 -C 50 -I 2 -T v", "custom"},
	{"riostream -S 1024 -C 50 -I 2 -T v", "riostream -s SERVER -S 1024 -C 50 -I 2 -T v", "custom"},
	{"ib_write_bw -R -n 100 -F", "ib_write_bw -R -n 100 -F SERVER", "#bytes"},
	{"ib_send_lat -R -n 50 -F", "ib_send_lat -R -n 50 -F SERVER", "#bytes"},
	{"ib_read_bw -R -n 100 -q 4 -F", "ib_read_bw -R -n 100 -q 4 -F SERVER", "#bytes"},
}

// entries are the sessions as entries of a table.
func entries() (out []TableEntry) {
	for _, s := range sessions {
		out = append(out, Entry(fmt.Sprintf("`%s`", s.client), s))
	}
	return out
}

var _ = Describe("unmodified programs over librdmacm", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	DescribeTable("meet and exchange data", func(s session) { s.run(rack) }, entries())

	It("are refused where nothing listens", func() {
		out := rack.Run("exec", "cn0", "--", "timeout", "60", "rping", "-c", "-a", rack.Host("ms0").IPv4, "-C", "1")
		Expect(out).NotTo(fixture.HaveExited(0))
		Expect(out.Stdout + out.Stderr).To(ContainSubstring("REJECTED"))
	})

	It("leave nothing on the NIC", func() {
		Eventually(func() string { return rack.OK("status") }).ShouldNot(MatchRegexp(`rping|ucmatose|rstream|ib_write`))
	})
})
