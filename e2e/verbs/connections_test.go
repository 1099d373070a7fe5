package verbs

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

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
var meetings = []fixture.Meeting{
	fixture.Meet("rping -s -v -V -C 10", "rping -c -a SERVER -v -V -C 10", lastPing()),
	fixture.Meet("rping -s -a SERVER6 -v -V -C 10", "rping -c -a SERVER6 -v -V -C 10", lastPing()),
	fixture.Meet("ucmatose", "ucmatose -s SERVER", "return status 0"),
	fixture.Meet("ucmatose -c 20 -C 5", "ucmatose -c 20 -C 5 -s SERVER", "return status 0"),
	fixture.Meet("ucmatose -m", "ucmatose -m -s SERVER", "return status 0"),
	fixture.Meet("udaddy", "udaddy -s SERVER", "return status 0"),
	fixture.Meet("rdma_server", "rdma_client -s SERVER", "rdma_client: end 0"),
	fixture.Meet("rdma_xserver", "rdma_xclient -s SERVER", "rdma_xclient: end 0"),
	fixture.Meet("rdma_xserver -c x", "rdma_xclient -s SERVER -c x", "rdma_xclient: end 0"),
	fixture.Meet("rstream -S 1024 -C 50 -I 2 -T v", "rstream -s SERVER -S 1024 -C 50 -I 2 -T v", "custom"),
	fixture.Meet("riostream -S 1024 -C 50 -I 2 -T v", "riostream -s SERVER -S 1024 -C 50 -I 2 -T v", "custom"),
	fixture.Meet("ib_write_bw -R -n 100 -F", "ib_write_bw -R -n 100 -F SERVER", "#bytes"),
	fixture.Meet("ib_send_lat -R -n 50 -F", "ib_send_lat -R -n 50 -F SERVER", "#bytes"),
	fixture.Meet("ib_read_bw -R -n 100 -q 4 -F", "ib_read_bw -R -n 100 -q 4 -F SERVER", "#bytes"),
}

// entries are the meetings as entries of a table.
func entries() (out []TableEntry) {
	for _, s := range meetings {
		out = append(out, Entry(fmt.Sprintf("`%s`", s.Client), s))
	}
	return out
}

var _ = Describe("unmodified programs over librdmacm", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	DescribeTable("meet and exchange data", func(s fixture.Meeting) { s.Run(rack, "ms0") }, entries())

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
		Eventually(func() int { return rack.Listeners("ms0") }).WithTimeout(20 * time.Second).Should(BeNumerically(">", 0))
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
		meetings[0].Run(rack, "ms0") // the daemons go on
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
var lossy = []fixture.Meeting{
	fixture.Meet("rping -s -v -V -C 10", "rping -c -a SERVER -v -V -C 10", lastPing()),
	fixture.Meet("ucmatose", "ucmatose -s SERVER", "return status 0"),
	fixture.Meet("rstream -S 1024 -C 50 -I 2 -T v", "rstream -s SERVER -S 1024 -C 50 -I 2 -T v", "custom"),
}

// written and added are perftest's data by WRITE and by atomics.
var (
	written = fixture.Meet("ib_write_bw -R -n 100 -F", "ib_write_bw -R -n 100 -F SERVER", "#bytes")
	added   = fixture.Meet("ib_atomic_bw -R -n 100 -F", "ib_atomic_bw -R -n 100 -F SERVER", "#bytes")
)

// lose runs meetings while a packet in a hundred is lost.
func lose(rack *fixture.Rack, meetings ...fixture.Meeting) {
	GinkgoHelper()
	rack.OK("inject", "loss", "1%", "--link", "cn0")
	for _, s := range lossy {
		s.Run(rack, "ms0")
	}
	rack.OK("heal")
	rack.OK("inject", "loss", "1%", "--link", "cn0", "--opcode", "RC_WRITE_*,RC_FETCH_ADD,RC_ATOMIC_ACK")
	for _, s := range meetings {
		s.Run(rack, "ms0")
	}
	rack.OK("heal")
}

// The switch learns these connections from the datagrams of the connection manager.
var _ = Describe("unmodified programs over librdmacm through a switch", func() {
	It("that tracks connections", func() {
		rack := fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Track, false, "ms0"))
		before := rack.SwitchCounters()["tracking"]["announced"]
		for _, s := range append([]fixture.Meeting{written, added}, lossy...) {
			s.Run(rack, "ms0")
		}
		Expect(rack.SwitchCounters()["tracking"]["announced"]).To(BeNumerically(">=", before+2+uint64(len(lossy))))
		lose(rack, written, added)
	})

	// Its rule is for the memory service: atomics on memory of other protection domains would fail.
	It("that moves requests", func() {
		rack := fixture.Up(fixture.Small + fixture.SwitchSection(fixture.Move, false, "ms0"))
		for _, s := range append([]fixture.Meeting{written}, lossy...) {
			s.Run(rack, "ms0")
		}
		lose(rack, written)
	})
})
