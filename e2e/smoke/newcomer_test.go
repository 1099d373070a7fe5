package smoke

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("what newcomers tried", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.New("hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 16MiB}\n")
		Expect(rack.Up("--log-format", "json")).To(fixture.HaveExited(0))
	})

	It("has logs of daemons as JSON", func() {
		for _, node := range []string{"switch", "cn0"} {
			lines := strings.Split(strings.TrimSpace(rack.OK("logs", node)), "\n")
			Expect(lines).NotTo(BeEmpty())
			for _, line := range lines {
				var x struct{ Time, Level, Msg string }
				Expect(json.Unmarshal([]byte(line), &x)).To(Succeed(), line)
				Expect(x.Level).NotTo(BeEmpty(), line)
			}
		}
		Expect(rack.Run("up", "--log-format", "xml")).To(fixture.HaveExited(2))
	})

	It("runs over several queue pairs", func() {
		Expect(rack.Run("perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "8", "--iters", "80", "--qps", "4")).To(fixture.HaveExited(0))
	})

	It("names the link that is cut when a test fails", func() {
		rack.OK("link", "ms0", "down")
		s := rack.Run("perf", "verify", "--from", "cn0", "--to", "ms0")
		Expect(s).To(fixture.HaveExited(1))
		Expect(s.Stderr).To(ContainSubstring("ms0 is link-down, see `rdmalab status`"))
		rack.OK("link", "ms0", "up")
	})
})

var _ = Describe("up --stay", func() {
	It("stays until a signal, and takes the rack down", func() {
		rack := fixture.New("hosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 16MiB}\n")
		stop := rack.Start("up", "--stay", "-f", rack.File)
		Eventually(func() int { return rack.Run("status").Code }).WithTimeout(fixture.Patience).Should(BeZero())
		Eventually(rack.State("ms0")).WithTimeout(fixture.Patience).Should(Equal("up"))
		Expect(rack.Run("up", "--stay", "-f", rack.File)).To(fixture.HaveExited(1), "this one has not brought it up")
		stop()
		Expect(rack.Run("status")).NotTo(fixture.HaveExited(0))
	})
})
