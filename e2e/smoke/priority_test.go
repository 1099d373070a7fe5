package smoke

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// realtimeAllowed reports whether this process may take real-time priority. The thread that tries it
// ends.
func realtimeAllowed() bool {
	tried := make(chan bool)
	go func() {
		runtime.LockOSThread() // without Unlock, so that no other goroutine gets the thread
		tried <- unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}, 0) == nil
	}()
	return <-tried
}

// policies returns how many threads of a process have each scheduling policy. A thread may end
// meanwhile.
func policies(pid int) map[uint32]int {
	GinkgoHelper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	Expect(err).NotTo(HaveOccurred())
	n := map[uint32]int{}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		Expect(err).NotTo(HaveOccurred())
		if a, err := unix.SchedGetAttr(tid, 0); err == nil {
			n[a.Policy]++
		}
	}
	return n
}

var _ = Describe("a rack file with `priority: realtime`", func() {
	It("gives the daemons that priority, and what users start on hosts none", func() {
		before := fixture.Traces()
		rack := fixture.New("priority: realtime\n" + fixture.Small)
		up := rack.Up()
		if fixture.InContainers() {
			Expect(up).To(fixture.HaveExited(1))
			Expect(up.Stderr).To(ContainSubstring("take `priority: normal`"))
			return
		}
		if !realtimeAllowed() {
			Expect(up).To(fixture.HaveExited(1))
			Expect(up.Stderr).To(ContainSubstring("the kernel refuses `priority: realtime`"))
			Expect(fixture.Traces()).To(Equal(before))
			return
		}
		Expect(up).To(fixture.HaveExited(0))
		daemons := func() {
			GinkgoHelper()
			status := rack.Status()
			for _, n := range append(status.Hosts, status.Switch) {
				Expect(policies(n.PID)).To(And(HaveLen(1), HaveKey(uint32(unix.SCHED_RR))), n.Name)
			}
		}
		daemons()
		rack.OK("crash", "ms0")
		rack.OK("restart", "ms0")
		daemons()
		// Field 41 of the file is the scheduling policy.
		Expect(rack.OK("exec", "cn0", "--", "cut", "-d ", "-f41", "/proc/self/stat")).To(Equal("0\n"))
		rack.OK("perf", "soak", "--from", "cn0", "--to", "ms0", "--iters", "500", "--atomics", "500", "-q")
	})
})
