package verbs

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// meeting is a server on ms0 and a client on cn0 that meet by librdmacm. SERVER in the arguments
// stands for the address of ms0.
type meeting struct {
	server, client string
	// said is what the client prints if its data were right.
	said string
}

// listeners returns at how many services the programs on a host listen.
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

// rpingEnds is what a client rping says when its main thread closes the channel of events while its
// other thread asks for the next event. rping has this race on every NIC; all data was exchanged.
const rpingEnds = "rdma_get_cm_event: Bad file descriptor"

// run runs both programs, and perftest up to 20 times, until its client is not too early: on a busy
// machine one in 20 is. rping runs again if its threads raced at its end.
func (s meeting) run(rack *fixture.Rack) {
	GinkgoHelper()
	for range 20 {
		client, server := s.attempt(rack)
		if strings.Contains(client.Stdout+client.Stderr, fixture.PerftestTooEarly) && strings.HasPrefix(s.client, "ib_") {
			continue
		}
		if strings.Contains(client.Stdout+client.Stderr, rpingEnds) && strings.HasPrefix(s.client, "rping") {
			Expect(client.Stdout).To(ContainSubstring(s.said))
			continue
		}
		Expect(client).To(fixture.HaveExited(0))
		Expect(client.Stdout).To(ContainSubstring(s.said))
		Expect(server).To(fixture.HaveExited(0))
		return
	}
	Fail(s.client + " was too early, or raced with itself, 20 times")
}

// attempt runs both programs until they have ended. A server whose client has failed is ended.
func (s meeting) attempt(rack *fixture.Rack) (client, server fixture.Result) {
	GinkgoHelper()
	ip := rack.Host("ms0").IPv4
	if strings.Contains(s.client, "SERVER6") {
		ip = rack.Host("ms0").IPv6
	}
	args := func(host, program string) []string {
		return append([]string{"exec", host, "--", "timeout", "60"}, strings.Fields(strings.NewReplacer("SERVER6", ip, "SERVER", ip).Replace(program))...)
	}
	listening := func() int { return listeners(rack, "ms0") }
	Eventually(listening).WithTimeout(20 * time.Second).WithPolling(100 * time.Millisecond).Should(BeZero()) // of earlier meetings
	ended := make(chan fixture.Result, 1)
	go func() {
		defer GinkgoRecover()
		ended <- rack.Run(args("ms0", s.server)...)
	}()
	Eventually(listening).WithTimeout(20 * time.Second).WithPolling(100 * time.Millisecond).Should(BeNumerically(">", 0))
	client = rack.Run(args("cn0", s.client)...)
	if client.Code != 0 {
		rack.Run("exec", "ms0", "--", "pkill", strings.Fields(s.server)[0])
	}
	Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&server))
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

// meetings are the programs of package rdmacm-utils, and perftest over librdmacm.
var meetings = []meeting{
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

// entries are the meetings as entries of a table.
func entries() (out []TableEntry) {
	for _, s := range meetings {
		out = append(out, Entry(fmt.Sprintf("`%s`", s.client), s))
	}
	return out
}

var _ = Describe("unmodified programs over librdmacm", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	DescribeTable("meet and exchange data", func(s meeting) { s.run(rack) }, entries())

	It("lose nothing when a packet in a hundred is lost", func() {
		DeferCleanup(func() { rack.OK("heal") })
		lose(rack, written, added)
	})

	It("end, and so does the program at the other end when one is killed", func() {
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run("exec", "ms0", "--", "timeout", "60", "rping", "-s")
		}()
		Eventually(func() int { return listeners(rack, "ms0") }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
		before := rack.Counters("ms0")["rdma_recvs"]
		stop := rack.Start("exec", "cn0", "--", "rping", "-c", "-a", rack.Host("ms0").IPv4)
		Eventually(func() uint64 { return rack.Counters("ms0")["rdma_recvs"] }).WithTimeout(20 * time.Second).Should(BeNumerically(">", before+100))
		rack.OK("exec", "cn0", "--", "pkill", "-9", "rping")
		stop()
		var server fixture.Result
		Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&server))
		// An operation of the server on the memory of the program that is killed may be in flight. It
		// fails then, before the connection ends.
		Expect(server.Stdout + server.Stderr).To(Or(ContainSubstring("DISCONNECT EVENT"), ContainSubstring("cq completion failed")))
		meetings[0].run(rack) // the daemons go on
	})

	It("are refused where nothing listens", func() {
		out := rack.Run("exec", "cn0", "--", "timeout", "60", "rping", "-c", "-a", rack.Host("ms0").IPv4, "-C", "1")
		Expect(out).NotTo(fixture.HaveExited(0))
		Expect(out.Stdout + out.Stderr).To(ContainSubstring("REJECTED"))
	})

	It("leave nothing on the NIC", func() {
		Eventually(func() string { return rack.OK("status") }).ShouldNot(MatchRegexp(`rping|ucmatose|rstream|ib_write`))
	})
})

// lossy are meetings for links that lose packets. Their last messages are not lost for good when one
// end is gone: perftest's are, so that it runs only where just its data are lost.
var lossy = []meeting{
	{"rping -s -v -V -C 10", "rping -c -a SERVER -v -V -C 10", lastPing()},
	{"ucmatose", "ucmatose -s SERVER", "return status 0"},
	{"rstream -S 1024 -C 50 -I 2 -T v", "rstream -s SERVER -S 1024 -C 50 -I 2 -T v", "custom"},
}

// written and added are perftest's data by WRITE and by atomics.
var (
	written = meeting{"ib_write_bw -R -n 100 -F", "ib_write_bw -R -n 100 -F SERVER", "#bytes"}
	added   = meeting{"ib_atomic_bw -R -n 100 -F", "ib_atomic_bw -R -n 100 -F SERVER", "#bytes"}
)

// lose runs meetings while a packet in a hundred is lost.
func lose(rack *fixture.Rack, meetings ...meeting) {
	GinkgoHelper()
	rack.OK("inject", "loss", "1%", "--link", "cn0")
	for _, s := range lossy {
		s.run(rack)
	}
	rack.OK("heal")
	rack.OK("inject", "loss", "1%", "--link", "cn0", "--opcode", "RC_WRITE_*,RC_FETCH_ADD,RC_ATOMIC_ACK")
	for _, s := range meetings {
		s.run(rack)
	}
	rack.OK("heal")
}

// The switch learns these connections from the datagrams of the connection manager.
var _ = Describe("unmodified programs over librdmacm through a switch", func() {
	It("that tracks connections", func() {
		rack := fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Track, false, "ms0"))
		before := rack.SwitchCounters()["tracking"]["announced"]
		for _, s := range append([]meeting{written, added}, lossy...) {
			s.run(rack)
		}
		Expect(rack.SwitchCounters()["tracking"]["announced"]).To(BeNumerically(">=", before+2+uint64(len(lossy))))
		lose(rack, written, added)
	})

	// Its rule is for the memory service: atomics on memory of other protection domains would fail.
	It("that moves requests", func() {
		rack := fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Move, false, "ms0"))
		for _, s := range append([]meeting{written}, lossy...) {
			s.run(rack)
		}
		lose(rack, written)
	})
})
