package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The rack of lock histories: 16 clients, two on each compute host, and 4 words on two memory
// servers.
const (
	lockHosts   = 8
	lockClients = 16
	lockWords   = 4
)

// wordKind says how clients use a word.
type wordKind uint8

const (
	// tagLock is a lock whose word is the random tag (the stamp) of its owner, or 0 when it is
	// free.
	tagLock wordKind = iota
	// bitLock is a lock whose word is 1 when a client has it, or 0 when it is free.
	bitLock
	// counter is a word that clients change only by FETCH_ADD, and also READ.
	counter
	// register is a word on which clients do all operations: CAS, FETCH_ADD, READ and WRITE.
	register
)

var wordKinds = [...]string{"tag", "bit", "counter", "register"}

// wordPlan is the kind of a word and the place of its memory.
type wordPlan struct {
	kind   wordKind
	server int
	device bool // the word is in device memory, that of the server's NIC
}

type machineFault uint8

const (
	noFault machineFault = iota
	clientCrash
	serverCrash
	switchCrash
	linkCut
)

var machineFaults = [...]string{"nothing", "client crash", "server crash", "switch crash", "link cut"}

// lockPlan has the choices that the seed makes for a run of lock histories.
type lockPlan struct {
	words  [lockWords]wordPlan
	hops   [4]string // names of the links' faults, by hop (see hopNames)
	rules  []fault.Rule
	rack   simrack.Options
	params rdmacm.Params
	wrap   bool // first PSNs are at most 30 below 2^24, so that PSNs soon wrap around
	rounds int  // rounds of each client

	what     machineFault
	victim   string        // the host that fails
	after    int           // number of requests of the victim, or of all clients, before the fault
	step     crashStep     // the stage that a request has reached when its client crashes
	down     time.Duration // duration of the fault
	survives bool          // host memory survives the crash of its server
	again    bool          // the host that crashed uses the same QPNs, keys and addresses again
}

// hopNames are the names of the four hops of a request and its answer, in the order of
// lockPlan.hops.
var hopNames = [...]string{"client→switch", "switch→server", "server→switch", "switch→client"}

func (p *lockPlan) draw(e *env) *lockPlan {
	d := e.draw
	*p = lockPlan{rounds: d.between(5, 20)}
	acks := one(d, 0, 0, 1, 4, 16)
	for i := range p.words {
		p.words[i] = wordPlan{kind: one(d, tagLock, tagLock, bitLock, counter, register), server: i % 2, device: i >= 2}
		if d.chance(0.2) {
			p.words[i].server = 0 // both words in device memory may be on one server; then they have the same address in different regions
		}
	}
	p.drawHops(d)
	p.rack = simrack.Options{
		Delay: d.span(200*time.Nanosecond, 5*time.Microsecond), Window: one(d, 4, 16, 64), Datagrams: d.chance(0.5), Recovery: simrack.Recovery{Acks: acks},
	}
	e.widen(&p.rack)
	if p.wrap = d.chance(0.5); p.wrap {
		p.rack.FirstPSN = func(r *rand.Rand) wire.PSN { return wire.PSN(0).Add(-(&draw{r}).between(1, 30)) }
	}
	e.v6 = d.chance(0.3)
	p.params = rdmacm.Params{
		PathMTU: one(d, verbs.MTU256, verbs.MTU512, verbs.MTU1024), Timeout: uint8(one(d, 10, 10, 11, 14)), RdAtomic: one(d, 1, 4, 16),
	}
	p.drawFault(d)
	return p
}

// drawHops draws faults for each of the four hops independently.
func (p *lockPlan) drawHops(d *draw) {
	for hop := range p.hops {
		var rules []fault.Rule
		some := func(k fault.Kind, most float64) {
			r := fault.Rule{Kind: k, Probability: 0.002 + d.Float64()*most}
			if k == fault.Reorder {
				r.Delay = d.span(time.Microsecond, 60*time.Microsecond)
			}
			rules = append(rules, r)
		}
		p.hops[hop] = one(d, "none", "none", "loss", "duplicate", "reorder", "corrupt", "all")
		switch p.hops[hop] {
		case "loss":
			some(fault.Loss, 0.04)
		case "duplicate":
			some(fault.Duplicate, 0.3)
		case "reorder":
			some(fault.Reorder, 0.1)
		case "corrupt":
			some(fault.Corrupt, 0.04)
		case "all":
			some(fault.Loss, 0.02)
			some(fault.Duplicate, 0.1)
			some(fault.Reorder, 0.05)
			some(fault.Corrupt, 0.02)
		}
		for _, link := range hopLinks(hop) {
			for _, r := range rules {
				r.Link, r.Dir = link, fault.Up
				if hop == 1 || hop == 3 {
					r.Dir = fault.Down
				}
				p.rules = append(p.rules, r)
			}
		}
	}
}

func hopLinks(hop int) []string {
	if hop == 1 || hop == 2 {
		return []string{"ms0", "ms1"}
	}
	return numbered("cn", lockHosts)
}

func (p *lockPlan) drawFault(d *draw) {
	p.what = one(d, noFault, noFault, clientCrash, clientCrash, clientCrash, serverCrash, serverCrash, switchCrash, switchCrash, linkCut, linkCut)
	p.after = d.between(1, 80)
	p.victim = fmt.Sprintf("cn%d", d.IntN(lockHosts))
	// Short faults end before the retry limit; long ones may last longer than it.
	p.down = one(d, d.span(100*time.Microsecond, 2*time.Millisecond), d.span(40*time.Millisecond, 300*time.Millisecond))
	p.survives = d.chance(0.5)
	// With `again`, a host that restarts uses the QPNs, keys and addresses of its first
	// incarnation. That requires random first PSNs, and connections that are not made by datagrams,
	// because the communication IDs in these would be the same, too.
	p.again = d.chance(0.8) && !p.wrap && !p.rack.Datagrams
	switch p.what {
	case clientCrash:
		p.step = crashStep(d.IntN(int(crashSteps)))
	case serverCrash:
		p.victim, p.after = "ms0", d.between(50, 1500)
	case switchCrash:
		p.after = d.between(50, 1500)
	case linkCut:
		p.victim, p.after = one(d, p.victim, "ms0"), d.between(20, 1000)
	case noFault:
	}
}

func (p *lockPlan) String() string {
	var b strings.Builder
	for i, w := range p.words {
		where := "host"
		if w.device {
			where = "device"
		}
		fmt.Fprintf(&b, "w%d=%s@ms%d/%s ", i, wordKinds[w.kind], w.server, where)
	}
	for i, h := range p.hops {
		if h != "none" {
			fmt.Fprintf(&b, "%s=%s ", hopNames[i], h)
		}
	}
	fmt.Fprintf(&b, "mtu=%d window=%d delay=%v timeout=%d rdatomic=%d wrap=%v acks=%d cm=%v rounds=%d %s",
		p.params.PathMTU, p.rack.Window, p.rack.Delay, p.params.Timeout, p.params.RdAtomic, p.wrap, p.rack.Recovery.Acks, p.rack.Datagrams, p.rounds, machineFaults[p.what])
	switch p.what {
	case clientCrash:
		fmt.Fprintf(&b, " of %s at request %d, %v, same numbers again=%v", p.victim, p.after, p.step, p.again)
	case serverCrash:
		fmt.Fprintf(&b, " of ms0 for %v at request %d, host memory survives=%v, same numbers again=%v", p.down, p.after, p.survives, p.again)
	case switchCrash:
		fmt.Fprintf(&b, " for %v at request %d", p.down, p.after)
	case linkCut:
		fmt.Fprintf(&b, " of %s for %v at request %d", p.victim, p.down, p.after)
	case noFault:
	}
	return b.String()
}

// crashStep is the stage that the victim's request has reached when the victim dies.
type crashStep uint8

const (
	// beforeSwitch: the victim has sent the request, which does not arrive at the switch.
	beforeSwitch crashStep = iota
	// atSwitch: the request has arrived at the switch.
	atSwitch
	// atServer: the request has arrived at the server, which has executed it.
	atServer
	// answerAtSwitch: the server's answer to the request has arrived at the switch.
	answerAtSwitch
	// answered: the answer to the request has arrived at the victim.
	answered
	crashSteps
)

var crashStepNames = [...]string{"before the switch", "at the switch", "at the server", "answer at the switch", "answered"}

func (s crashStep) String() string { return crashStepNames[s] }

// trigger follows the packets on all links and calls fire once. With a victim, it does so when the
// victim's n-th request has reached the stage step; without one, when all clients together have
// sent n requests. The switch may give a request another queue pair and PSN, by which trigger could
// not recognise it. So trigger assumes that the next request that leaves the switch is the
// victim's, and that the next answer of a server is the answer to it.
type trigger struct {
	victim string // a host whose requests are counted; "" means all clients
	n      int
	step   crashStep
	fire   func()

	seen  int
	stage crashStep
	hot   bool
	done  bool
	frame wire.Frame
}

func (t *trigger) see(ev *simnet.Event) {
	if t.done || wire.ParseFrame(ev.Frame, &t.frame) != nil {
		return
	}
	request := t.frame.BTH.Opcode.Is(wire.OpRequest) && t.frame.BTH.DestQP > 1
	link, up := ev.Link(), ev.Dir() == fault.Up
	client := len(link) > 0 && link[0] == 'c'
	if !t.hot {
		if request && client && up && ev.Kind == simnet.Sent && (t.victim == "" || link == t.victim) {
			if t.seen++; t.seen == t.n {
				t.hot, t.stage = true, beforeSwitch
			}
		}
	} else if ev.Kind == simnet.Delivered {
		t.follow(link, up, client, request)
	}
	if t.hot && t.stage >= t.step {
		t.done = true
		t.fire()
	}
}

// follow is called for each packet that has arrived. It moves to the next stage if the packet is
// the one for which the present stage waits.
func (t *trigger) follow(link string, up, client, request bool) {
	switch {
	case t.stage == beforeSwitch && link == t.victim && up && request,
		t.stage == atSwitch && !client && !up && request,
		t.stage == atServer && !client && up && !request,
		t.stage == answerAtSwitch && link == t.victim && !up && !request:
		t.stage++
	}
}
