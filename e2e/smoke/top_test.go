package smoke

import (
	"os/exec"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// topLimit bounds how long a spec waits for a text on the screen.
const topLimit = 30 * time.Second

var _ = Describe("top", Ordered, func() {
	var rack *fixture.Rack
	BeforeAll(func() {
		rack = fixture.Up(fixture.Small)
	})

	It("shows links, faults, queue pairs and the switch", func() {
		rack.OK("inject", "loss", "5%", "--link", "cn0")
		stop := rack.Start("perf", "atomic_lat", "--from", "cn0", "--to", "ms0", "--iters", "10000000", "-q")
		Eventually(func() string { return rack.OK("top", "--once") }).WithTimeout(topLimit).Should(SatisfyAll(
			MatchRegexp(`cn0 +up +[1-9]`), // frames of the last second
			MatchRegexp(`f1 +active +[1-9].* hits +loss 5% --link cn0`),
			MatchRegexp(`cn0 +0x[0-9a-f]{6} RC +RTS +ms0 +0x[0-9a-f]{6} .* [1-9][0-9.k]* `),
			ContainSubstring("TABLE"),
		))
		stop()
	})

	It("shows which host has crashed", func() {
		rack.OK("crash", "ms0")
		Expect(rack.OK("top", "--once")).To(MatchRegexp(`ms0 +crashed`))
		rack.OK("restart", "ms0")
	})

	It("reports without a terminal that it needs one", func() {
		res := rack.Run("top")
		Expect(res.Code).To(Equal(2))
		Expect(res.Stderr).To(ContainSubstring("top --once"))
	})

	It("ends when its key for that is pressed", func() {
		script, err := exec.LookPath("script")
		if err != nil {
			Skip("no script(1) here, which makes a terminal")
		}
		cmd := exec.Command(script, "-qec", "stty cols 80 rows 24; TERM=xterm "+fixture.Binary()+" top --rack "+rack.Name, "/dev/null")
		keys, err := cmd.StdinPipe()
		Expect(err).NotTo(HaveOccurred())
		out := gbytes.NewBuffer()
		cmd.Stdout, cmd.Stderr = out, out
		Expect(cmd.Start()).To(Succeed())
		Eventually(out).WithTimeout(topLimit).Should(gbytes.Say("ms0"))
		_, err = keys.Write([]byte("q"))
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Wait()).To(Succeed(), string(out.Contents()))
	})
})
