package scenario

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/bytekeys"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
	"github.com/rdmalab/rdmalab/store/template"
)

type trialPlan struct {
	store.Trial
	wire                           wirePlan
	servers, clients, rounds, keys int
	skew                           float64 // probability with which an operation uses key 0
	// pause is the longest pause of a client between two operations; 0 means that clients do not
	// pause.
	pause time.Duration
	// more is the time for which faults that are in neither list below, such as those of tableBlow,
	// may stop operations: the sum of their durations.
	more time.Duration
	// mix has the upper bounds of get, put and insert for a random number from 0 to 1. A number
	// above all three is a delete.
	mix    [3]float64
	faults []trialFault
	// serverFaults are the faults of the hosts of the store's server, if the store has one.
	serverFaults []serverFault
}

// trialFault is a fault of a host or of the switch. It begins the time `late` after operation
// number `after` has begun, and lasts for the time `down`.
type trialFault struct {
	what       string
	victim     string
	after      int
	late, down time.Duration
}

// Faults of hosts and of the switch.
const (
	trialClientsDie = "clients die"
	trialNICHang    = "NIC hangs"
	trialHostHang   = "host hangs"
	trialLinkCut    = "link cut"
	trialNICCrash   = "NIC crashes"
	trialMemoryLost = "memory lost"
	// trialServerDies is trialMemoryLost for a store that has replicas, so that no key is lost.
	trialServerDies = "memory server dies"
	// trialMasterDies: the programs of a master's host are killed, and start again later.
	trialMasterDies = "master dies"
	// trialSwitchDies: no packet arrives anywhere until the switch has restarted.
	trialSwitchDies = "dies"
)

// survivor is a compute host that no fault of a trial hits.
const survivor = "cn3"

// drawWork draws the numbers of servers, clients, operations and keys.
func (p *trialPlan) drawWork(d *draw) {
	p.servers, p.clients, p.rounds = d.between(1, 3), d.between(2, 10), d.between(10, 50)
	p.keys, p.skew = one(d, 1, 2, 4, 8, 14), one(d, 0.0, 0.3, 0.7)
}

func (p *trialPlan) drawMix(d *draw) {
	p.mix = one(d, [3]float64{0.4, 0.7, 0.9}, [3]float64{0.2, 0.3, 0.65}, [3]float64{0.1, 0.9, 0.95}, [3]float64{0.3, 0.4, 0.7})
}

func (p *trialPlan) draw(e *env, own func(*rand.Rand, int) store.Trial) *trialPlan {
	d := e.draw
	p.drawWork(d)
	p.drawMix(d)
	p.Trial = own(newDraw(d.Uint64()).Rand, p.servers)
	servers := memoryServers(p.servers)
	hosts := passiveHosts(p.servers)
	if p.Server != nil {
		hosts = append(hosts, serverHosts...)
	}
	p.wire.drawWire(e, hosts, servers, 0.6)
	p.wire.rack.Loopback = p.Loopback
	if d.chance(0.3) {
		p.wire.belated(d, servers)
	}
	if p.Crashes && d.chance(0.7) {
		p.fail(d, servers)
	}
	p.drawServers(e.seed)
	return p
}

// fail draws one fault for each of one to three different hosts.
func (p *trialPlan) fail(d *draw, servers []string) {
	hosts := append([]string{"cn0", "cn1", "cn2"}, servers...)
	d.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	for _, h := range hosts[:min(len(hosts), d.between(1, 3))] {
		x := trialFault{
			victim: h, after: d.between(1, max(1, p.clients*p.rounds*3/4)), late: d.span(0, 30*time.Microsecond), down: d.span(time.Millisecond, 120*time.Millisecond),
			what: one(d, trialClientsDie, trialClientsDie, trialNICHang, trialHostHang, trialLinkCut),
		}
		if h[0] == 'm' {
			x.what = one(d, trialNICHang, trialLinkCut, trialNICCrash, trialMemoryLost)
			if x.what == trialMemoryLost && !p.Loss {
				x.what = trialNICCrash
			}
		}
		p.faults = append(p.faults, x)
	}
}

// longest bounds how long the plan's faults may stop an operation.
func (p *trialPlan) longest() time.Duration {
	out := p.more
	for _, x := range p.faults {
		out += x.down
	}
	for _, x := range p.serverFaults {
		out += x.down
	}
	return out
}

func (p *trialPlan) String() string {
	s := fmt.Sprintf("%s; %d servers, %d clients, %d keys, %d rounds; links %s", p.Plan, p.servers, p.clients, p.keys, p.rounds, strings.TrimSpace(p.wire.links))
	for _, x := range p.faults {
		s += fmt.Sprintf("; %s: %s after %d operations and %v, for %v", x.victim, x.what, x.after, x.late, x.down)
	}
	for _, x := range p.serverFaults {
		s += x.String()
	}
	return s
}

// byteKeysTrial draws a trial of package bytekeys, whose keys are byte strings. Below it is the hash
// table of package store/template, whose keys are 64-bit numbers; bytekeys derives these from the
// hash of a key. All keys together have only one to three hashes, so nearly every key shares its
// hash with another one.
func byteKeysTrial(r *rand.Rand, _ int) store.Trial {
	shape := template.Shape{Value: 128 << r.IntN(3), Slots: 48 + r.IntN(48)}
	hashes := 1 + r.Uint64N(3)
	longest := 1 + r.IntN(40)
	name := func(number uint64) []byte {
		return fmt.Appendf(nil, "%d%s", number, strings.Repeat("k", int(number)*7%longest))
	}
	hash := func(key []byte) uint64 { return uint64(key[0]) % hashes * 12345 }
	trial := template.Table.Trial(shape, store.Trial{
		Plan:   fmt.Sprintf("%d hashes, keys to %d bytes, %d slots, entries to %d bytes", hashes, longest+2, shape.Slots, shape.Value),
		Memory: 128 << 10, Largest: shape.Value - longest - 8, Crashes: true, Loss: true, Upserts: true,
	})
	open := trial.Open
	trial.Open = func(cfg passive.Config, deadline clock.Time) (kv.Store, error) {
		c, err := open(cfg, deadline)
		if err != nil {
			return nil, err
		}
		return bytekeys.Numbered{Client: bytekeys.New(c, hash), Name: name}, nil
	}
	return trial
}
