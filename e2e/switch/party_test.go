package switch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"
	"github.com/rdmalab/rdmalab/sim/history"
)

// party is a rack with lockers on all hosts, and their output.
type party struct {
	rack    *fixture.Rack
	server  netip.Addr
	records []record
	runs    int
	failed  []int64 // the times at which queue pairs have failed
}

// rackOf returns a rack file with four compute hosts and a memory server, behind a switch whose
// section is run.
func rackOf(section string) string {
	return `
hosts:
  - {name: "cn[0-3]", role: compute}
  - {name: ms0, role: memory, memory: 1MiB}
` + section
}

// newParty brings a rack up.
func newParty(section string) *party {
	GinkgoHelper()
	p := &party{rack: fixture.Up(rackOf(section))}
	p.server = netip.MustParseAddr(p.rack.Host("ms0").IPv4)
	return p
}

// member is a locker that was started.
type member struct {
	id    int
	in    io.WriteCloser // its standard input, behind the plan
	ended chan struct{}  // closed when its process has ended
	wait  func()         // returns when it has ended as planned
}

// start starts a locker on a host.
func (p *party) start(host string, plan lockPlan) *member {
	GinkgoHelper()
	plan.Server, plan.Seed = p.server, uint64(GinkgoRandomSeed())
	cmd := exec.Command(fixture.Binary(), "--rack", p.rack.Name, "exec", host, "--", "/usr/bin/env", peerVariable+"=1", os.Args[0])
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	in, err := cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	cmd.WaitDelay = time.Second // a locker that outlives the command must not block the spec
	Expect(cmd.Start()).To(Succeed())
	Expect(json.NewEncoder(in).Encode(plan)).To(Succeed())
	m := &member{id: plan.ID, in: in, ended: make(chan struct{})}
	go func() {
		defer close(m.ended)
		err = cmd.Wait()
	}()
	m.wait = func() {
		GinkgoHelper()
		select {
		case <-m.ended:
		case <-time.After(lifeLimit + 10*time.Second):
			_ = cmd.Process.Kill()
			<-m.ended
			p.stacks()
			Fail(fmt.Sprintf("locker %d on %s did not end: %s", plan.ID, host, &stderr))
		}
		if cmd.ProcessState.ExitCode() == exitHung {
			p.stacks()
		}
		last := p.read(plan.ID, &stdout)
		if plan.Die != never {
			Expect(err).To(HaveOccurred(), "locker %d should have died", plan.ID)
			return
		}
		Expect(err).NotTo(HaveOccurred(), "locker %d on %s: %s", plan.ID, host, &stderr)
		Expect(last.Done).To(BeNumerically(">=", plan.Rounds), "locker %d on %s: %s", plan.ID, host, &stderr)
	}
	return m
}

// stacks makes all daemons write the stacks of their goroutines to their logs, which a failed spec
// shows. The daemons end by that.
func (p *party) stacks() {
	GinkgoHelper()
	status := p.rack.Status()
	for _, n := range append(status.Hosts, status.Switch) {
		if n.PID > 1 {
			_ = syscall.Kill(n.PID, syscall.SIGQUIT) // a daemon that has ended has no stacks
		}
	}
}

// read keeps the records of a locker and returns the last one. The output of a locker that was
// killed may end in an incomplete line.
func (p *party) read(id int, r io.Reader) (last record) {
	GinkgoHelper()
	for dec := json.NewDecoder(r); ; {
		var x record
		err := dec.Decode(&x)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(x.Bad).To(BeEmpty(), "locker %d", id)
		if last = x; x.At != 0 {
			p.records = append(p.records, x)
		}
	}
	p.failed = append(p.failed, last.Failed...)
	GinkgoWriter.Printf("locker %d: %d rounds, its queue pair failed %d times, the longest operation took %v\n", id, last.Done, len(last.Failed), last.Longest)
	return last
}

// check reads the words at the end and checks that the history of all lockers is linearizable.
func (p *party) check() {
	GinkgoHelper()
	p.start("cn0", lockPlan{ID: 1000, Read: true}).wait()
	slices.SortStableFunc(p.records, func(a, b record) int { return int(a.At - b.At) })
	var log history.Log
	for w := range words {
		log.Add(fmt.Sprint(w), 0)
	}
	ids := map[[2]int]history.ID{}
	for _, r := range p.records {
		k := [2]int{r.Client, r.N}
		if r.End {
			log.Return(ids[k], r.Answer)
		} else {
			ids[k] = log.Invoke(r.Word, r.Client, history.Op{Kind: r.Kind, Value: r.Value, Compare: r.Cmp})
		}
	}
	AddReportEntry("history", fmt.Sprintf("%d operations, %d without an answer", log.Ops, log.Pending))
	Expect(log.Ops).To(BeNumerically(">", 100))
	Expect(log.Check(func(int) (uint64, bool) { return 0, false }, history.MostSteps)).To(Succeed())
}

// hosts are the hosts of the lockers.
var lockerHosts = []string{"cn0", "cn1", "cn2", "cn3"}

// busy waits until the server has received so many packets more.
func (p *party) busy(more uint64) {
	GinkgoHelper()
	packets := func() uint64 { return p.rack.Counters("ms0")["rcvd_pkts"] }
	before := packets()
	Eventually(packets, fixture.Patience, "20ms").Should(BeNumerically(">", before+more))
}

// gone crashes a part of the rack for a second, and returns when it is up again and lockers are at
// work.
func (p *party) gone(state func() string, part ...string) {
	GinkgoHelper()
	p.rack.OK(append(append([]string{"crash"}, part...), "--for", "1s")...)
	Eventually(state, fixture.Patience, "50ms").Should(Equal("up"))
	p.busy(200)
}

// felt returns how many queue pairs have failed between two times.
func (p *party) felt(from, to int64) (n int) {
	for _, t := range p.failed {
		if from <= t && t < to {
			n++
		}
	}
	return n
}

// run runs n lockers, two on each host, during a fault. Each does the given number of rounds, and
// with meanwhile further ones until it has returned. The locks of a locker that dies are released
// as soon as it has ended: until then no attempt of others to take them succeeds.
func (p *party) run(n, rounds int, change func(i int, plan *lockPlan), meanwhile func()) {
	GinkgoHelper()
	p.runs++
	var dying, living []*member
	dead := make(chan *member, n)
	for i := range n {
		plan := lockPlan{ID: 20*p.runs + i, Rounds: rounds, More: meanwhile != nil}
		if change != nil {
			change(i, &plan)
		}
		m := p.start(lockerHosts[i%len(lockerHosts)], plan)
		if plan.Die == never {
			living = append(living, m)
			continue
		}
		dying = append(dying, m)
		go func() {
			<-m.ended
			dead <- m
		}()
	}
	end := func() { // ends those that go on until their input ends
		for _, m := range living {
			_ = m.in.Close() // if it has ended, its input is closed
		}
	}
	defer end() // also if an expectation fails
	if meanwhile != nil {
		meanwhile()
	}
	if len(dying) > 0 {
		burier := p.start("cn3", lockPlan{ID: 20*p.runs + n, Bury: true})
		for range dying {
			m := <-dead
			m.wait()
			Expect(json.NewEncoder(burier.in).Encode(m.id)).To(Succeed())
		}
		Expect(burier.in.Close()).To(Succeed())
		burier.wait()
	}
	end()
	for _, m := range living {
		m.wait()
	}
}
