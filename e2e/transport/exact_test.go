package transport

import (
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// captured runs f under a capture of cn0's link and returns the dump's lines.
func captured(rack *fixture.Rack, f func()) []string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "exact.pcapng")
	stop := rack.Start("capture", "cn0", "-w", file)
	Eventually(func() string {
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
		return fixture.Run("dump", file).Stdout
	}, fixture.Patience, "100ms").Should(ContainSubstring("RC_"))
	f()
	Expect(stop()).To(fixture.HaveExited(0))
	return strings.Split(strings.TrimSpace(fixture.Run("dump", file).Stdout), "\n")
}

// count returns how many lines contain all of the words.
func count(lines []string, words ...string) int {
	n := 0
	for _, l := range lines {
		all := true
		for _, w := range words {
			all = all && strings.Contains(l, w)
		}
		if all {
			n++
		}
	}
	return n
}

var _ = Describe("an exact event", func() {
	It("loses the ACK of one CAS, which is answered again and not executed again", func() {
		rack := fixture.Up(fixture.Small)
		var server map[string]uint64
		lines := captured(rack, func() {
			rack.OK("inject", "drop", "--opcode", "RC_ATOMIC_ACK", "--once", "--link", "cn0", "--dir", "down")
			server = rack.Grown("ms0", func() {
				rack.Perf("atomic_bw", "--type", "cas", "--iters", "20", "--tx-depth", "1", "--verify", "--timeout", "16")
			})
		})
		Expect(rack.Faults()).To(HaveExactElements(HaveField("Hits", uint64(1))))
		if fixture.Through() == fixture.Move { // the switch has the answer
			hardened := rack.SwitchCounters()["hardened"]
			Expect(hardened["duplicates"]).To(Equal(uint64(1)))
			// The server sees a duplicate only if the switch itself waited too long for it, on a busy machine.
			Expect(server["duplicate_request"]).To(BeNumerically("<=", hardened["shared_resent"]))
			Expect(server["replayed_atomics"]).To(BeNumerically("<=", hardened["shared_resent"]))
		} else {
			Expect(server["replayed_atomics"]).To(Equal(uint64(1)))
			Expect(server["duplicate_request"]).To(Equal(uint64(1)))
		}
		Expect(count(lines, "RC_ATOMIC_ACK", "drop")).To(Equal(1))
	})

	It("loses the middle packet of one READ response, whose tail is asked for again", func() {
		rack := fixture.Up(fixture.Small)
		var client map[string]uint64
		lines := captured(rack, func() {
			rack.OK("inject", "drop", "--opcode", "RC_READ_RESPONSE_MIDDLE", "--once", "--link", "cn0", "--dir", "down")
			client = rack.Grown("cn0", func() {
				rack.Perf("read_bw", "--size", "12KiB", "--iters", "20", "--tx-depth", "1", "--verify", "--timeout", "16")
			})
		})
		Expect(rack.Faults()).To(HaveExactElements(HaveField("Hits", uint64(1))))
		Expect(client["read_tail_retry"]).To(Equal(uint64(1)))
		Expect(count(lines, "RC_READ_RESPONSE_MIDDLE", "drop")).To(Equal(1))
	})

	// The ACK timeout is 268 ms, so that a delay on a busy machine is not counted as a third loss.
	It("loses the first two transmissions of one WRITE_LAST", func() {
		rack := fixture.Up(fixture.Small)
		var client map[string]uint64
		lines := captured(rack, func() {
			rack.OK("inject", "drop", "--opcode", "RC_WRITE_LAST", "--same-packet", "--next", "2", "--link", "cn0", "--dir", "up")
			client = rack.Grown("cn0", func() {
				rack.Perf("write_bw", "--size", "12KiB", "--iters", "20", "--tx-depth", "1", "--verify", "--timeout", "16")
			})
		})
		Expect(rack.Faults()).To(HaveExactElements(HaveField("Hits", uint64(2))))
		Expect(client["local_ack_timeout_err"]).To(Equal(uint64(2)))
		Expect(count(lines, "RC_WRITE_LAST", "drop")).To(Equal(2))
		psns := map[string]bool{}
		for _, l := range lines {
			if strings.Contains(l, "RC_WRITE_LAST") && strings.Contains(l, "drop") {
				psns[l[strings.Index(l, "psn="):][:12]] = true
			}
		}
		Expect(psns).To(HaveLen(1))
	})

	It("ends by itself after --for", func() {
		rack := fixture.Up(fixture.Small)
		rack.OK("inject", "blackhole", "--link", "cn1", "--for", "5s")
		Expect(rack.Faults()).To(HaveExactElements(HaveField("Link", "cn1")))
		Eventually(func() []fixture.Rule { return rack.Faults() }, fixture.Patience, "100ms").Should(BeEmpty())
	})

	It("is undone by heal", func() {
		rack := fixture.Up(fixture.Small)
		rack.OK("inject", "loss", "50%", "--link", "cn0")
		rack.OK("inject", "loss", "50%", "--link", "cn1")
		rack.OK("heal", "--link", "cn1")
		Expect(rack.Faults()).To(HaveExactElements(HaveField("Link", "cn0")))
		rack.OK("heal", "--all")
		Expect(rack.Faults()).To(BeEmpty())
	})
})
