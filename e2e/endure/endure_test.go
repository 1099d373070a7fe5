package endure

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

// lasts is how long the load runs (RDMALAB_ENDURE, as 1h).
var lasts = func() time.Duration {
	text, set := os.LookupEnv("RDMALAB_ENDURE")
	if !set {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < parts*time.Second {
		panic("RDMALAB_ENDURE: " + text + " is not a time of at least 4 seconds, like 1h or 90s")
	}
	return d
}()

// settles bounds the wait until the daemons hold no more than before. An idle process collects its garbage every two
// minutes, and gives the memory back after that.
const settles = fixture.Patience + 3*time.Minute

// looksAtHeap: only a long run looks at the live heap, which is that of the last collection.
var looksAtHeap = lasts >= 10*time.Minute

// parts is the number of equal parts of the load. Between them the load stops, so that what the
// daemons hold can be compared. In one part the processors have other work, too.
const parts, busyPart = 4, 2

const rackFile = `
hosts:
  - {name: "cn[0-1]", role: compute}
  - {name: ms0, role: memory, memory: 16MiB}
`

// patience is the local ACK timeout code of the transfers, 0.5 s: with both processors busy, an answer
// that needs four processes may take longer than the default.
const patience = "17"

// faults are all healed by retransmission. Two rules may be on one link: a request is lost eight times
// in a row with a probability below (2 · 0.04)^8 = 2e-9.
var faults = []string{"loss 1%", "duplicate 2%", "reorder 1%", "corrupt 1%", "delay 200us --jitter 100us", "loss 2%"}

// load is what runs on the rack until stop.
type load struct {
	rack    *fixture.Rack
	server  string
	seed    uint64
	until   time.Time
	workers sync.WaitGroup
	// Numbers of transfers, of programs that ran, and of faults.
	transfers, programs, faults atomic.Int64
	// failed: a worker has failed, so the others end.
	failed atomic.Bool
}

// repeat calls f until the part is over.
func (l *load) repeat(f func(r *rand.Rand)) {
	l.seed++
	r := rand.New(rand.NewPCG(l.seed, 1))
	l.workers.Go(func() {
		defer GinkgoRecover()
		done := false
		defer func() { l.failed.CompareAndSwap(false, !done) }() // f does not return if it fails
		for time.Now().Before(l.until) && !l.failed.Load() {
			f(r)
		}
		done = true
	})
}

// part runs the load for a while.
func (l *load) part(d time.Duration) {
	GinkgoHelper()
	l.until = time.Now().Add(d)
	for _, from := range []string{"cn0", "cn1"} {
		l.repeat(func(*rand.Rand) {
			res := l.rack.Run("perf", "soak", "--from", from, "--to", "ms0", "--size", "64KiB", "--iters", "200", "--atomics", "2000", "--timeout", patience, "-q")
			Expect(res.Code).To(Equal(0), "a connection was lost or data were wrong: %v", res)
			l.transfers.Add(1)
		})
	}
	for _, host := range []string{"cn0", "cn1", "ms0"} {
		l.repeat(func(r *rand.Rand) { l.wild(host, r.Uint64()) })
	}
	l.repeat(func(r *rand.Rand) {
		l.rack.OK(append([]string{"inject"}, strings.Fields(faults[r.IntN(len(faults))]+" --for 3s --link "+[]string{"cn0", "cn1", "ms0"}[r.IntN(3)])...)...)
		l.faults.Add(1)
		time.Sleep(time.Second)
	})
	l.workers.Wait()
	Expect(l.failed.Load()).To(BeFalse(), "a worker has failed, see above")
	l.rack.OK("heal", "--all")
}

// wild runs a program that misbehaves. It may end in any way, but it must end.
func (l *load) wild(host string, seed uint64) {
	res := l.rack.Run("exec", host, "--", "/usr/bin/env", fmt.Sprintf("%s=%d", wildVariable, seed), serverVariable+"="+l.server, os.Args[0])
	Expect(res.Stderr).NotTo(ContainSubstring("panic:"), "%v", res)
	l.programs.Add(1)
}

// busy takes both processors until stop is called or the spec ends.
func busy() (stop func()) {
	GinkgoHelper()
	var all []*exec.Cmd
	for range 2 {
		c := exec.Command("/bin/sh", "-c", "while :; do :; done")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		Expect(c.Start()).To(Succeed())
		all = append(all, c)
	}
	stop = sync.OnceFunc(func() {
		for _, c := range all {
			_ = c.Process.Kill() // it has no other end
			_ = c.Wait()
		}
	})
	DeferCleanup(stop)
	return stop
}

var _ = Describe("a rack at full load, with faults and with programs that misbehave and die", func() {
	It("loses no connection, and its daemons stay as they were", func() {
		rack := fixture.Up(rackFile)
		l := &load{rack: rack, server: rack.Host("ms0").IPv4}
		l.part(lasts / parts) // pools and caches fill
		first := settled(rack)
		AddReportEntry("after part 1", fmt.Sprint(first))
		for i := 1; i < parts; i++ {
			stop := func() {}
			if i == busyPart {
				stop = busy()
			}
			l.part(lasts / parts)
			stop()
			var leaks []string
			Eventually(func() []string {
				leaks = nil
				rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0") // a request makes the service end what is dead
				for k, now := range usages(rack) {
					if m := more(first[k], now); m != "" {
						leaks = append(leaks, m)
					}
				}
				return leaks
			}, settles, "1s").Should(BeEmpty(), "after part %d of %d", i+1, parts)
			AddReportEntry(fmt.Sprintf("after part %d", i+1), fmt.Sprint(usages(rack)))
		}
		AddReportEntry("load", fmt.Sprintf("%d transfers, %d programs, %d faults in %v", l.transfers.Load(), l.programs.Load(), l.faults.Load(), lasts))
		Expect(l.transfers.Load()).To(BeNumerically(">=", 2*parts))
		Expect(l.programs.Load()).To(BeNumerically(">=", 3*parts))
		rack.OK("perf", "verify", "--from", "cn0", "--to", "ms0")
	})
})
