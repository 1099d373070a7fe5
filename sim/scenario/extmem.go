package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
)

// stateFault names the fault in the middle of a run in which the switch keeps data in servers'
// memory.
type stateFault string

const (
	stateCalm        stateFault = "nothing"
	stateSwitchCrash stateFault = "switch crash"
	stateLinkCut     stateFault = "link cut"
	stateNICCrash    stateFault = "store's NIC crash"
	stateHang        stateFault = "store's NIC hang"
)

// midFault is a fault in the middle of a run. It begins when the clients or senders have been at
// work for the time `when`, and lasts for the time `down`.
type midFault struct {
	fault      stateFault
	victim     string // the name of a server; with stateSwitchCrash, "the switch"
	when, down time.Duration
}

// drawTimes draws when the fault begins and how long it lasts. Its victim is the server, or the
// switch if the fault is a crash of the switch.
func (f *midFault) drawTimes(d *draw, server string) {
	if f.victim = server; f.fault == stateSwitchCrash {
		f.victim = "the switch"
	}
	f.when = d.span(100*time.Microsecond, 10*time.Millisecond)
	f.down = one(d, d.span(100*time.Microsecond, 2*time.Millisecond), d.span(20*time.Millisecond, 500*time.Millisecond))
}

func (f *midFault) String() string {
	if f.fault == stateCalm {
		return string(f.fault)
	}
	return fmt.Sprintf("%s of %s at %v for %v", f.fault, f.victim, f.when, f.down)
}

// lenders are the memory servers ms0, ms1 and so on of a run in which the switch keeps data in
// servers' memory.
type lenders struct {
	env    *env
	group  string // name of the group of counters of the switch's hardened handler
	memory [][]byte
	down   bool // the switch is down after a crash
}

// lend starts the memory services of n servers with size bytes each.
func (l *lenders) lend(n, size int) {
	for i := range n {
		l.memory = append(l.memory, make([]byte, size))
		l.serve(i)
	}
}

func (l *lenders) serve(i int) {
	l.env.serveMemory(fmt.Sprintf("ms%d", i), memservice.Config{Buffer: l.memory[i]}, nil)
}

// disturb schedules the fault f. At its end over becomes true. If the switch was restarted, each
// host then broadcasts a frame, by which the switch learns the host's port.
func (l *lenders) disturb(f *midFault, over *bool) {
	if f.fault == stateCalm {
		return
	}
	l.env.rack.At(l.env.rack.Now().Add(f.when), func() {
		l.inject(f, func() {
			if *over = true; f.fault == stateSwitchCrash {
				l.env.rack.Announce()
			}
		})
	})
}

// build builds the rack of plan p, and starts n memory servers that lend size bytes each. The
// function wrap may put a node around each host and the switch, as simrack.Options.Wrap does.
func (l *lenders) build(p *wirePlan, clients, n, size int, rule string, wrap func(string, simnet.Node) simnet.Node) error {
	opt := p.rack
	opt.Wrap = wrapTwice(opt.Wrap, wrap)
	if err := l.env.build(lenderRack(clients, n, rule), opt); err != nil {
		return err
	}
	l.env.setFaults(p.rules)
	l.lend(n, size)
	return nil
}

// inject makes the fault f begin now, schedules its end, and returns the time of the end. At the
// end it calls over, unless that is nil.
func (l *lenders) inject(f *midFault, over func()) clock.Time {
	rack, h := l.env.rack, l.env.rack.Host(f.victim)
	var end func()
	switch f.fault {
	case stateSwitchCrash:
		l.down = true
		rack.CrashSwitch()
		end = func() {
			l.env.restartSwitch()
			l.down = false
		}
	case stateLinkCut:
		h.SetLink(false)
		end = func() { h.SetLink(true) }
	case stateNICCrash:
		h.Crash()
		end = func() {
			h.Restart()
			l.serve(int(f.victim[2] - '0'))
		}
	case stateHang:
		h.Hang()
		end = h.Resume
	case stateCalm:
		return rack.Now()
	}
	at := rack.Now().Add(f.down)
	rack.At(at, func() {
		end()
		if over != nil {
			over()
		}
	})
	return at
}

// counts returns the switch's counters of the group l.group by name: each is the sum over the
// published and the hardened handler (simrack.Rack.Counters).
func (l *lenders) counts() map[string]uint64 { return l.env.rack.Counters(l.group) }

func (l *lenders) count(name string) uint64 { return l.counts()[name] }

// accounted compares the counters of a switch that counts in servers' memory with each other, and
// with remote, the sum of all counters in this memory. before is the amount that earlier incarnations
// of the switch have counted and not dropped.
func (l *lenders) accounted(before, remote uint64) error {
	c := l.counts()
	amount, applied, inFlight := c["amount"], c["applied"], c["in_flight"]
	pending, uncertain, dropped, former := c["pending"], c["uncertain"], c["dropped"], c["former"]
	if sum := applied + pending + inFlight + uncertain + dropped; sum != amount {
		return fmt.Errorf("the switch has counted %d, and its counters account for %d: applied %d, pending %d, in flight %d, uncertain %d, dropped %d",
			amount, sum, applied, pending, inFlight, uncertain, dropped)
	}
	// The stores must have the amount that earlier incarnations of the switch have counted, except
	// the amount former: the most that those incarnations can have lost in crashes, by the switch's
	// journal.
	if low := before - former + applied; former > before || remote < low {
		return fmt.Errorf("the stores have %d, which is too little: earlier incarnations have counted %d and lost at most %d, and %d are applied",
			remote, before, former, applied)
	}
	if high := before + applied + inFlight + uncertain; remote > high {
		return fmt.Errorf("the stores have %d, which is more than %d of earlier incarnations, %d applied, %d in flight and %d uncertain",
			remote, before, applied, inFlight, uncertain)
	}
	return nil
}

// lenderRack is clientRack with a switch that has one rule.
func lenderRack(clients, servers int, rule string) string {
	return clientRack(clients, servers) + "switch:\n  program: swordbox\n  rules:\n    - " + rule + "\n"
}

// yamlRule returns the text of a rule in the form of a rack file.
func yamlRule(text string) string {
	words := strings.Fields(text)
	for i, w := range words {
		key, value, _ := strings.Cut(w, "=")
		words[i] = fmt.Sprintf("%s: %q", key, value)
	}
	return "{" + strings.Join(words, ", ") + "}"
}
