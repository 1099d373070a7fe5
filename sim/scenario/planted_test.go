package scenario

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// tamper is a node between a memory server's NIC and its link. It changes every fifth frame of a
// kind, a request that arrives or an answer that leaves, and corrects the ICRC. This is a bug of
// the NIC that no checksum shows.
type tamper struct {
	simnet.Node
	in   func(f *wire.Frame) bool // returns true if it has changed the frame
	out  func(f *wire.Frame) bool
	all  bool // every frame is changed, not every fifth
	seen int  // number of frames that could be changed
	done int  // number of frames that were changed
}

func (n *tamper) change(b []byte, how func(*wire.Frame) bool) []byte {
	var f wire.Frame
	if how == nil || wire.ParseFrame(b, &f) != nil || !wire.CheckICRC(b) {
		return b
	}
	f.Payload = append([]byte(nil), f.Payload...)
	if !how(&f) {
		return b
	}
	if n.seen++; n.seen%5 != 0 && !n.all {
		return b
	}
	n.done++
	return f.AppendTo(nil)
}

func (n *tamper) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	f.Data = n.change(f.Data, n.in)
	n.Node.Frame(now, port, f, out)
	n.spoil(out)
}

func (n *tamper) Tick(now clock.Time, out *packetio.Batch) {
	n.Node.Tick(now, out)
	n.spoil(out)
}

func (n *tamper) spoil(out *packetio.Batch) {
	for i := range out.Frames {
		out.Frames[i].Data = n.change(out.Frames[i].Data, n.out)
	}
}

func opcode(ops ...wire.Opcode) func(*wire.Frame) bool {
	return func(f *wire.Frame) bool {
		for _, op := range ops {
			if f.BTH.Opcode == op {
				return true
			}
		}
		return false
	}
}

func flipPayload(is func(*wire.Frame) bool) func(*wire.Frame) bool {
	return func(f *wire.Frame) bool {
		if !is(f) || len(f.Payload) == 0 {
			return false
		}
		f.Payload[len(f.Payload)/2] ^= 4
		return true
	}
}

// Each of these bugs is found, so a run that succeeds proves something.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	write := opcode(wire.RCWriteFirst, wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly)
	for _, bug := range []struct {
		name    string
		in, out func(*wire.Frame) bool
	}{
		{name: "a WRITE stores a wrong byte", in: flipPayload(write)},
		{name: "a WRITE stores at a wrong place", in: func(f *wire.Frame) bool {
			if f.BTH.Opcode != wire.RCWriteOnly || f.RETH.Length < 16 {
				return false
			}
			f.RETH.VA ^= 8
			return true
		}},
		{name: "a READ returns a wrong byte", out: flipPayload(opcode(wire.RCReadResponseFirst, wire.RCReadResponseMiddle, wire.RCReadResponseLast, wire.RCReadResponseOnly))},
		{name: "a SEND delivers a wrong byte", in: flipPayload(opcode(wire.RCSendFirst, wire.RCSendMiddle, wire.RCSendLast, wire.RCSendOnly, wire.RCSendOnlyImm, wire.RCSendLastImm))},
		{name: "a SEND delivers wrong immediate data", in: func(f *wire.Frame) bool {
			f.ImmDt ^= 1
			return opcode(wire.RCSendOnlyImm, wire.RCSendLastImm)(f)
		}},
		{name: "a FETCH_ADD is done twice", in: func(f *wire.Frame) bool {
			f.AtomicETH.SwapOrAdd *= 2 // the value that a second execution would leave
			return f.BTH.Opcode == wire.RCFetchAdd
		}},
		{name: "a FETCH_ADD is answered and not done", in: func(f *wire.Frame) bool {
			f.AtomicETH.SwapOrAdd = 0
			return f.BTH.Opcode == wire.RCFetchAdd
		}},
		{name: "a CAS is answered and not done", in: func(f *wire.Frame) bool {
			f.AtomicETH.SwapOrAdd = f.AtomicETH.Compare
			return f.BTH.Opcode == wire.RCCmpSwap
		}},
		{name: "an atomic returns a wrong original value", out: func(f *wire.Frame) bool {
			f.AtomicAck++
			return f.BTH.Opcode == wire.RCAtomicAck
		}},
	} {
		t.Run(bug.name, func(t *testing.T) {
			planted, caught := 0, 0
			for seed := uint64(1); seed <= 6; seed++ {
				node := &tamper{in: bug.in, out: bug.out}
				r := mustFind(t, "transport").Run(seed, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
					if name != server {
						return n
					}
					node.Node = n
					return node
				}})
				if node.done == 0 {
					continue
				}
				planted++
				if r.Err != nil {
					caught++
				} else {
					t.Logf("seed %d: not caught (%s)", seed, r.Plan)
				}
			}
			if planted < 4 || caught != planted {
				t.Errorf("caught %d of %d", caught, planted)
			}
		})
	}
}

// A server that never answers is found: losses do not explain this. The error names the client.
func TestDeafServerIsCaught(t *testing.T) {
	swallow := func(name string, n simnet.Node) simnet.Node {
		if name != server {
			return n
		}
		return deaf{n}
	}
	for seed := uint64(1); seed <= 12; seed++ {
		r := mustFind(t, "transport").Run(seed, Options{Wrap: swallow})
		if r.Err == nil || !strings.Contains(r.Err.Error(), "client cn") {
			t.Errorf("seed %d: a deaf server gave %v", seed, r.Err)
		}
	}
}

// lossBothWays returns rules by which the links of the clients lose frames in both directions.
func lossBothWays(p float64) []fault.Rule {
	return []fault.Rule{{Link: "cn0", Kind: fault.Loss, Probability: p}, {Link: "cn1", Kind: fault.Loss, Probability: p}}
}

// It is not a failure of the NIC if a client's retries are exhausted because links lose packets.
func TestRetryLimitsAreJudged(t *testing.T) {
	t.Parallel()
	seeds := []uint64{
		68, 82, // the client repeats only the tail of a READ
		309, 377, // only packets that ask for no answer arrive, such as the first one of a WRITE
		2131, // an ACK has the PSN of a READ, and does not complete it
	}
	for seed := uint64(1); seed <= 12; seed++ {
		seeds = append(seeds, seed)
	}
	gaveUp := 0
	for _, seed := range seeds {
		r := mustFind(t, "transport").Run(seed, Options{rules: lossBothWays(0.5)})
		if r.Err != nil {
			t.Errorf("seed %d (%s): %v", seed, r.Plan, r.Err)
		}
		if r.GaveUp {
			gaveUp++
		}
	}
	if gaveUp < 11 {
		t.Errorf("%d of %d runs gave up at 75%% loss of each round trip", gaveUp, len(seeds))
	}
}

// A client that gives up one retry too early is found, though the links have lost nearly everything;
// one that uses all its retries is not a failure.
func TestEarlyEndOfRetriesIsCaught(t *testing.T) {
	t.Parallel()
	for count, early := range map[uint8]bool{retries: false, retries - 1: true} {
		s := mustFind(t, "transport")
		s.run = func(e *env) error {
			p := new(transportPlan).draw(e)
			p.kinds = []string{clientMix, clientMix, clientContend, clientContend}
			p.params.RetryCount = count
			return p.play(e)
		}
		for seed := uint64(1); seed <= 50; seed++ {
			r := s.Run(seed, Options{rules: lossBothWays(0.99)})
			if (r.Err != nil) != early || r.GaveUp == early {
				t.Errorf("%d retries, seed %d (%s): %v, gave up: %v", count, seed, r.Plan, r.Err, r.GaveUp)
			}
		}
	}
}

// deaf drops every frame.
type deaf struct{ simnet.Node }

func (deaf) Frame(clock.Time, int, packetio.Frame, *packetio.Batch) {}
