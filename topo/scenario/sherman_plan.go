package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// treeHosts is how many compute hosts the rack of tree histories has.
const treeHosts = 4

// treeRack is its description.
func treeRack(servers int) string {
	return fmt.Sprintf("name: sim\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n", servers-1, treeHosts-1)
}

// treePlan is what a seed draws for a tree.
type treePlan struct {
	servers, clients, rounds, keys int
	first, stride                  uint64 // of the keys
	skew                           float64
	// mix are the upper bounds of get, put, insert and scan in a draw from 0 to 1; the rest deletes.
	mix      [4]float64
	shape    layout.Shape
	locks    int // words of each server
	region   int // bytes of each server
	cache    int
	handOver int
	lease    time.Duration
	backOff  time.Duration
	links    string
	rules    []fault.Rule
	rack     simrack.Options
	params   rdmacm.Params
	// box is the switch section of the rack file; "": plain forwarding.
	box string

	what   treeDisaster
	victim string
	when   treeMoment
	after  int // times that this moment was reached
	late   time.Duration
	down   time.Duration
}

// treeDisaster is what happens to a machine in the middle of a run.
type treeDisaster uint8

const (
	treeNothing treeDisaster = iota
	treeClientCrash
	treeClientFreeze
	treeNICCrash
	treeMemoryCrash
	treeSwitchCrash
	treeLinkCut
)

var treeDisasters = [...]string{"nothing", "client crash", "client freeze", "crash of the NIC", "crash with all memory", "switch crash", "link cut"}

// treeMoment is what the victim has just done.
type treeMoment uint8

const (
	atAnything treeMoment = iota
	// atLock: it has a lock, or waits for the answer that says so.
	atLock
	// atSplit: it has written a new page that nothing leads to yet.
	atSplit
	// atWrite: its change is under way, and the release behind it.
	atWrite
)

var treeMoments = [...]string{"requests", "CAS", "pages written", "writes"}

func drawTree(e *env) *treePlan {
	d := e.draw
	p := &treePlan{
		servers: d.between(1, 3), clients: d.between(2, 10), rounds: d.between(10, 50), keys: one(d, 2, 8, 24, 48, 80),
		first: one(d, uint64(0), 1, 1<<40), stride: one(d, uint64(1), 7, 1<<32), skew: one(d, 0.0, 0.3, 0.7),
		lease: d.span(4*time.Millisecond, 20*time.Millisecond), locks: one(d, 4, 64, 512), region: 1 << 20,
	}
	p.mix = one(
		d, [4]float64{0.4, 0.7, 0.9, 0.95}, [4]float64{0.2, 0.3, 0.95, 0.98}, [4]float64{0.1, 0.9, 0.92, 0.95}, [4]float64{0.3, 0.4, 0.6, 0.8},
	)
	// Small pages split soon; the largest never do here.
	p.shape = layout.Shape{Page: one(d, 256, 256, 256, 512, 1024), Value: one(d, 16, 24, 40)}
	p.cache, p.handOver = one(d, 0, 0, 600, -1), one(d, 0, 2, -1)
	if d.chance(0.3) {
		p.backOff = d.span(time.Microsecond, 20*time.Microsecond)
	}
	p.drawLinks(d)
	p.rack = simrack.Options{Delay: d.span(200*time.Nanosecond, 5*time.Microsecond), Window: one(d, 4, 16, 64), Datagrams: d.chance(0.3)}
	e.v6 = d.chance(0.2)
	p.params = rdmacm.Params{PathMTU: one(d, verbs.MTU256, verbs.MTU1024), Timeout: uint8(d.between(6, 8)), RdAtomic: one(d, 2, 16)}
	p.drawDisaster(d)
	return p
}

// drawLinks draws what the links do to frames, and the memory to copies.
func (p *treePlan) drawLinks(d *draw) {
	hosts := treeHostNames(p.servers)
	p.links, p.rules = drawLinks(d, hosts)
	for _, h := range hosts[:p.servers] {
		if d.chance(0.6) {
			p.tear(h, 0.05+d.Float64()*0.5, d.span(0, 20*time.Microsecond))
		}
	}
}

func (p *treePlan) tear(host string, probability float64, pause time.Duration) {
	p.rules = append(p.rules, fault.Rule{Link: host, Kind: fault.Tear, Probability: probability, Delay: pause})
	p.links += "tear:" + host + " "
}

func treeHostNames(servers int) (out []string) {
	for i := range servers {
		out = append(out, fmt.Sprintf("ms%d", i))
	}
	for i := range treeHosts {
		out = append(out, fmt.Sprintf("cn%d", i))
	}
	return out
}

func (p *treePlan) drawDisaster(d *draw) {
	if d.chance(0.25) {
		return
	}
	p.what = one(d, treeClientCrash, treeClientCrash, treeClientCrash, treeClientFreeze, treeNICCrash, treeMemoryCrash, treeSwitchCrash, treeLinkCut)
	p.when = one(d, atAnything, atLock, atSplit, atWrite)
	p.after, p.late = d.between(1, p.clients*p.rounds/4+1), d.span(0, 12*time.Microsecond)
	if p.when == atSplit {
		p.after = d.between(1, 4)
	}
	p.down = d.span(time.Millisecond, 120*time.Millisecond)
	p.victim = fmt.Sprintf("cn%d", d.IntN(min(treeHosts, p.clients)))
	switch p.what {
	case treeNICCrash, treeMemoryCrash:
		p.victim = fmt.Sprintf("ms%d", d.IntN(p.servers))
	case treeLinkCut:
		p.victim = one(d, "ms0", "cn0", "cn1")
	case treeNothing, treeClientCrash, treeClientFreeze, treeSwitchCrash:
	}
}

// inSwitch has the switch keep the lock words; the rules come when the keys of the tables are known.
func (p *treePlan) inSwitch() {
	p.box = "switch:\n  program: swordbox\n"
	p.rack.Datagrams = true // the switch must be able to connect
}

// published makes the plan one of the published layout: copies are torn, nothing else is wrong.
func (p *treePlan) published(d *draw) {
	p.what, p.rules, p.links = treeNothing, nil, ""
	// Few keys that are read and written all the time: what is torn is soon seen.
	p.keys, p.skew, p.mix = one(d, 2, 8, 24), one(d, 0.5, 0.8), [4]float64{0.5, 0.9, 0.94, 0.97}
	p.clients, p.rounds = d.between(4, 10), d.between(30, 60)
	p.shape = layout.Shape{Kind: layout.Faithful, Page: one(d, 256, 512, 1024), Value: 40}
	for _, h := range treeHostNames(p.servers)[:p.servers] {
		p.tear(h, 0.2+d.Float64()*0.5, d.span(time.Microsecond, 20*time.Microsecond))
	}
}

// String is the plan on one line.
func (p *treePlan) String() string {
	s := fmt.Sprintf("%d servers, %d clients, %d keys, %d rounds, %v, %d lock words, lease %v; links %s", p.servers, p.clients, p.keys, p.rounds,
		p.shape.WithDefaults(), p.locks, p.lease, strings.TrimSpace(p.links))
	if p.box != "" {
		s += "; locks in the switch"
	}
	if p.what != treeNothing {
		s += fmt.Sprintf("; %s %s after %d %s and %v, for %v", treeDisasters[p.what], p.victim, p.after, treeMoments[p.when], p.late, p.down)
	}
	return s
}
