package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// storeRack returns the rack file of the scenario clover: a metadata server, memory servers and
// compute hosts.
func storeRack(servers int) string {
	return fmt.Sprintf("\nname: sim\nhosts:\n  - {name: md0, role: metadata}\n  - {name: \"ms[0-%d]\", role: memory}\n"+
		"  - {name: \"cn[0-3]\", role: compute}\n", servers-1)
}

// storePlan has the choices that the seed makes for a run of the scenario clover.
type storePlan struct {
	storeWork
	// mixes has the names of the mixes of the run, separated by commas.
	mixes string
	// shared: true if the clients of a host share a queue pair to each memory server.
	shared bool
	// servers is the number of memory servers. replicas is the number of copies of each node; 0
	// means one.
	servers, replicas int
	region            int // bytes of memory of each memory server
	slots             int // the largest number of keys in the store
	// shares says in which proportion the size classes of nodes divide the memory. If all are zero,
	// each class takes memory when it needs some.
	shares [layout.Classes]int
	format layout.Format
	wirePlan
	lease time.Duration // lease of clients; the grace is as long
	// box is the switch section of the rack file; "" means that the switch only forwards. steer
	// describes the steering in the printed plan, for example "write"; "" means that there is none.
	box, steer string
	// rests are the periods in which the switch has no steering rules for some servers, in the
	// order of time.
	rests []storeRest

	storeFaultAt
	// then are further faults. The field later of each counts from the beginning of the fault
	// before it.
	then []storeFaultAt
	// newcomers is how many clients open the store only when the first fault has begun.
	newcomers int
	// loses is used when the first fault is a hang of a NIC: the hang begins when the loses-th
	// WRITE or CMP_SWAP of the victim is lost. 0 means that no request is lost and the hang begins
	// after some operations.
	loses int
}

// storeWork describes the clients and their operations.
type storeWork struct {
	keys, clients, rounds int    // rounds: calls of storeRun.round by each client
	first, stride         uint64 // the first key, and the distance from one key to the next
	// sizes are the lengths of values in bytes.
	sizes []int
	// mix has the upper bounds of get, put, insert and delete for a random number from 0 to 1; that
	// of delete is 1.
	mix [4]float64
	// batch bounds the number of nodes that a client gets from the metadata server at a time.
	batch int
	// lazy: true if clients read a key's shortcut only when the node that they know has a
	// successor.
	lazy bool
	// turns: true if the clients of a host take turns to update a key.
	// chase: true if a client whose append has lost a race tries again at the successor that it has
	// found.
	turns, chase bool
	// caches: true if the clients of a host share a location cache.
	caches bool
	// merged: true if the clients of a host share a reporter, which sends the metadata server one
	// report for the appends of all of them.
	merged bool
	// spread: true if clients append nodes of any memory server, so that chains lead from one
	// server to the other and back.
	spread bool
	// balance: true if the metadata server gives out nodes by the free room and the speed of the
	// memory servers.
	balance bool
	// pace is the mean pause between two operations of a client; 0 means none.
	pace time.Duration
}

func (w *storeWork) key(d *draw) uint64 {
	i := uint64(d.IntN(w.keys))
	if w.first == math.MaxUint64 { // the first key is the largest one, so the others lie below it
		return w.first - i*w.stride
	}
	return w.first + i*w.stride
}

// storeFaultAt is one fault of a run: its kind (`what`), the host that it hits (`victim`; "" stands
// for the switch), and how long it lasts (`down`).
type storeFaultAt struct {
	what   storeFault
	victim string
	after  int           // used for the first fault: number of operations before it begins
	later  time.Duration // used for a further fault: time from the beginning of the fault before it
	down   time.Duration
}

// storeFault is the kind of fault of a machine, a link or the switch during a run.
type storeFault uint8

const (
	storeNothing storeFault = iota
	storeClientCrash
	storeMemoryCrash
	storeMetaCrash
	storeSwitchCrash
	storeLinkCut
	storeHang
	// storeHang is a hang of a host's NIC alone; storeHostHang is a hang of a host's NIC and of its
	// applications.
	storeHostHang
	storeSwitchHang
	// storeServiceHang is a hang of a host's memory service, while its NIC goes on.
	storeServiceHang
)

var storeFaults = [...]string{
	"nothing", "client crash", "memory server crash", "metadata server crash", "switch crash", "link cut", "hang", "hang of the host", "switch hang", "hang of the memory service",
}

func (p *storePlan) draw(e *env) *storePlan {
	d := e.draw
	*p = storePlan{
		storeWork: storeWork{
			keys: d.between(1, 8), clients: d.between(2, 8), rounds: d.between(10, 50), stride: 1, sizes: []int{one(d, 16, 40, 104, 200)}, batch: 8,
		},
		servers: 2, replicas: e.replicas,
		slots: 16, format: layout.Hardened, shares: [layout.Classes]int{60, 40}, lease: d.span(20*time.Millisecond, 60*time.Millisecond),
	}
	if e.replicas > 1 {
		p.servers = max(e.replicas, d.between(2, 3))
	}
	// Either the pool has hardly more nodes than clients and keys hold, and nodes are reused early;
	// or it has many more, and nodes are reused late.
	p.region = one(d, 48<<10, 96<<10, 512<<10)
	p.mix = one(d, [4]float64{0.5, 0.9, 0.95, 1}, [4]float64{0.1, 0.98, 0.99, 1}, [4]float64{0.4, 0.6, 0.8, 1})
	p.drawWire(e, storeHostNames(p.servers), memoryServers(p.servers), 0.5)
	e.widen(&p.rack)
	p.drawFault(d)
	return p
}

func (p *storePlan) size(d *draw) int {
	if len(p.sizes) == 1 {
		return p.sizes[0]
	}
	return one(d, p.sizes...)
}

func (p *storePlan) drawFault(d *draw) {
	if d.chance(0.3) {
		return
	}
	p.storeFaultAt.draw(d, p)
	p.after = d.between(1, p.clients*p.rounds/2)
	for len(p.then) < 2 && d.chance(0.3) {
		p.then = append(p.then, p.next(d, true))
	}
	if p.what == storeHang && p.victim[0] == 'c' && d.chance(0.5) {
		p.loses = d.between(1, p.rounds/2)
	}
	if d.chance(0.5) || p.what == storeHang { // with pauses, the run lasts longer than the leases, so that some operations begin after the leases have ended
		p.pace = 2 * (p.down + 2*p.lease) / time.Duration(p.rounds)
	}
}

// next draws a further fault. If other is true, its victim is a machine that no other fault hits.
// The plan's faults together never destroy all copies of a key and the metadata server's state: a
// lost key could then not be distinguished from one that never existed. In a store without copies,
// one memory server may crash as well as the metadata server: the other memory server has mirrors
// of the lost records.
func (p *storePlan) next(d *draw, other bool) storeFaultAt {
	for {
		var s storeFaultAt
		s.draw(d, p)
		s.later = d.span(0, 150*time.Millisecond)
		fits, losses, meta := true, 0, false
		for _, x := range append([]storeFaultAt{p.storeFaultAt, s}, p.then...) {
			if x.what == storeMemoryCrash {
				losses++
			}
			meta = meta || x.what == storeMetaCrash
			fits = fits && (!other || x == s || x.victim != s.victim)
		}
		if fits && (losses <= max(1, p.replicas-1) || !meta) {
			return s
		}
	}
}

// draw draws the kind, victim and duration of a fault.
func (p *storeFaultAt) draw(d *draw, of *storePlan) {
	lease := of.lease
	p.what = storeFault(d.between(1, int(storeHang)))
	p.down = d.span(time.Millisecond, 120*time.Millisecond)
	switch p.what {
	case storeHang:
		if p.victim = fmt.Sprintf("cn%d", d.IntN(computeHosts)); d.chance(0.2) {
			p.victim = one(d, append([]string{"md0"}, memoryServers(of.servers)...)...)
		}
		p.down = d.span(lease/2, 4*lease)
	case storeClientCrash:
		p.victim = fmt.Sprintf("cn%d", d.IntN(computeHosts))
	case storeMemoryCrash:
		p.victim = fmt.Sprintf("ms%d", d.IntN(of.servers))
	case storeMetaCrash:
		p.victim = "md0"
	case storeLinkCut:
		p.victim = one(d, slices.Concat([]string{"md0"}, memoryServers(of.servers), []string{"cn0", "cn1"})...)
	case storeSwitchCrash, storeNothing, storeHostHang, storeSwitchHang, storeServiceHang:
	}
}

func (p *storePlan) String() string {
	s := fmt.Sprintf("%d clients, %d keys, %d rounds of %v bytes, %d KiB a server; links %s", p.clients, p.keys, p.rounds, p.sizes,
		p.region>>10, strings.TrimSpace(p.links))
	if p.replicas > 1 {
		s += fmt.Sprintf("; %d copies on %d servers", p.replicas, p.servers)
	}
	if p.mixes != "" {
		s += "; mixes " + p.mixes
	}
	if p.shared {
		s += "; queue pairs are shared"
	}
	if p.steer != "" {
		s += "; steer " + p.steer
	}
	for _, x := range p.rests {
		s += fmt.Sprintf("; no rule for %s in operations %d to %d", strings.Join(x.servers, " and "), x.from, x.to)
	}
	if p.what != storeNothing {
		when := fmt.Sprintf("after %d operations", p.after)
		if p.loses > 0 {
			when = fmt.Sprintf("when its WRITE or CAS %d is lost", p.loses)
		}
		s += fmt.Sprintf("; %s %s %s for %v", storeFaults[p.what], p.victim, when, p.down)
	}
	if p.newcomers > 0 {
		s += fmt.Sprintf("; %d clients come after it has begun", p.newcomers)
	}
	for _, x := range p.then {
		s += fmt.Sprintf("; %v later %s %s for %v", x.later, storeFaults[x.what], x.victim, x.down)
	}
	if p.pace > 0 {
		s += fmt.Sprintf("; a pause of %v between operations", p.pace)
	}
	return s
}
