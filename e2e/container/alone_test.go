package container

import (
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// A rack inside of one container that has the image and nothing else, as docs/guide/ci.md shows it.
var _ = Describe("the image alone", func() {
	It("has a rack as long as the container runs, without being privileged", func() {
		Expect(fixture.Run("image")).To(fixture.HaveExited(0))
		box := fmt.Sprintf("e2e-%d-alone", os.Getpid())
		DeferCleanup(func() { docker("rm", "-f", box) })
		docker(
			"run", "-d", "--name", box, "--cap-add", "SYS_ADMIN", "--cap-add", "NET_ADMIN", "--cap-add", "NET_RAW", "--cap-add", "IPC_LOCK",
			"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--security-opt", "systempaths=unconfined",
			"rdmalab:dev", "up", "--stay",
		)
		Eventually(func() string { return docker("logs", box) }).WithTimeout(noticed).Should(ContainSubstring("verified 8 paths"))
		docker("exec", box, "/rdmalab", "inject", "loss", "5%", "--link", "cn0")
		Expect(docker("exec", box, "/rdmalab", "perf", "write_bw", "--from", "cn0", "--to", "ms0", "--size", "64KiB", "--iters", "100", "--verify", "-q")).
			To(ContainSubstring("verified: 6553600 bytes"))
		docker("stop", box)
		Expect(docker("inspect", "--format", "{{.State.ExitCode}}", box)).To(HavePrefix("0"))
		Expect(docker("logs", box)).To(ContainSubstring(`rack "default" is down`))
	})
})
