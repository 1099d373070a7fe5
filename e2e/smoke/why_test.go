package smoke

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// The two ends and the switch tell together what became of a packet.
var _ = Describe("rdmalab why", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up("hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 16MiB}\n")
	})

	It("says that nothing went wrong", func() {
		Expect(rack.Run("perf", "write_lat", "--from", "cn0", "--to", "ms0", "--size", "8", "--iters", "20")).To(fixture.HaveExited(0))
		s := rack.Run("why", "cn0")
		Expect(s).To(fixture.HaveExited(1))
		Expect(s.Stderr).To(ContainSubstring("no queue pair of cn0 has sent anything again"))
	})

	DescribeTable("tells why a transfer healed", func(test string, drop []string, want ...string) {
		Expect(rack.Run(append([]string{"inject", "drop", "--once", "--link", "cn0"}, drop...)...)).To(fixture.HaveExited(0))
		defer func() { Expect(rack.Run("heal")).To(fixture.HaveExited(0)) }()
		Expect(rack.Run("perf", test, "--from", "cn0", "--to", "ms0", "--size", "16KiB", "--iters", "20", "--mtu", "4096")).To(fixture.HaveExited(0))
		s := rack.Run("why", "cn0")
		Expect(s).To(fixture.HaveExited(0))
		for _, w := range want {
			Expect(s.Stdout).To(MatchRegexp(w))
		}
		Expect(s.Stdout).To(MatchRegexp(`healed\.`))
		Expect(s.Stdout).To(MatchRegexp(`The switch says where: RC_\w+ with PSN \d+ on cn0 (up|down), fault f1 \(loss\): dropped`))
	},
		Entry("a packet in the middle", "write_bw", []string{"--opcode", "RC_WRITE_MIDDLE", "--dir", "up"},
			`Packet [23] of 4 of WRITE \d+ \(PSN \d+\) was lost on the way from cn0 to ms0\.`, `ms0 noticed it when .* arrived, and asked for PSN \d+ by a sequence NAK\.`),
		Entry("the last packet", "write_lat", []string{"--opcode", "RC_WRITE_LAST", "--dir", "up"},
			`No answer to packet 1 of 4 of WRITE 1 \(PSN \d+\) came within the ACK timeout`, `packet 4 of 4 of WRITE 1 \(PSN \d+\) was lost on the way from cn0`),
		Entry("an ACK", "write_lat", []string{"--opcode", "RC_ACK", "--dir", "down"},
			`ms0 had executed it already \(PSNs up to \d+ arrived twice\): its answer was lost on the way to cn0\.`),
		Entry("a response of a READ", "read_bw", []string{"--opcode", "RC_READ_RESPONSE_MIDDLE", "--dir", "down"},
			`Response [23] of 4 of READ \d+ \(PSN \d+\) was lost on the way from ms0 to cn0: a later response arrived before it`),
	)

	It("tells why a transfer failed that got no answer", func() {
		stop := rack.Start("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "4KiB", "--iters", "100000000")
		defer stop()
		var qps struct {
			QPs []struct {
				State string `json:"state"`
				Gone  bool   `json:"gone"`
				Sent  uint32 `json:"sent"`
				Una   uint32 `json:"una"`
			} `json:"qps"`
		}
		Eventually(func() bool {
			rack.JSON(&qps, "qps", "cn0", "--live")
			return len(qps.QPs) == 1 && qps.QPs[0].State == "RTS" && qps.QPs[0].Sent != 0
		}).WithTimeout(time.Minute).Should(BeTrue())
		Expect(rack.Run("inject", "blackhole", "--link", "ms0", "--dir", "down")).To(fixture.HaveExited(0))
		defer func() { Expect(rack.Run("heal")).To(fixture.HaveExited(0)) }()
		Eventually(func() string { return rack.Run("why", "cn0").Stdout }).WithTimeout(time.Minute).Should(And(
			MatchRegexp(`failed .* after its post: transport retry counter exceeded, because no answer came within the ACK timeout`),
			MatchRegexp(`It waited for packet 1 of 1 of WRITE \d+ \(PSN \d+\) and sent PSNs? .* again 7 times\.`),
			MatchRegexp(`ms0 still expects PSN \d+: the requests were lost on the way from cn0\.`),
			MatchRegexp(`The switch says where: RC_WRITE_ONLY with PSN \d+ on ms0 down, fault f1 \(blackhole\)`)))
	})
})

var _ = Describe("rdmalab why behind a switch program", func() {
	It("names the program and the rule of the switch that drops and refuses", func() {
		rack := fixture.Up("switch:\n  program: swordbox\n  rules:\n    - {id: r1, server: ms0, action: move}\n" +
			"hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 16MiB}\n")
		for _, line := range [][]string{
			{"inject", "drop", "--once", "--link", "cn0", "--dir", "up", "--opcode", "RC_WRITE_ONLY", "--psn-offset", "40"},
			{"perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "512", "--iters", "300"},
		} {
			Expect(rack.Run(line...)).To(fixture.HaveExited(0))
		}
		s := rack.Run("why", "cn0")
		Expect(s).To(fixture.HaveExited(0))
		Expect(s.Stdout).To(MatchRegexp(`The switch noticed it by a later packet: program swordbox of switch, by rule r1, answers cn0 with NAK_PSN_SEQ with PSN \d+`))
		Expect(s.Stdout).To(MatchRegexp(`program swordbox of switch, by rule r1, drops (\d+ packets, )?RC_WRITE_ONLY with PSN \d+.* from cn0: psn gap`))
	})
})
