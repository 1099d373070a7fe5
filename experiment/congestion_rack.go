package experiment

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// SceneSample is what the switch's counters say of the ports of a Scene's hosts at a time.
type SceneSample struct {
	At time.Duration
	// Up has the bytes that came from each host, Down those that left its queue, by the numbers of the hosts: as frames
	// take them on the link.
	Up, Down []uint64
	// Pauses is how many pause frames the switch has sent, Dropped how many packets found no room.
	Pauses, Dropped uint64
}

// Between returns what a scene without messages has shown between the first and the last of three samples, from the
// switch's counters. rate is that of the links in bits a second. The flows of a host must go to one receiver, except for
// flows that are the only ones to theirs; a host has at most one flow that READs, and then no other.
func (s *Scene) Between(samples [3]SceneSample, rate int64) (out SceneResult, err error) {
	first, middle, last := &samples[0], &samples[1], &samples[2]
	if last.At <= middle.At || middle.At <= first.At {
		return out, fmt.Errorf("samples at %v, %v and %v have no time between them", first.At, middle.At, last.At)
	}
	link := float64(rate) / 8 * (last.At - first.At).Seconds() // bytes
	to, rest := make(map[int]int), make(map[int]float64)
	for _, f := range s.Flows {
		to[f.Into()]++
		rest[f.From] = float64(last.Up[f.From] - first.Up[f.From])
	}
	shared := make(map[int]int) // flows of a host that meet others
	out.Shares = make([]float64, len(s.Flows))
	for i, f := range s.Flows {
		if f.Read {
			out.Shares[i] = (float64(last.Down[f.From]-first.Down[f.From]) - s.written(f.From, rest)) / link
			continue
		}
		if to[f.To] > 1 {
			shared[f.From]++
			continue
		}
		n := float64(last.Down[f.To] - first.Down[f.To])
		out.Shares[i] = n / link
		rest[f.From] -= n
	}
	for i, f := range s.Flows {
		if !f.Read && to[f.To] > 1 {
			out.Shares[i] = rest[f.From] / float64(shared[f.From]) / link
		}
	}
	out.Unsteady = math.Abs(s.leaving(middle, last)/s.leaving(first, middle) - 1)
	out.Carried = s.carried(first, last, link)
	out.Pauses, out.Dropped = last.Pauses-first.Pauses, last.Dropped-first.Dropped
	return out, nil
}

// written is how many bytes other hosts have sent to a host, by the bytes that each of them has sent.
func (s *Scene) written(host int, sent map[int]float64) (n float64) {
	seen := make(map[int]bool) // a host with several flows to it has sent the bytes of all of them
	for _, f := range s.Flows {
		if !f.Read && f.To == host && !seen[f.From] {
			seen[f.From] = true
			n += sent[f.From]
		}
	}
	return n
}

// Into is the host whose port of the switch a flow fills: the receiver of WRITEs, and the host that READs.
func (f *SceneFlow) Into() int {
	if f.Read {
		return f.From
	}
	return f.To
}

// carried is the share of a link that left the ports of the receivers.
func (s *Scene) carried(first, last *SceneSample, link float64) float64 {
	return s.leaving(first, last) * (last.At - first.At).Seconds() / link
}

// leaving is how many bytes a second left the ports of the receivers between two samples.
func (s *Scene) leaving(from, to *SceneSample) (rate float64) {
	seen := make(map[int]bool)
	for _, f := range s.Flows {
		if host := f.Into(); !seen[host] {
			seen[host] = true
			rate += float64(to.Down[host]-from.Down[host]) / (to.At - from.At).Seconds()
		}
	}
	return rate
}

// The series of figures on a rack.
const twinOnRack, twinInSim = "rack", "simulator"

// congestionRackChoices says how figures on a rack differ from those in the simulator.
var congestionRackChoices = []string{
	"the congestion control, the links and the queues are those of the rack file; series simulator: the same file with the rack's cost model",
	"senders are the first compute hosts, receivers the first memory servers; shares come from the counters of the switch's ports",
}

// congestionOnRack lists the figures for a rack in slow motion: the flows are those of the figures in the simulator.
func congestionOnRack(quick bool) []figure {
	unfair := figure{
		key: "unfair", title: "one flow from a host, and three from another, to a third host: share of the link of each flow", x: "flow", unit: "share of the link", format: "%.3f",
		why: []string{"DCQCN, figures 3 and 8: with PFC alone the flow that is alone at its port gets 0.5 of the link, the others 0.25 or less; with DCQCN all get the same"},
	}
	unfair.twin("alone at its port", ccScene{figure: unfair.key, quick: quick}, func(o *SceneResult) float64 { return o.Shares[0] })
	unfair.twin("one of three at a port", ccScene{figure: unfair.key, quick: quick}, func(o *SceneResult) float64 { return (o.Shares[1] + o.Shares[2] + o.Shares[3]) / 3 })
	victim := figure{
		key: "victim", title: "a flow to an idle host, whose own host also sends to a port that n other hosts fill", x: "other hosts", unit: "share of the link of the victim", format: "%.3f",
		why: []string{"DCQCN, figures 4 and 9: with PFC alone 0.5, 0.25 and 0.11 of the link with 0, 1 and 2 other hosts; unaffected with DCQCN"},
	}
	for _, n := range []int{0, 1, 2, 4} {
		victim.twin(fmt.Sprint(n), ccScene{figure: victim.key, n: n, quick: quick}, func(o *SceneResult) float64 { return o.Shares[0] })
	}
	pauses := figure{
		key: "pauses", title: "eight hosts send to one: use of the link, packets dropped", x: "number", unit: "share of the link, packets", format: "%.3f",
	}
	eight := ccScene{figure: pauses.key, n: 8, quick: quick}
	pauses.twin("use of the link", eight, func(o *SceneResult) float64 { return o.Carried })
	pauses.twin("packets dropped", eight, func(o *SceneResult) float64 { return float64(o.Dropped) })
	return []figure{unfair, victim, pauses, sharedOnRack(quick), readsOnRack(quick), atomicsOnRack(quick), storesOnRack(quick)}
}

// SharedRack is the rack file for figure shared: for scenes with a shared connection.
const SharedRack = "topo/racks/shared-slow.yaml"

// rackRules are the values of a rule's key slow in figure shared on a rack.
var rackRules = []string{ccOwn, "marked", ccTurns, ccFlow}

// sharedOnRack is the panel "4 shared beside 4 own" of figure shared.
func sharedOnRack(quick bool) figure {
	f := figure{
		key: "shared", named: true, x: "rule's key slow", unit: "share, index", format: "%.3f",
		title: "four clients of a connection of the switch, beside four with connections of their own",
		why:   []string{"this figure needs congestion control, and one server: rdmalab up -f " + SharedRack},
	}
	for _, rule := range rackRules {
		l := ccShared{ccBeside, rule, besideClients, quick}
		f.twinOf("a shared client's share / an own one's", rule, quick, l, func(o *SceneResult) float64 { return besideRatio(o.Shares) })
		f.twinOf("Jain's index of all 8", rule, quick, l, func(o *SceneResult) float64 { return Jain(o.Shares) })
	}
	return f
}

// twin adds a number of a scene on the rack, and of the same in the simulator.
func (f *figure) twin(x string, l ccScene, number func(*SceneResult) float64) {
	f.twinOf("", x, l.quick, l, number)
}

// twinOf is twin for a panel and any scene.
func (f *figure) twinOf(panel, x string, quick bool, l staged, number func(*SceneResult) float64) {
	of := repeated{played{onRackScene{l, quick}}, 1}
	f.add(
		ours(panel, twinOnRack, x, of, func(o *outcome) float64 { return number(o.scene) }),
		ours(panel, twinInSim, x, of, func(o *outcome) float64 { return number(o.scene.Twin) }),
	)
}

// quickRackSpan is how long flows send with --quick, by the rack's clock: 10 s of real time if it is 400 times slower.
const quickRackSpan = 25 * time.Millisecond

// onRackScene is a load of flows on a rack, which takes everything else from its file.
type onRackScene struct {
	staged
	quick bool
}

func (l onRackScene) scene(seed uint64) Scene {
	s := l.staged.scene(seed)
	s.Span = pick(l.quick, quickRackSpan, 0)
	for i := range s.Flows {
		s.Flows[i].Messages = nil // a client of the rack sends its next one when the former has ended
	}
	return s
}

// congestionRackDemands are what must hold of a rack: shares within 10 % of the simulator's.
var congestionRackDemands = func() (list []figureDemand) {
	for _, f := range congestionOnRack(false) {
		for _, c := range f.cells {
			switch {
			case c.series != twinOnRack:
			case c.x == "packets dropped":
				list = append(list, figureDemand{f.key, "the rack drops no packet if the simulator drops none", func(at func(p, s, x string) float64) bool {
					return at("", twinInSim, c.x) > 0 || at("", twinOnRack, c.x) == 0
				}})
			default:
				list = append(list, figureDemand{f.key, fmt.Sprintf("%s: the rack is within 10 %% of the simulator", strings.TrimPrefix(c.panel+", "+c.x, ", ")), func(at func(p, s, x string) float64) bool {
					return near(at(c.panel, twinOnRack, c.x), at(c.panel, twinInSim, c.x))
				}})
			}
		}
	}
	return list
}()
