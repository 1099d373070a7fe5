package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// treePlan has the choices that the seed makes for a run of the tree.
type treePlan struct {
	treeWork
	// faults are the planned faults. The first is injected at its moment. Each further one is
	// injected when its pause has passed since the end of the fault before it; a negative pause
	// means before that end.
	faults []treeFaultAt
	shape  layout.Shape
	locks  int // number of lock words on each server
	region int // bytes of memory of each server
	// mixes has the names of the mixes of the run, separated by commas.
	mixes string
	// loses: true if the first fault begins when a certain request of the victim is lost. The
	// victim's NIC sends the request again later.
	loses bool
	// small: true if there are hardly more pages than the keys need, so that pages are reused. Then
	// the clients use only a few adjacent keys at a time; near is the number of these (see
	// treeRun.wave).
	small bool
	near  int
	// lostSearch: true if the tree has the published search, which does not find a key while its
	// record is written.
	lostSearch bool
	// step is the design of the tree; its zero value is Sherman.
	step sherman.Step
	// cache, handOver, lease and backOff are the fields CacheBytes, HandOver, Lease and BackOff of
	// sherman.NodeConfig.
	cache    int
	handOver int
	lease    time.Duration
	backOff  time.Duration
	wirePlan
	// box is the switch section of the rack file; "" means that the switch only forwards.
	box string
}

// treeWork describes the servers, the clients and their operations.
type treeWork struct {
	servers, clients, rounds, keys int
	first, stride                  uint64  // the first key, and the distance from one key to the next
	skew                           float64 // probability with which an operation uses the first key
	// mix has the upper bounds of get, put, insert and scan for a random number from 0 to 1. A
	// number above all four is a delete.
	mix [4]float64
	// pace is the mean pause between two operations of a client; 0 means none.
	pace time.Duration
}

type treeFaultAt struct {
	what   treeFault
	victim string
	pause  time.Duration
	when   treeMoment
	after  int           // number of requests of the kind when that are sent before the fault begins
	late   time.Duration // time from the last of these requests to the fault
	down   time.Duration
}

// treeFault is the kind of fault of a machine, a link or the switch during a run.
type treeFault uint8

// treeClientHang and treeServerHang are hangs of a host's NIC alone.
const (
	treeNothing treeFault = iota
	treeClientCrash
	treeClientHang
	treeNICCrash
	treeMemoryCrash
	treeSwitchCrash
	treeLinkCut
	treeServerHang
	treeSwitchHang
	// treeHostHang is a hang of a host's NIC and applications.
	treeHostHang
)

var treeFaults = [...]string{"nothing", "client crash", "client hang", "crash of the NIC", "crash with all memory", "switch crash", "link cut", "hang of the NIC", "switch hang", "hang of the host"}

// treeMoment is the kind of request after which a fault begins.
type treeMoment uint8

const (
	atAnything treeMoment = iota
	// atLock: the victim has sent a CAS for a lock, and may have got the lock.
	atLock
	// atSplit: the victim has written a new page, which no other page names yet.
	atSplit
	// atWrite: the victim's change of a page is in flight, and with it the release of the lock.
	atWrite
)

var treeMoments = [...]string{"requests", "CAS", "pages written", "writes"}

func (p *treePlan) draw(e *env) *treePlan {
	d := e.draw
	*p = treePlan{
		treeWork: treeWork{
			servers: d.between(1, 3), clients: d.between(2, 10), rounds: d.between(10, 50), keys: one(d, 2, 8, 24, 48, 80),
			first: one(d, uint64(0), 1, 1<<40, layout.MaxKey), stride: one(d, uint64(1), 7, 1<<32), skew: one(d, 0.0, 0.3, 0.7),
		},
		lease: d.span(4*time.Millisecond, 20*time.Millisecond), locks: one(d, 4, 64, 512), region: 1 << 20,
	}
	p.mix = one(
		d, [4]float64{0.4, 0.7, 0.9, 0.95}, [4]float64{0.2, 0.3, 0.95, 0.98}, [4]float64{0.1, 0.9, 0.92, 0.95}, [4]float64{0.3, 0.4, 0.6, 0.8},
	)
	// Small pages split soon; the largest ones never do in a run of this length.
	p.shape = layout.Shape{Page: one(d, 256, 256, 256, 512, 1024), Value: one(d, 16, 24, 40, layout.MaxHardenedValue)}
	p.cache, p.handOver = one(d, 0, 0, 600, -1), one(d, 0, 2, -1)
	if d.chance(0.3) {
		p.backOff = d.span(time.Microsecond, 20*time.Microsecond)
	}
	wear, published := d.chance(0.2), d.chance(0.1)
	if wear {
		p.wear(d)
	}
	p.drawWire(e, passiveHosts(p.servers), memoryServers(p.servers), 0.6)
	e.widen(&p.rack)
	if published && !wear {
		p.publishedCalm(d)
		return p
	}
	if d.chance(0.15) {
		p.mixLate(d)
	}
	p.drawFaults(d)
	return p
}

// wear makes the memory small, and clients delete many keys, so that pages are merged and reused.
func (p *treePlan) wear(d *draw) {
	p.shape = one(
		d, layout.Shape{Page: 256, Value: 40}, layout.Shape{Page: 256, Value: layout.MaxHardenedValue}, layout.Shape{Page: 256, Value: 16},
		layout.Shape{Page: 512, Value: 40}, layout.Shape{Page: 512, Value: 16}, layout.Shape{Page: 1024, Value: 24},
	)
	slots := p.shape.Slots(0) // 3 to 15. With more records in a leaf, the run needs more keys and operations
	p.small, p.skew, p.near = true, 0, 17+slots
	p.keys, p.rounds = p.near*d.between(2, 6), d.between(60, 120)*slots/3
	p.servers, p.region = one(d, 1, 1, 2), 16<<10+max(layout.MinChunk, 8*p.shape.Page) // the first pages begin at 16 KiB of a server's memory
}

// mixLate delays packets by up to 15 ms, so long that requesters may give up their connections.
func (p *treePlan) mixLate(d *draw) { p.belated(d, passiveHosts(p.servers)) }

// publishedCalm chooses the published layout, and removes what this layout does not survive: no
// copy is torn, and the lease is so long that no client is taken for dead.
func (p *treePlan) publishedCalm(d *draw) {
	p.shape = layout.Shape{Kind: layout.Published, Page: one(d, 256, 512, 1024), Value: one(d, 16, 40)}
	p.untear()
	p.lease = treePatience
}

// drawFaults draws up to three faults. A later fault begins up to 5 ms after the end of the fault
// before it, or one to four leases after it, when a client that died has been fenced. If it hits
// another victim, it may also begin before that end.
func (p *treePlan) drawFaults(d *draw) {
	for range one(d, 0, 1, 1, 1, 2, 2, 3) {
		s := p.drawFaultAt(d)
		if n := len(p.faults); n > 0 {
			s.pause = one(d, d.span(0, 5*time.Millisecond), d.span(p.lease, 4*p.lease))
			if last := p.faults[n-1]; last.victim != s.victim && d.chance(0.3) {
				s.pause = -last.down + d.span(0, last.down) // overlaps the fault before it
			}
		}
		p.faults = append(p.faults, s)
	}
}

func (p *treePlan) drawFaultAt(d *draw) (s treeFaultAt) {
	s.what = one(d, treeClientCrash, treeClientCrash, treeClientCrash, treeClientHang, treeClientHang, treeNICCrash, treeMemoryCrash, treeSwitchCrash,
		treeLinkCut, treeServerHang, treeSwitchHang)
	s.when = one(d, atAnything, atLock, atSplit, atWrite)
	s.after, s.late = d.between(1, p.clients*p.rounds/4+1), d.span(0, 12*time.Microsecond)
	if s.when == atSplit {
		s.after = d.between(1, 4)
	}
	s.down = d.span(time.Millisecond, 120*time.Millisecond)
	s.victim = fmt.Sprintf("cn%d", d.IntN(min(computeHosts, p.clients)))
	switch s.what {
	case treeNICCrash, treeMemoryCrash, treeServerHang:
		s.victim = fmt.Sprintf("ms%d", d.IntN(p.servers))
	case treeLinkCut:
		s.victim = one(d, "ms0", "cn0", "cn1")
	case treeSwitchCrash, treeSwitchHang:
		s.victim = "" // "" stands for the switch
	case treeNothing, treeClientCrash, treeClientHang, treeHostHang:
	}
	return s
}

// design changes the plan for step, a design between FG+ (the baseline of Sherman's paper) and
// Sherman. A page with a checksum is damaged for ever if its writer dies between two packets of the
// page, so for designs with checksums pages are small and the MTU is large. In these designs no
// page ever leaves the tree, so design gives up a plan with little memory (treePlan.small).
func (p *treePlan) design(d *draw, step sherman.Step) {
	if p.step = step; step.Kind != layout.Checksummed {
		return
	}
	if p.shape.Kind == layout.Published {
		p.hardened(d)
	}
	p.shape = layout.Shape{Kind: step.Kind, Page: min(p.shape.WithDefaults().Page, 1024), Value: min(p.shape.Value, 40)}
	p.params.PathMTU = verbs.MTU1024
	if p.small {
		p.small, p.region, p.keys, p.rounds = false, 1<<20, 48, 50
	}
}

// inSwitch makes the switch replace the atomics on the lock words. treeRun.rules sets the rules
// when the R_Keys of the lock tables are known.
func (p *treePlan) inSwitch() {
	p.box = "switch:\n  program: swordbox\n"
	p.rack.Datagrams = true // the switch makes connections by datagrams
}

// published changes the plan for a run with torn copies and the published layout, without other
// faults.
func (p *treePlan) published(d *draw) {
	p.faults, p.rules, p.links, p.small, p.region, p.lostSearch, p.lease = nil, nil, "", false, 1<<20, true, min(p.lease, 20*time.Millisecond)
	// Few keys are read and written all the time, so that a torn copy is soon read.
	p.keys, p.skew, p.mix = one(d, 2, 8, 24), one(d, 0.5, 0.8), [4]float64{0.5, 0.9, 0.94, 0.97}
	p.clients, p.rounds = d.between(4, 10), d.between(30, 60)
	p.shape = layout.Shape{Kind: layout.Published, Page: one(d, 256, 512, 1024), Value: 40}
	for _, h := range memoryServers(p.servers) {
		p.tear(h, 0.2+d.Float64()*0.5, d.span(time.Microsecond, 20*time.Microsecond))
	}
}

func (p *treePlan) String() string {
	s := fmt.Sprintf("%d servers, %d clients, %d keys, %d rounds, %v, %d lock words, lease %v; links %s", p.servers, p.clients, p.keys, p.rounds,
		p.shape.WithDefaults(), p.locks, p.lease, strings.TrimSpace(p.links))
	if p.step.Name != "" {
		s += "; step " + p.step.Name
	}
	if p.box != "" {
		s += "; locks in the switch"
	}
	if p.small {
		s += fmt.Sprintf("; %d bytes of memory each", p.region)
	}
	if p.mixes != "" {
		s += "; mixes " + p.mixes
	}
	if p.pace > 0 {
		s += fmt.Sprintf("; a pause of %v between operations", p.pace)
	}
	for i, x := range p.faults {
		s += fmt.Sprintf("; %s %s", treeFaults[x.what], x.victim)
		if i == 0 {
			s += fmt.Sprintf(" after %d %s and %v", x.after, treeMoments[x.when], x.late)
			if p.loses {
				s += ", the last of which is lost"
			}
		} else {
			s += fmt.Sprintf(" %v after that ended", x.pause)
		}
		s += fmt.Sprintf(", for %v", x.down)
	}
	return s
}
