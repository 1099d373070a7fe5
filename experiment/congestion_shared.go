package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// ccOwn is the switch that moves nothing: each client has a connection of its own to the server.
const ccOwn = "own connections"

// ccRules are the values of a rule's key slow, and the switch without a rule.
var ccRules = []string{ccOwn, "all", "marked", "share", "heaviest", ccTurns, ccFlow, ccQueue}

// The values of the key slow by which the switch is the reaction point.
const ccTurns, ccFlow, ccQueue = "connection", "flow", "queue"

// The loads of figure shared.
const (
	// ccGreedy: n clients WRITE all the time; four others WRITE 16 KB each 128 us. With n 0 these are alone.
	ccGreedy = "greedy"
	// ccBeside: four clients on the shared connection, beside four whose messages have more than a packet, and
	// so stay on connections of their own. All WRITE all the time.
	ccBeside = "beside"
	// ccReads: four clients READ all the time over the shared connection; n others WRITE to the first of them.
	ccReads = "reads"
)

const (
	sharedMessage = 1024
	innocents     = 4
	besideClients = 4
	readers       = 4
	burstApart    = 128 * time.Microsecond
	burstWrites   = 16
)

// ccShared is a load of Platform.Scene of which clients share a connection of the switch to the server.
type ccShared struct {
	kind  string // ccGreedy, ccBeside or ccReads
	rule  string // one of ccRules
	n     int
	quick bool
}

func (l ccShared) label() string { return fmt.Sprintf("shared: %s, %s, n %d", l.kind, l.rule, l.n) }

func (l ccShared) effort() float64 { return 5 }

func (l ccShared) scene(uint64) Scene {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	s := Scene{
		Params: p, Delay: dcqcnDelay, Limit: 4 << 20, Marks: paperMarks,
		Window: 1024, Span: pick(l.quick, 30*time.Millisecond, 100*time.Millisecond), Share: l.rule,
	}
	if l.rule == ccOwn {
		s.Share = ""
	}
	if l.kind == ccReads {
		s.Hosts, s.Depth = 1+readers+l.n, 8
		for i := range readers {
			s.Flows = append(s.Flows, SceneFlow{From: 1 + i, To: 0, Each: sharedMessage, Read: true})
		}
		for i := range l.n {
			s.Flows = append(s.Flows, SceneFlow{From: 1 + readers + i, To: 1})
		}
		return s
	}
	if l.kind == ccBeside {
		s.Hosts, s.Depth = 1+2*besideClients, 30
		for i := range 2 * besideClients {
			f := SceneFlow{From: 1 + i, To: 0, Each: sharedMessage}
			if i >= besideClients {
				f.Each = 0
			}
			s.Flows = append(s.Flows, f)
		}
		return s
	}
	// 96 packets of greedy clients and most bursts are in flight on the shared connection, so that they wait in the port.
	s.Hosts, s.Depth = 1+innocents+l.n, 96/max(l.n, 1)
	for i := range innocents {
		f := SceneFlow{From: 1 + i, To: 0}
		for at := time.Duration(i) * burstApart / innocents; at < s.Span; at += burstApart {
			for range burstWrites {
				f.Messages = append(f.Messages, SceneMessage{at, sharedMessage})
			}
		}
		s.Flows = append(s.Flows, f)
	}
	for i := range l.n {
		s.Flows = append(s.Flows, SceneFlow{From: 1 + innocents + i, To: 0, Each: sharedMessage})
	}
	return s
}

// besideRatio returns the share of a shared client of the load ccBeside, divided by that of one with a connection of its own.
func besideRatio(shares []float64) float64 {
	return sumOf(shares[:besideClients]) / sumOf(shares[besideClients:])
}

func ccSharing(quick bool) figure {
	f := figure{
		key: "shared", title: "clients of one connection of the switch to a server, whose port is full: who slows down", x: "rule's key slow", unit: "us, share, index, CNPs", format: "%.3g",
		why: []string{
			"there are no published numbers: a CNP of the server names the shared connection, and the switch decides for whom it is",
			"alone: the bursts of four clients without others; they offer 3 % of the link each, and greedy clients take the rest",
			"beside: the limit of one CNP in 50 us holds for a whole shared connection, and for each connection of its own",
		},
	}
	alone := play(ccShared{ccGreedy, "all", 0, quick})
	for _, rule := range ccRules {
		for _, n := range []int{1, 4} {
			l := play(ccShared{ccGreedy, rule, n, quick})
			panel := fmt.Sprintf("%d greedy", n)
			f.add(
				ours(panel, "bursts of others: mean, us", rule, l, func(o *outcome) float64 { return o.scene.Mean.Seconds() * 1e6 }),
				ours(panel, "greedy: share of the link", rule, l, func(o *outcome) float64 { return sumOf(o.scene.Shares[innocents:]) }),
			)
			f.add(
				ours(panel, "bursts of others: p99, times alone", rule, l, func(o *outcome) float64 { return o.scene.P99 }),
				ours(panel, "queue p90, KB", rule, l, func(o *outcome) float64 { return float64(o.scene.Queue) / 1000 }),
			)
			if rule != ccOwn && !slices.Contains([]string{ccTurns, ccFlow, ccQueue}, rule) {
				f.add(ours(panel, "CNPs to clients for one of the server", rule, l, func(o *outcome) float64 { return float64(o.scene.Passed) / float64(o.scene.Told) }))
			}
		}
		l := play(ccShared{ccBeside, rule, besideClients, quick})
		const panel = "4 shared beside 4 own"
		f.add(
			ours(panel, "a shared client's share / an own one's", rule, l, func(o *outcome) float64 { return besideRatio(o.scene.Shares) }),
			ours(panel, "Jain's index of all 8", rule, l, func(o *outcome) float64 { return Jain(o.scene.Shares) }),
		)
	}
	f.add(ours("alone", "bursts of others: mean, us", "all", alone, func(o *outcome) float64 { return o.scene.Mean.Seconds() * 1e6 }))
	return f
}

func ccReading(quick bool) figure {
	f := figure{
		key: "reads", title: "four clients READ over one connection of the switch, and others fill the port of one of them", x: "hosts that fill the port", unit: "share of the link", format: "%.3f",
		why: []string{"there are no published numbers: a switch could slow the READs of a client whose port is full; the others do not suffer if it does not, because a READ leaves the shared connection before it reaches the port"},
	}
	for _, rule := range []string{ccOwn, "all"} {
		for _, n := range readsBeside {
			l, x := play(ccShared{ccReads, rule, n, quick}), fmt.Sprint(n)
			panel := pick(rule == ccOwn, ccOwn, "shared connection")
			f.add(
				ours(panel, "the client with the full port", x, l, func(o *outcome) float64 { return o.scene.Shares[0] }),
				ours(panel, "each other client", x, l, func(o *outcome) float64 { return otherReader(o.scene) }),
			)
		}
	}
	return f
}

// sharedDemands are what must hold in figure shared.
var sharedDemands = []figureDemand{
	{"shared", "marked: with one greedy client, one CNP of the server becomes one to a client, within 10 %; all: more", func(at func(p, s, x string) float64) bool {
		const name = "CNPs to clients for one of the server"
		return at("1 greedy", name, "marked") <= 1.1 && at("1 greedy", name, "all") > at("1 greedy", name, "marked")
	}},
	{"shared", "marked: shared clients and those with connections of their own are equal, index 0.95; with all they are not", func(at func(p, s, x string) float64) bool {
		const panel, name = "4 shared beside 4 own", "Jain's index of all 8"
		return at(panel, name, "marked") >= .95 && at(panel, name, "all") < .95
	}},
	{"reads", "the other clients of the shared connection have at least 0.95 of what they have when no port is full", func(at func(p, s, x string) float64) bool {
		const panel, name = "shared connection", "each other client"
		return at(panel, name, "1") >= .95*at(panel, name, "0") && at(panel, name, "4") >= .95*at(panel, name, "0")
	}},
	{"shared", "every rule: greedy clients have 0.85 or more of the link, beside bursts of 0.11", func(at func(p, s, x string) float64) bool {
		ok := true
		for _, rule := range ccRules {
			ok = ok && at("4 greedy", "greedy: share of the link", rule) >= .85
		}
		return ok
	}},
}
