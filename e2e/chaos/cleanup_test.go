package chaos

import (
	"os"
	"os/exec"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

var _ = Describe("after kill -9", func() {
	DescribeTable("down leaves the machine as it was", func(victim func(*fixture.Rack) int) {
		before := fixture.Traces()
		rack := fixture.Up(four)
		Expect(syscall.Kill(victim(rack), syscall.SIGKILL)).To(Succeed())
		rack.OK("down")
		Expect(fixture.Traces()).To(Equal(before))
	},
		Entry("of a host", func(r *fixture.Rack) int { return r.Host("ms0").PID }),
		Entry("of the switch", func(r *fixture.Rack) int { return r.Status().Switch.PID }),
	)

	DescribeTable("of the controller in the middle of up, the next command clears everything", func(after time.Duration) {
		before := fixture.Traces()
		rack := fixture.New(four)
		cmd := exec.Command(fixture.Binary(), append([]string{"--rack", rack.Name, "up", "-f", rack.File}, fixture.UpFlags()...)...)
		Expect(cmd.Start()).To(Succeed())
		time.Sleep(after) // the moment is the parameter of the experiment
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, or finished before the signal
		if after%(2*time.Millisecond) == 0 {
			rack.OK("down")
		} else {
			Expect(rack.Up()).To(fixture.HaveExited(0))
			rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
			rack.OK("down")
		}
		// A process that the controller had just started may need a moment to notice the death.
		Eventually(fixture.Traces).Should(Equal(before))
	},
		Entry("after 5 ms", 5*time.Millisecond),
		Entry("after 20 ms", 20*time.Millisecond),
		Entry("after 41 ms", 41*time.Millisecond),
		Entry("after 80 ms", 80*time.Millisecond),
		Entry("after 151 ms", 151*time.Millisecond),
		Entry("after 300 ms", 300*time.Millisecond),
	)

	It("namespaces and mounts of other programs stay", func() {
		dir := GinkgoT().TempDir()
		Expect(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")).To(Succeed())
		DeferCleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
		Expect(os.WriteFile(dir+"/keep", nil, 0o600)).To(Succeed())
		foreign := exec.Command("/bin/sleep", "60")
		foreign.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		Expect(foreign.Start()).To(Succeed())
		DeferCleanup(func() { _ = foreign.Process.Kill(); _ = foreign.Wait() })
		rack := fixture.Up(four)
		rack.OK("down")
		// A killed child accepts signals while it is a zombie, so Wait4 shows whether it has ended.
		pid, err := syscall.Wait4(foreign.Process.Pid, nil, syscall.WNOHANG, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(pid).To(BeZero(), "the foreign process has ended")
		Expect(dir + "/keep").To(BeAnExistingFile())
	})
})
