package experiment

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// The columns of figure convoy: what the NICs do about congestion.
const (
	ccNone    = "no control"
	ccControl = "dcqcn"
	ccExempt  = "dcqcn, lockers exempt"
)

// ccConvoy is a load of Platform.Scene of hosts that take one lock of a server in turn, beside bulk senders that fill
// the server's port.
type ccConvoy struct {
	control string // a column
	bytes   int    // that the holder WRITEs
	beside  bool   // there are bulk senders
	quick   bool
}

const (
	convoyLockers = 8
	convoyPause   = 20 * time.Microsecond
)

func (l ccConvoy) label() string {
	return fmt.Sprintf("convoy: %s, %d bytes, bulk %v", l.control, l.bytes, l.beside)
}

func (l ccConvoy) effort() float64 { return 5 }

func (l ccConvoy) scene(uint64) Scene {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	if l.control == ccNone {
		p.Algorithm = congestion.AlgorithmNone
	}
	s := Scene{
		Hosts: 1 + convoyLockers + bulkSenders, Params: p, Delay: dcqcnDelay, Limit: 4 << 20, Marks: paperMarks,
		Window: 1024, Depth: 8, Timeout: 12, Span: pick(l.quick, 60*time.Millisecond, 200*time.Millisecond),
	}
	for i := range convoyLockers {
		s.Flows = append(s.Flows, SceneFlow{From: 1 + i, To: 0, Lock: true, Each: l.bytes, Pause: convoyPause, Exempt: l.control == ccExempt})
	}
	for i := range bulkSenders {
		if l.beside {
			s.Flows = append(s.Flows, SceneFlow{From: 1 + convoyLockers + i, To: 0})
		}
	}
	return s
}

func ccLocks(quick bool) figure {
	f := figure{
		key: "convoy", title: "8 hosts take one lock of a server whose port 4 others fill: the wait for the lock", x: "congestion control", unit: "us, locks a ms", format: "%.4g",
		why: []string{
			"there are no published numbers: congestion control slows a NIC while its program holds a lock, and all others wait longer",
			"the holder WRITEs 8 bytes or 64 KB to the server and gives the lock back; a locker tries again at once, and pauses 20 us after it had the lock",
			"without control the port has all that is in flight, 2 MB, before each request of a locker; exempt: the lockers' NICs ignore notifications",
		},
	}
	for _, bytes := range []int{8, 64 << 10} {
		for _, beside := range []bool{false, true} {
			panel := fmt.Sprintf("%d bytes, %s", bytes, pick(beside, "4 bulk senders", "alone"))
			for _, x := range []string{ccNone, ccControl, ccExempt} {
				of := ccConvoy{x, bytes, beside, quick}
				l, half := play(of), of.scene(1).Span.Seconds()*1000/2
				f.add(
					ours(panel, "wait p99, us", x, l, func(o *outcome) float64 { return o.scene.Tail.Seconds() * 1e6 }),
					ours(panel, "wait mean, us", x, l, func(o *outcome) float64 { return o.scene.Mean.Seconds() * 1e6 }),
					ours(panel, "locks a ms", x, l, func(o *outcome) float64 {
						return float64(o.scene.Messages) / half
					}),
				)
			}
		}
	}
	return f
}

// ccLossy is a load of Platform.Scene of 16 clients of a server whose link loses packets. They share a queue pair, or
// have one each, or share the switch's connection (ccSwitch).
type ccLossy struct {
	how      string
	recovery selective.Kind
	loss     float64
	quick    bool
}

const (
	ccOne    = "one queue pair"
	ccEach   = "a queue pair each"
	ccSwitch = "the switch's connection"

	lossyClients = 16
	// lossyApart is between two messages of a client: all together use 0.7 of the link.
	lossyApart = 5 * time.Microsecond
)

func (l ccLossy) label() string {
	return fmt.Sprintf("stall: %s, %v, loss %g", l.how, l.recovery, l.loss)
}

func (l ccLossy) effort() float64 { return 8 }

func (l ccLossy) scene(uint64) Scene {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	p.Algorithm = congestion.AlgorithmNone
	s := Scene{
		Hosts: 2, Params: p, Delay: dcqcnDelay, Limit: 4 << 20, Window: 1024, Depth: 512, Recovery: l.recovery, Loss: l.loss,
		Span: pick(l.quick, 10*time.Millisecond, 40*time.Millisecond),
	}
	if l.how == ccSwitch {
		s.Share = "all"
	}
	s.Flows = make([]SceneFlow, pick(l.how == ccOne, 1, lossyClients))
	for i := range s.Flows {
		s.Flows[i] = SceneFlow{From: 1, To: 0}
	}
	for at := time.Duration(0); at < s.Span; at += lossyApart {
		for i := range lossyClients {
			f := &s.Flows[i%len(s.Flows)]
			f.Messages = append(f.Messages, SceneMessage{at + time.Duration(i)*lossyApart/lossyClients, sharedMessage})
		}
	}
	return s
}

func ccStall(quick bool) figure {
	f := figure{
		key: "stall", title: "16 clients WRITE a packet each 5 us to a server whose link loses packets: how long a WRITE takes", x: "% lost", unit: "us", format: "%.4g",
		why: []string{
			"there are no published numbers: a loss on a connection that many share stalls all of them under go-back-N; the switch's connection has go-back-N alone",
			"completions of a queue pair are in order, so that one that waits for a lost packet delays those behind it, whatever recovers it; a queue pair each confines that to one client",
			"a lost packet at the end of what a client has in flight is found by a timeout: 1 ms under go-back-N, 0.1 and 0.32 ms under IRN, less under RACK",
		},
	}
	for _, how := range []string{ccOne, ccEach, ccSwitch} {
		for _, kind := range []selective.Kind{selective.GoBackN, selective.IRN, selective.RACK} {
			if how == ccSwitch && kind != selective.GoBackN {
				continue
			}
			for _, x := range []string{"0", "0.1", "1"} {
				l := play(ccLossy{how, kind, number(x) / 100, quick})
				series := how + ", " + kind.String()
				f.add(
					ours("p99", series, x, l, func(o *outcome) float64 { return o.scene.Tail.Seconds() * 1e6 }),
					ours("mean", series, x, l, func(o *outcome) float64 { return o.scene.Mean.Seconds() * 1e6 }),
				)
			}
		}
	}
	return f
}

// reactionDemands are what must hold in the figures about who reacts on shared connections, and about locks and losses.
var reactionDemands = []figureDemand{
	{"shared", "the switch as reaction point: with a rate for each client all 8 are equal, index 0.95; with one rate for the connection a shared client has a quarter of the other's, within 20 %", func(at func(p, s, x string) float64) bool {
		const panel, jain, ratio = "4 shared beside 4 own", "Jain's index of all 8", "a shared client's share / an own one's"
		return at(panel, jain, ccFlow) >= .95 && at(panel, jain, ccQueue) >= .95 && at(panel, ratio, ccTurns) >= .2 && at(panel, ratio, ccTurns) <= .3
	}},
	{"many", "512 clients: over 16 connections of one rate each, index 0.9, and the queue is at Kmax at most, within 5 %; with connections of their own it is more than twice that, with long WRITEs megabytes", func(at func(p, s, x string) float64) bool {
		const jain, queue = "Jain's index", "queue p90, KB"
		return at(jain, ccTurns, "512") >= .9 && at(queue, ccTurns, "512") <= 1.05*paperKMax/1000 &&
			at(queue, ccOwn, "512") > 2*paperKMax/1000 && at(queue, ccLong, "512") > 1000
	}},
	{"convoy", "alone, congestion control changes no wait by more than 1 %", func(at func(p, s, x string) float64) bool {
		return slices.Min([]float64{at("8 bytes, alone", "wait mean, us", ccNone), at("8 bytes, alone", "wait mean, us", ccControl)}) >
			.99*slices.Max([]float64{at("8 bytes, alone", "wait mean, us", ccNone), at("8 bytes, alone", "wait mean, us", ccControl)})
	}},
	{"stall", "without losses go-back-N, IRN and RACK are equal; with 1 % one queue pair has a longer p99 with go-back-N than with RACK", func(at func(p, s, x string) float64) bool {
		gbn, rack := ccOne+", "+selective.GoBackN.String(), ccOne+", "+selective.RACK.String()
		return at("p99", gbn, "0") <= 1.05*at("p99", rack, "0") && at("p99", rack, "0") <= 1.05*at("p99", gbn, "0") && at("p99", gbn, "1") > at("p99", rack, "1")
	}},
}
