package chaos

import (
	"path/filepath"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// overMemory is a rack with memory links. One of its hosts sends each packet as a separate frame.
const overMemory = `
cable: memory
hosts:
  - {name: cn0, role: compute, gso: off}
  - {name: cn1, role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
`

// Containers cannot have memory links: up refuses them.
var _ = fixture.InContainers() || Describe("a rack with memory links", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up(overMemory)
	})

	verify := func() fixture.Result { return rack.Run("perf", "verify", "--from", "cn0", "--to", "ms0") }

	// sent is how many packets the kernel of a host has sent on its interface.
	sent := func(host string) int {
		GinkgoHelper()
		n, err := strconv.Atoi(strings.TrimSpace(rack.OK("exec", host, "--", "cat", "/sys/class/net/rack0/statistics/tx_packets")))
		Expect(err).NotTo(HaveOccurred())
		return n
	}

	It("carries RoCEv2 packets by memory and none by the interface, and TCP as before", func() {
		before := sent("cn0")
		p := rack.Perf("write_bw", "--size", "64KiB", "--iters", "200", "--verify")
		Expect(p.Verified).To(Equal(uint64(200 * 64 << 10)))
		Expect(sent("cn0") - before).To(BeNumerically("<", 200)) // the run has 3200 packets; IPv6 and TCP send a few
		Expect(rack.OK("perf", "raw_lat", "--from", "cn0", "--to", "ms0", "--iters", "50")).To(ContainSubstring("Raw"))
	})

	It("shows every packet in a capture, each with a right ICRC and as it came from the other link", func() {
		file := filepath.Join(GinkgoT().TempDir(), "links.pcapng")
		stop := rack.Start("capture", "cn1", "ms0", "-w", file)
		Eventually(func() string {
			rack.OK("perf", "verify", "--from", "cn1", "--to", "ms0")
			return fixture.Run("dump", file).Stdout
		}, fixture.Patience, "100ms").Should(ContainSubstring("RC_"))
		rack.OK("perf", "write_bw", "--from", "cn1", "--to", "ms0", "--size", "16KiB", "--iters", "20", "--verify")
		Expect(stop()).To(fixture.HaveExited(0))
		dump := fixture.Run("dump", "--verify", file)
		Expect(dump).To(fixture.HaveExited(0))
		lines := strings.Split(dump.Stdout, "\n")
		up, down := 0, 0
		for _, l := range lines {
			Expect(l).NotTo(ContainSubstring("icrc=bad")) // the word alone may be in an address or a key
			if strings.Contains(l, "RC_WRITE_MIDDLE") && strings.Contains(l, "cn1 up") {
				up++
			}
			if strings.Contains(l, "RC_WRITE_MIDDLE") && strings.Contains(l, "ms0 down") {
				down++
			}
		}
		Expect(up).To(And(Equal(down), BeNumerically(">=", 40)), dump.Stdout) // two for each message, more if some were retransmitted
	})

	It("hits exactly the packet that a fault names", func() {
		rack.OK("inject", "drop", "--opcode", "RC_ATOMIC_ACK", "--once", "--link", "cn0", "--dir", "down")
		server := rack.Grown("ms0", func() {
			rack.Perf("atomic_bw", "--type", "cas", "--iters", "20", "--tx-depth", "1", "--verify", "--timeout", "16")
		})
		Expect(rack.Faults()).To(HaveExactElements(HaveField("Hits", uint64(1))))
		// On a busy machine the ACK timer may run out for others, too, whose answers are not lost.
		Expect(server["replayed_atomics"]).To(BeNumerically(">=", 1))
		rack.OK("heal")
	})

	It("attaches a host again that has crashed, and the hosts of a switch that has", func() {
		for _, node := range []string{"ms0", "switch"} {
			endsBy(rack, retryExceeded, func() { rack.OK("crash", node) })
			rack.OK("restart", node)
			Expect(verify()).To(fixture.HaveExited(0))
		}
		rack.OK("crash", "switch") // a host that starts without a switch gets its link later
		rack.OK("crash", "ms0")
		rack.OK("restart", "ms0")
		rack.OK("restart", "switch")
		Eventually(verify, fixture.Patience).Should(fixture.HaveExited(0))
	})

	It("loses what is sent to a host that hangs, and to a link that is down", func() {
		endsBy(rack, retryExceeded, func() { rack.OK("hang", "ms0") })
		rack.OK("resume", "ms0")
		Eventually(verify, fixture.Patience).Should(fixture.HaveExited(0))
		endsBy(rack, retryExceeded, func() { rack.OK("link", "ms0", "down") })
		rack.OK("link", "ms0", "up")
		Eventually(verify, fixture.Patience).Should(fixture.HaveExited(0))
	})

	It("is not for hosts in containers, and says so", func() {
		other := fixture.New(strings.Replace(overMemory, "cable", "name: other\ncable", 1))
		r := other.Run("up", "-f", other.File, "--runtime", "docker")
		Expect(r.Code).NotTo(BeZero())
		Expect(r.Stderr).To(ContainSubstring("`cable: memory`"))
	})
})
