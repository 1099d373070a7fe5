package chaos

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/rackfile"
)

// inOneProcess is a compact rack.
const inOneProcess = `
daemons: shared
hosts:
  - {name: cn0, role: compute}
  - {name: cn1, role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
  - {name: ms1, role: memory, memory: 16MiB}
`

// Containers cannot be hosts of a compact rack: up refuses them.
var _ = fixture.InContainers() || Describe("a compact rack", Ordered, func() {
	var rack *fixture.Rack
	var paths rackfile.Paths
	BeforeAll(func() {
		rack = fixture.Up(inOneProcess)
		paths = rackfile.Paths{Dir: filepath.Join(rackfile.StateRoot, rack.Name)}
	})

	// pair returns a compute and a memory host other than host.
	pair := func(host string) (from, to string) {
		from, to = "cn0", "ms0"
		switch host {
		case "cn0":
			from = "cn1"
		case "ms0":
			to = "ms1"
		}
		return from, to
	}
	verify := func(from, to string) { rack.OK("perf", "verify", "--from", from, "--to", to) }

	// while calls f, which ends or stops the NIC of a host, and checks that the others work meanwhile,
	// before and after.
	while := func(host string, f func()) {
		GinkgoHelper()
		from, to := pair(host)
		done := make(chan fixture.Result, 1)
		go func() {
			defer GinkgoRecover()
			done <- rack.Run("perf", "write_bw", "--from", from, "--to", to, "--size", "4KiB", "--iters", "3000", "--verify")
		}()
		f()
		verify(from, to)
		var r fixture.Result
		Eventually(done, fixture.Patience).Should(Receive(&r))
		Expect(r).To(fixture.HaveExited(0))
	}

	for _, host := range []string{"cn0", "ms0", "cn1", "ms1"} {
		It("goes on when the NIC of "+host+" panics, and says why it has", func() {
			while(host, func() {
				rack.PanicNIC(host)
				Eventually(rack.State(host), fixture.Patience).Should(Equal("crashed"))
			})
			Expect(rack.Run("status").Stdout).To(ContainSubstring(host + ": the NIC panicked: planted by a test"))
			Expect(rack.OK("logs", host)).To(And(ContainSubstring("planted by a test"), ContainSubstring("goroutine")))
			rack.OK("restart", host)
			Expect(rack.Run("status").Stdout).NotTo(ContainSubstring("panicked"))
		})

		It("goes on when "+host+" hangs, and when it is killed", func() {
			while(host, func() { rack.OK("hang", host) })
			rack.OK("resume", host)
			while(host, func() {
				Expect(syscall.Kill(rack.Host(host).PID, syscall.SIGKILL)).To(Succeed())
				Eventually(rack.State(host), fixture.Patience).Should(Equal("crashed"))
			})
			rack.OK("restart", host)
		})
	}

	It("loses power when its process is killed, and works again after restarts", func() {
		pids, err := filepath.Glob("/proc/[0-9]*/cmdline")
		Expect(err).NotTo(HaveOccurred())
		killed := 0
		for _, file := range pids {
			line, err := os.ReadFile(file)
			if err != nil || strings.TrimRight(strings.ReplaceAll(string(line), "\x00", " "), " ") != "rdmalab daemons --rack-dir "+paths.Dir {
				continue
			}
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			Expect(err).NotTo(HaveOccurred())
			Expect(syscall.Kill(pid, syscall.SIGKILL)).To(Succeed())
			killed++
		}
		Expect(killed).To(Equal(1))
		nodes := []string{"switch", "cn0", "cn1", "ms0", "ms1"}
		for _, node := range nodes[1:] {
			Eventually(rack.State(node), fixture.Patience).Should(Equal("crashed"))
		}
		for _, node := range nodes {
			rack.OK("restart", node)
		}
		for _, from := range []string{"cn0", "cn1"} {
			verify(from, "ms0")
			verify(from, "ms1")
		}
	})
})
