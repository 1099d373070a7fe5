package verbs

import (
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// gather runs the example of libibverbs for XRC: a server on ms0 with one shared receive queue, and n clients on cn0,
// whose domain is that of a file. The server sends to the queue of each client over the connections of all, so that
// targets of one process lead to queues of another.
func gather(rack *fixture.Rack, program string, n int) {
	GinkgoHelper()
	run := func(host string, args ...string) chan fixture.Result {
		ended := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			ended <- rack.Run(append(append([]string{"exec", host, "--", "timeout", "60"}, strings.Fields(program)...), args...)...)
		}()
		return ended
	}
	all := []chan fixture.Result{run("ms0", "-c", strconv.Itoa(n))}
	rack.AwaitTCP("ms0", portMeet)
	for range n {
		all = append(all, run("cn0", rack.Host("ms0").IPv4))
	}
	for _, ended := range all {
		var r fixture.Result
		Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&r))
		Expect(r).To(fixture.HaveExited(0))
	}
}

var _ = Describe("extended reliable connections of unmodified programs", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() { rack = fixture.Up(fixture.Small) })

	It("lead several senders to one shared receive queue", func() {
		gather(rack, "ibv_xsrq_pingpong -g 0 -n 50", 1)
		gather(rack, "ibv_xsrq_pingpong -g 0 -n 50", 2)
		gather(rack, "ibv_xsrq_pingpong -g 0 -n 50 -e", 3)
		gather(rack, "ibv_xsrq_pingpong -g 0 -n 20 -o -s 20000", 2)
	})

	It("carry perftest", func() {
		wrestle(rack, "ib_send_bw -c XRC -n 100", "ib_send_bw -c XRC -n 50 -q 2", "ib_send_bw -c XRC -n 50 -b", "ib_send_lat -c XRC -n 50",
			"ib_write_bw -c XRC -n 100", "ib_write_lat -c XRC -n 50", "ib_read_bw -c XRC -n 100", "ib_atomic_bw -c XRC -n 100")
	})

	It("lose nothing when a packet in a hundred is lost", func() {
		rack.OK("inject", "loss", "1%", "--opcode", "XRC_SEND_*,XRC_WRITE_*,XRC_READ_*", "--link", "cn0")
		DeferCleanup(func() { rack.OK("heal") })
		gather(rack, "ibv_xsrq_pingpong -g 0 -n 200 -s 16384", 2)
		wrestle(rack, "ib_send_bw -c XRC -n 200 -s 16384", "ib_write_bw -c XRC -n 200 -s 16384", "ib_read_bw -c XRC -n 100 -s 16384")
	})

	It("leave nothing on the NIC", func() {
		Eventually(func() string { return rack.OK("status") }).ShouldNot(ContainSubstring("ib"))
	})
})
