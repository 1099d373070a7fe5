package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// Any lets the seed choose the value of an option.
const Any = "any"

// PFCs are the values of Congestion.PFC.
var PFCs = []string{"on", "off", Any}

// Congestion gives the links of a scenario's rack a rate, its ports queues that mark packets, and its
// NICs congestion control. The zero value gives none.
type Congestion struct {
	// Algorithm is one of congestion.Algorithms, or Any.
	Algorithm string
	// PFC is one of PFCs: whether queues pause hosts instead of dropping their packets. "" means Any.
	PFC string

	heavy bool // the load of clients, or their short ACK timeouts, are too much for the slowest links
}

// congestedScenarios are the scenarios for which there is a Congestion. The others have queues of their own,
// or bound the time of an operation by what a link without queues takes.
var congestedScenarios = []string{"transport", "locks", "clover", "srq", "uc", "ud", "rnr", "sherman", "hostile"}

// Congested returns the scenario on a rack with congestion. It fails for a scenario that has no such
// rack, and for values that do not exist.
func (s Scenario) Congested(c Congestion) (Scenario, error) {
	name, _, _ := strings.Cut(s.Name, " ")
	switch {
	case c == (Congestion{}):
		return s, nil
	case !slices.Contains(congestedScenarios, name):
		return s, fmt.Errorf("scenario %.20s has no congestion control and no queues: use %v", name, congestedScenarios)
	case c.Algorithm == "":
		return s, fmt.Errorf("--pfc needs --congestion: use one of %s", strings.Join(Algorithms(), ", "))
	case !slices.Contains(Algorithms(), c.Algorithm):
		return s, fmt.Errorf("--congestion %.40q: %suse one of %s", c.Algorithm, nearest.Meant(c.Algorithm, Algorithms()), strings.Join(Algorithms(), ", "))
	case c.PFC != "" && !slices.Contains(PFCs, c.PFC):
		return s, fmt.Errorf("--pfc %.40q: %suse %s", c.PFC, nearest.Meant(c.PFC, PFCs), strings.Join(PFCs, ", "))
	}
	s.congestion, s.congestion.heavy = c, name != "locks" && name != "hostile"
	return s, nil
}

// Algorithms are the values of Congestion.Algorithm.
func Algorithms() []string { return append(congestion.Algorithms(), Any) }

func (c Congestion) args() string {
	out := ""
	if c.Algorithm != "" {
		out += " --congestion " + c.Algorithm
	}
	if c.PFC != "" {
		out += " --pfc " + c.PFC
	}
	return out
}

// congested is what a seed has chosen of a Congestion.
type congested struct {
	params congestion.Params
	pfc    bool
	prio   int // of all packets but CNPs
	rate   int64
	queue  portqueue.Class
	buffer int64
	slow   rules.Slowed // of rules that move requests
}

// The priority and DSCP of CNPs, and the second priority that data may have.
const (
	notified     = 6
	notifiedDSCP = 48
	separated    = 3
)

// drawCongestion draws the queues and the congestion control of a run, by random numbers of its own; nil
// means that the run has none. Rates are at least a twentieth of a link's, so that packets of a slowed
// queue pair come within its ACK timeout.
func drawCongestion(c Congestion, seed uint64) *congested {
	if c == (Congestion{}) {
		return nil
	}
	d := newDraw(seed ^ congestionLane)
	g := &congested{rate: one(d, int64(1e9), 5e9, 10e9, 40e9), prio: one(d, 0, separated)}
	if !c.heavy {
		g.rate /= 10
	}
	algorithm, profile := one(d, congestion.Algorithms()...), one(d, congestion.Profiles()...)
	if c.Algorithm != Any {
		algorithm = c.Algorithm
	}
	g.params, _ = congestion.Profile(profile, g.rate)
	g.params.Algorithm, g.params.Scope = algorithm, one(d, congestion.Scopes()...)
	g.params.MinRate = max(g.params.MinRate, g.rate/20)
	g.pfc = d.chance(0.5)
	if c.PFC != "" && c.PFC != Any {
		g.pfc = c.PFC == "on"
	}
	low := d.length(100, 40_000)
	g.queue = portqueue.Class{
		Weight: 1, Lossless: g.pfc, XOFF: int64(d.length(500, 200_000)),
		ECN: portqueue.RED{KMin: low, KMax: low + d.length(1, 200_000), PMax: one(d, 10_000, 100_000, portqueue.Million), AtEnqueue: d.chance(0.2)},
	}
	g.buffer = int64(d.between(4, 16)) << 20
	g.slow = one(d, rules.SlowAll, rules.SlowMarked, rules.SlowShare, rules.SlowHeaviest)
	return g
}

// length returns a number between low and high whose logarithm has a uniform distribution.
func (d *draw) length(low, high float64) int { return int(low * math.Pow(high/low, d.Float64())) }

func (g *congested) String() string {
	q := &g.queue
	kind := "lossy"
	if g.pfc {
		kind = "lossless"
	}
	return fmt.Sprintf("congestion=%s/%s/%s rate=%s prio=%d %s limit=%d marks=%d-%d/%d at-enqueue=%v slow=%v", g.params.Algorithm, g.params.Profile, g.params.Scope,
		congestion.RateText(g.rate), g.prio, kind, q.XOFF, q.ECN.KMin, q.ECN.KMax, q.ECN.PMax, q.ECN.AtEnqueue, g.slow)
}

// slowTimeout is the least code of the ACK timeout of connections that wait in queues: 17 ms.
const slowTimeout = 12

// patient makes the ACK timeout of a plan as long as queues and rates need.
func (g *congested) patient(p *rdmacm.Params) {
	if g != nil {
		p.Timeout = max(p.Timeout, slowTimeout)
	}
}

// shortQueue is how many of the longest frames a queue that drops packets holds at least: with fewer,
// retries could not end a burst.
const shortQueue = 6

// longestPause is how long a pause frame stops a host. Links lose pause frames, too, and a host whose XON is
// lost stands still so long; with the usual 65,535 quanta that would be longer than retries last.
const longestPause = 500 * time.Microsecond

// on returns a copy of s with the queues and the congestion control. Links that have a rate by opt get
// that of the queues.
func (g *congested) on(s *rackfile.Rack, opt *simrack.Options) *rackfile.Rack {
	out := *s
	out.Hosts = slices.Clone(s.Hosts)
	longest := s.LinkMTU
	for i := range out.Hosts {
		h := &out.Hosts[i]
		h.Congestion = &g.params
		h.TOS = uint8(g.prio<<2) | 2 // ECT(0)
		longest = max(longest, s.MTUOf(h))
	}
	const ethernet = 18
	longest += ethernet
	cfg := portqueue.Config{
		Rate: g.rate, Overhead: portqueue.Overhead, Seed: s.Seed, MAC: s.Switch.MAC, Buffer: g.buffer, Own: g.buffer / 4,
	}
	for i := range cfg.Classes {
		cfg.Classes[i] = portqueue.Class{Weight: 1, AlphaNum: 1, AlphaDen: 1}
	}
	k := &cfg.Classes[g.prio]
	*k = g.queue
	if g.pfc {
		delay := max(opt.Delay, time.Microsecond)
		k.Headroom, k.XON, k.Reserve = portqueue.Headroom(g.rate, delay, 0, longest), 2*int64(longest), int64(longest)
		cfg.Buffer += cfg.MinBuffer(len(out.Hosts))
	} else {
		k.XOFF = max(k.XOFF, shortQueue*int64(longest))
	}
	cfg.Quanta = uint16(max(1, g.rate/int64(time.Second/longestPause)/512))
	cfg.Classes[notified].Strict = true
	cfg.DSCP[separated], cfg.DSCP[notifiedDSCP] = separated, notified
	out.Switch.Queues = &cfg
	out.Switch.Rules = slices.Clone(s.Switch.Rules)
	for i := range out.Switch.Rules {
		if r := &out.Switch.Rules[i]; r.Moves() && r.Mode == rules.Hardened {
			r.SetSlowed(g.slow)
		}
	}
	opt.Rate, opt.Queue = 0, 0
	return &out
}

// checkRest returns an error if the queues of a rack that has come to rest hold bytes, or if one of them
// pauses a host: each byte is in one account until it has left.
func (g *congested) checkRest(r *simrack.Rack) error {
	const tries, apart = 100, 10 * time.Microsecond
	var err error
	for range tries { // services may send at any time
		if err = restless(r); err == nil {
			return nil
		}
		if e := r.Settle(apart); e != nil {
			return e
		}
	}
	return err
}

func restless(r *simrack.Rack) error {
	banks := map[string]*portqueue.Bank{rackfile.SwitchName: r.Queues(0)}
	for _, h := range r.Hosts() {
		if q := h.Queues(); q != nil {
			banks[h.Spec.Name] = q
		}
	}
	for name, b := range banks {
		if u := b.Used(); u != (portqueue.Usage{}) {
			return fmt.Errorf("the queues of %s hold %+v at rest", name, u)
		}
		for i := range b.Ports() {
			for prio, st := range b.Port(r.Now(), i) {
				if st.Frames != 0 || st.Bytes != 0 || st.Pausing {
					return fmt.Errorf("port %d of %s has %d frames of priority %d at rest, and pauses its peer: %v", i, name, st.Frames, prio, st.Pausing)
				}
			}
		}
	}
	return nil
}

// outwaits reports whether a pause frame may have held packets in a NIC for longer than selective retransmission waits
// for an answer: its timers are much shorter than the ACK timeout.
func (g *congested) outwaits(r *simrack.Rack, recovery selective.Kind) bool {
	if g == nil || recovery == selective.GoBackN {
		return false
	}
	for i := range r.Hosts() {
		for _, st := range r.Queues(0).Port(r.Now(), i) {
			if st.TxPause > 0 {
				return true
			}
		}
	}
	return false
}

// recoveryOf returns how the queue pairs of a run recover: what the option names, or what the seed chooses.
func recoveryOf(name string, seed uint64) selective.Kind {
	if name == Any {
		return one(newDraw(seed^recoveryLane), selective.GoBackN, selective.IRN, selective.RACK)
	}
	kind, _ := selective.KindOf(name)
	return kind
}
