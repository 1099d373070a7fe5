package sherman_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
)

const (
	// longLease is longer than any delay of an operation on a busy machine, so that the duration of
	// an operation shows whether it waited for a lease, and than what a spec does before it looks at
	// the lock of a client that has died: it starts three gardeners.
	longLease = 15 * time.Second
	// fenceTime bounds the time after the lease: the server ends the dead client's connections, the
	// lock is taken over, and the operation is done. This takes milliseconds on a machine that is
	// not busy.
	fenceTime = 2500 * time.Millisecond
)

// employed is a running gardener process; see orders.
type employed struct {
	host string
	in   io.WriteCloser
	wait func() error // waits for its end

	mu     sync.Mutex
	stdout bytes.Buffer
	stderr bytes.Buffer
}

// Write appends to the gardener's output.
func (e *employed) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stdout.Write(b)
}

// said returns the lines of the gardener's output so far.
func (e *employed) said() (list []said) {
	e.mu.Lock()
	defer e.mu.Unlock()
	dec := json.NewDecoder(bytes.NewReader(e.stdout.Bytes()))
	for {
		var s said
		if dec.Decode(&s) != nil { // the end, or an incomplete line
			return list
		}
		list = append(list, s)
	}
}

// ops returns the operations that the gardener has completed.
func (e *employed) ops() (list []said) {
	for _, s := range e.said() {
		if s.What == "op" {
			list = append(list, s)
		}
	}
	return list
}

// says waits until the gardener's output has a line of a kind, and returns it.
func (e *employed) says(what string) (found said) {
	GinkgoHelper()
	Eventually(func() bool {
		for _, s := range e.said() {
			if found = s; s.What == what {
				return true
			}
		}
		return false
	}, fixture.Patience, "5ms").Should(BeTrue(), "%s never said %q: %s", e.host, what, &e.stderr)
	return found
}

// tell sends the gardener a line, at which it continues or ends.
func (e *employed) tell() {
	GinkgoHelper()
	Expect(io.WriteString(e.in, "\n")).To(Equal(1))
}

// ends ends a gardener that works until it is told to end.
func (e *employed) ends() {
	GinkgoHelper()
	e.tell()
	Expect(e.wait()).To(Succeed(), "%s", &e.stderr)
}

// employ starts a gardener on a host and waits until it is ready.
func employ(rack *fixture.Rack, host string, o orders) *employed {
	GinkgoHelper()
	for _, ms := range []string{"ms0", "ms1"} {
		o.Servers = append(o.Servers, netip.MustParseAddr(rack.Host(ms).IPv4))
	}
	o.Lease = longLease
	first, err := json.Marshal(o)
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.Command(fixture.Binary(), "--rack", rack.Name, "exec", host, "--", "/usr/bin/env", gardenerVariable+"=1", os.Args[0])
	e := &employed{host: host}
	e.in, err = cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	cmd.Stdout, cmd.Stderr = e, &e.stderr
	cmd.WaitDelay = time.Second // a child that outlives the command must not block the spec
	Expect(cmd.Start()).To(Succeed())
	ended := make(chan struct{})
	var how error
	go func() {
		defer close(ended)
		how = cmd.Wait()
	}()
	e.wait = func() error {
		select {
		case <-ended:
			return how
		case <-time.After(fixture.Patience):
			return fmt.Errorf("the gardener on %s has not ended", host)
		}
	}
	DeferCleanup(func() {
		_ = e.in.Close() // ends the gardener if the spec did not
		if e.wait() != nil {
			_ = cmd.Process.Kill()
		}
	})
	_, err = fmt.Fprintf(e.in, "%s\n", first)
	Expect(err).NotTo(HaveOccurred())
	e.says("ready")
	return e
}

// held is the one lock that a client on cn1 holds, as `sherman stat` on another host reports it. On
// a busy machine locks of working clients may be reported as well, because they do not change for
// some time.
func held(rack *fixture.Rack, from string) lockStat {
	GinkgoHelper()
	var s stat
	rack.JSON(&s, "sherman", "stat", "--from", from)
	s.Locks = slices.DeleteFunc(s.Locks, func(l lockStat) bool { return l.Host != "cn1" })
	Expect(s.Locks).To(HaveLen(1))
	return s.Locks[0]
}

var _ = Describe("a client of the tree Sherman that is killed", func() {
	const near, far = 1000, 15000 // keys of different leaves

	// killed starts a client that stops at a place in an operation on keys from near on, and
	// returns the line that it wrote there.
	killed := func(rack *fixture.Rack, at place, do string, n int) (*employed, said) {
		GinkgoHelper()
		e := employ(rack, "cn1", orders{Do: do, Key: near, N: n, Die: at})
		e.tell()
		return e, e.says(string(at))
	}
	dies := func(e *employed) int64 {
		GinkgoHelper()
		e.tell()
		Expect(e.wait()).NotTo(Succeed())
		return monotonic()
	}

	It("delays clients that need its lock by the lease and the fence, and no others; meanwhile stat names it", func() {
		rack := fixture.Up(forest)
		rack.OK("sherman", "start", "--lease", longLease.String())
		rack.OK("sherman", "load", "--keys", "20000")
		victim, at := killed(rack, inside, "put", 1)

		By("naming the owner, whose client runs and makes no progress")
		alive := held(rack, "cn0")
		Expect([]any{alive.Owner, alive.Acquisition, alive.Alive}).To(Equal([]any{at.Owner, at.Acquisition, true}))
		Expect(alive.Left).To(And(BeNumerically(">", 0), BeNumerically("<=", float64(longLease.Milliseconds()))))

		dead := dies(victim)
		needs := []*employed{employ(rack, "cn0", orders{Do: "put", Key: near, Warm: 1}), employ(rack, "cn2", orders{Do: "put", Key: near, Warm: 1})}
		other := employ(rack, "cn2", orders{Do: "put", Key: far, Warm: 1})

		By("naming the owner and what is left of the lease while others wait")
		gone := held(rack, "cn2")
		Expect([]any{gone.Owner, gone.Acquisition}).To(Equal([]any{at.Owner, at.Acquisition}))
		Expect(gone.Left).To(And(BeNumerically(">", 0), BeNumerically("<=", float64(longLease.Milliseconds()))))
		Expect(held(rack, "cn2").Left).To(BeNumerically("<", gone.Left))
		Expect(rack.OK("sherman", "stat", "--from", "cn0")).To(MatchRegexp(
			`ms[01]/\d+ +\d+ +cn1 +\w+ +[0-9.]+ ms +[0-9.]+ of %d\.0 ms`, longLease.Milliseconds()))

		By("letting those who wait go on when the lease is over")
		for _, n := range needs {
			Eventually(func() int { return len(n.ops()) }, fixture.Patience, "20ms").Should(BeNumerically(">", 20))
		}
		for _, e := range append(needs, other) {
			e.ends()
		}
		first := int64(1) << 62
		for _, n := range needs {
			var longest said
			for _, op := range n.ops() {
				Expect(op.Err).To(BeEmpty())
				if op.took() > longest.took() {
					longest = op
				}
				first = min(first, op.To)
			}
			AddReportEntry("delay on "+n.host, longest.took().String())
			Expect(longest.took()).To(BeNumerically("<=", longLease+fenceTime))
		}
		Expect(first).To(BeNumerically(">", dead), "an operation under the dead's lock ended before the death")
		var waited time.Duration
		for _, n := range needs {
			waited = max(waited, n.ops()[0].took())
		}
		Expect(waited).To(BeNumerically(">=", longLease), "the lock was taken before the lease was over")
		Expect(other.ops()).NotTo(BeEmpty())
		for _, op := range other.ops() {
			Expect(op.Err).To(BeEmpty())
			Expect(op.took()).To(BeNumerically("<", longLease), "an operation that needed another lock was delayed")
		}

		By("leaving a valid tree, no lock, and the value that was written last")
		Expect(rack.OK("sherman", "stat")).To(ContainSubstring("no lock is held"))
		Expect(rack.OK("sherman", "get", "1000")).To(Equal("gardener\n"))
		Expect(whole(rack, 0).Tree.Content.Keys).To(Equal(20000))
	})

	It("leaves a split half done, and a tree that the check accepts", func() {
		rack := fixture.Up(forest)
		plant(rack, "--page", "256", "--fresh")
		By("with a new page that no page names: the client that needs the lock does the split again")
		victim, _ := killed(rack, halfSplit, "insert", 200)
		before := len(victim.ops())
		dies(victim)
		held(rack, "cn0")
		rack.OK("sherman", "insert", "1500", "8 bytes.", "--from", "cn0")
		v := whole(rack, 1)
		Expect(v.Tree.Content.Keys).To(Equal(before + 1))
		Expect(v.Tree.Unreachable).To(Equal(1))

		By("the split of the only page leaves a new root to the next writer, which has the memory for it")
		rack.OK("sherman", "insert", "1501", "8 bytes.", "--from", "cn0")
		v = whole(rack, 1)
		Expect(v.Tree.HalfSplits).To(BeZero())
		Expect(v.Tree.Content.Keys).To(Equal(before + 2))

		By("with a page that the one above does not know: no lock is left, and the next one puts it in")
		victim = employ(rack, "cn1", orders{Do: "insert", Key: 2000, N: 200, Die: unadopted})
		victim.tell()
		victim.says(string(unadopted))
		second := len(victim.ops()) // the operation that split is not among them, and is done
		dies(victim)
		Expect(rack.OK("sherman", "stat")).To(ContainSubstring("no lock is held"))
		v = whole(rack, 1)
		Expect(v.Tree.HalfSplits).To(Equal(1))
		Expect(v.Tree.Content.Keys).To(Equal(before + second + 3))
		rack.OK("sherman", "put", fmt.Sprint(2000+second), "8 bytes.", "--from", "cn0") // the client finds the page by its left neighbour
		v = whole(rack, 1)
		Expect(v.Tree.HalfSplits).To(BeZero())
		Expect(v.Tree.Content.Keys).To(Equal(before + second + 3))
	})
})
