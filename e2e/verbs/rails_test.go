package verbs

import (
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// Hosts with two NICs: programs use either, or both at once, and lose one without the other.
var _ = Describe("hosts with two NICs", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		for _, program := range []string{"ib_write_bw", "rping"} {
			fixture.Need(program, "perftest rdmacm-utils")
		}
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute, nics: 2}\n  - {name: ms0, role: memory, nics: [{}, {numa: 1}]}\n")
	})
	sent := func(nic string) uint64 { return rack.Counters(nic)["sent_bytes"] }

	It("carry ib_write_bw over both at once, by the names of the devices", func() {
		Expect(rack.OK("exec", "ms0", "--", "sh", "-c", "cat $SYSFS_PATH/class/infiniband/rxe1/device/numa_node")).To(HavePrefix("1"))
		first, second := sent("cn0"), sent("cn0/rxe1")
		ended := make(chan fixture.Result, 4)
		for i, device := range []string{"rxe0", "rxe1"} {
			port := 18600 + i
			start := func(host string, server ...string) {
				// Four programs poll: an ACK timeout of 2 s (-u 19) outlasts a daemon that waits for a processor.
				args := append([]string{"exec", host, "--", "timeout", "60", "ib_write_bw", "-F", "-u", "19", "-d", device, "-p", strconv.Itoa(port), "-n", "500"}, server...)
				go func() {
					defer GinkgoRecover()
					ended <- rack.Run(args...)
				}()
			}
			start("ms0")
			rack.AwaitTCP("ms0", port)
			start("cn0", "ms0")
		}
		for range cap(ended) {
			var r fixture.Result
			Eventually(ended).WithTimeout(70 * time.Second).Should(Receive(&r))
			Expect(r).To(fixture.HaveExited(0))
		}
		const bytes = 500 * 64 << 10
		Expect(sent("cn0") - first).To(BeNumerically(">", uint64(bytes)))
		Expect(sent("cn0/rxe1") - second).To(BeNumerically(">", uint64(bytes)))
	})

	It("are found by librdmacm by the address, and listen on both", func() {
		for _, at := range []string{"10.77.0.3", "10.77.1.3"} {
			fixture.Meet("rping -s -C 3", "rping -c -v -C 3 -a "+at, "rdma-ping-2").Run(rack, "ms0")
			fixture.Meet("rping -s -C 3 -a "+at, "rping -c -v -C 3 -a "+at, "rdma-ping-2").Run(rack, "ms0")
		}
	})

	It("lose one NIC without the other", func() {
		state := func(device string) func() string {
			return func() string {
				return strings.TrimSpace(rack.OK("exec", "cn0", "--", "sh", "-c", "cat $SYSFS_PATH/class/infiniband/"+device+"/ports/1/state"))
			}
		}
		rack.OK("link", "cn0/rxe1", "down")
		Eventually(state("rxe1")).WithTimeout(20 * time.Second).Should(Equal("1: DOWN"))
		Expect(state("rxe0")()).To(Equal("4: ACTIVE"))
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
		rack.OK("link", "cn0/rxe1", "up")
		Eventually(state("rxe1")).WithTimeout(20 * time.Second).Should(Equal("4: ACTIVE"))
		rack.OK("crash", "cn0", "--nic")
		rack.OK("perf", "write_bw", "--from", "cn0/rxe1", "--to", "ms0/rxe1", "--size", "64KiB", "--iters", "20", "--verify", "-q")
		rack.OK("restart", "cn0", "--nic")
		Expect(rack.Run("crash", "cn0/rxe1")).NotTo(fixture.HaveExited(0))
		rack.OK("crash", "cn0")
		rack.OK("restart", "cn0")
		rack.OK("perf", "write_bw", "--from", "cn0/rxe1", "--to", "ms0/rxe1", "--size", "64KiB", "--iters", "20", "--verify", "-q")
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})
})
