package experiment

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// ccMany is a load of Platform.Scene: n clients WRITE packets to one server all the time, each over a connection of its
// own, or all over manyShards shared connections.
type ccMany struct {
	rule  string // one of ccRules
	n     int
	quick bool
}

const (
	manyShards = 16
	manyHosts  = 64 // on which the clients are
	// manyDepth is how many requests of a client are in flight: the switch holds 1024 requests of all clients.
	manyDepth = 1
	// ccLong are clients with connections of their own whose WRITEs are long, so that nothing but congestion control
	// bounds the queue.
	ccLong = "own connections, 64 KB WRITEs"
)

func (l ccMany) label() string { return fmt.Sprintf("many: %s, n %d", l.rule, l.n) }

func (l ccMany) effort() float64 { return 20 }

func (l ccMany) scene(uint64) Scene {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	hosts := min(l.n, manyHosts)
	s := Scene{
		Hosts: 1 + hosts, Params: p, Delay: dcqcnDelay, Limit: 48 << 20, Marks: paperMarks,
		Window: 1024, Depth: manyDepth, Span: pick(l.quick, 40*time.Millisecond, 60*time.Millisecond), Share: l.rule, Shards: manyShards,
	}
	each := sharedMessage
	switch l.rule {
	case ccLong:
		s.Share, each, s.Timeout, s.Restless = "", 64<<10, 16, true
	case ccOwn:
		s.Share = ""
	}
	for i := range l.n {
		s.Flows = append(s.Flows, SceneFlow{From: 1 + i%hosts, To: 0, Each: each})
	}
	return s
}

func ccCrowd(quick bool) figure {
	f := figure{
		key: "many", title: "n clients WRITE packets to one server, each over its own connection or all over 16 of the switch", x: "clients", unit: "index, share, KB", format: "%.3f",
		why: []string{
			"there are no published numbers: DCQCN no longer works with some hundred queue pairs at 40 Gb/s, because each gets less than a packet in the interval of CNPs (line C7); the switch has 16 connections instead",
			"a client has one WRITE in flight, because the switch holds 1024 requests; one of 64 KB is what congestion control alone keeps out of the queue",
		},
	}
	for _, rule := range []string{ccLong, ccOwn, "marked", ccTurns, ccFlow} {
		for _, n := range few([]string{"16", "128", "512"}, quick) {
			l := play(ccMany{rule, int(number(n)), quick})
			f.add(
				ours("Jain's index", rule, n, l, func(o *outcome) float64 { return Jain(o.scene.Shares) }),
				ours("use of the link", rule, n, l, func(o *outcome) float64 { return sumOf(o.scene.Shares) }),
				ours("queue p90, KB", rule, n, l, func(o *outcome) float64 { return float64(o.scene.Queue) / 1000 }),
				ours("sent again", rule, n, l, func(o *outcome) float64 { return float64(o.scene.Again) }),
			)
		}
	}
	return f
}
