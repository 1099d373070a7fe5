package cost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// memory has one region of the host and one of the NIC, known by rkey.
var memory = map[uint32][]byte{hostKey: make([]byte, 1<<16), deviceKey: make([]byte, 1<<16)}

const hostKey, deviceKey = 1, 2

func locate(rkey uint32, va uint64, n int) ([]byte, bool) {
	b := memory[rkey]
	if va >= uint64(len(b)) {
		return nil, false
	}
	return b[va&^7 : min(len(b), int(va)+n)], rkey == deviceKey
}

// nic has round costs, in microseconds.
func nic() *NIC {
	return &NIC{
		Doorbell: 700, Completion: 500,
		Write:  Verb{Total: 1e7, QP: Place[Rate]{1e6, 2e6}, Latency: Place[time.Duration]{140, 40}},
		Read:   Verb{Total: 1e7, QP: Place[Rate]{1e6, 2e6}, Latency: Place[time.Duration]{340, 40}},
		Atomic: Verb{Total: 1e7, QP: Place[Rate]{1e6, 2e6}, Word: Place[Rate]{5e5, 1e6}, Latency: Place[time.Duration]{340, 40}},
		Send:   Verb{Total: 1e7, QP: Place[Rate]{1e6, 1e6}, Latency: Place[time.Duration]{340, 340}},
	}
}

// packet builds a frame for a queue pair.
func packet(o wire.Opcode, qpn wire.QPN, rkey uint32, va uint64, payload int) []byte {
	f := &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: o, DestQP: qpn}, Payload: make([]byte, payload)}}
	f.RETH = wire.RETH{VA: va, RKey: rkey, Length: uint32(payload)}
	f.AtomicETH = wire.AtomicETH{VA: va, RKey: rkey}
	if o == wire.RCReadRequest {
		f.RETH.Length = 64
	}
	return f.AppendTo(nil)
}

// A step is a packet, the time of its arrival, and the time at which the model must hand it over.
type step struct {
	now   clock.Time
	frame []byte
	want  clock.Time
}

func TestArrive(t *testing.T) {
	w, r, cas := wire.RCWriteOnly, wire.RCReadRequest, wire.RCCmpSwap
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"latency is no occupancy", []step{{0, packet(w, 1, hostKey, 0, 8), 140}, {2000, packet(w, 1, hostKey, 0, 8), 2140}}},
		{"a queue pair serialises", []step{{0, packet(w, 1, hostKey, 0, 8), 140}, {0, packet(w, 1, hostKey, 64, 8), 1140}, {0, packet(w, 1, hostKey, 128, 8), 2140}}},
		{"faster on the NIC", []step{{0, packet(w, 1, deviceKey, 0, 8), 40}, {0, packet(w, 1, deviceKey, 64, 8), 540}}},
		{"queue pairs share the NIC", []step{{0, packet(w, 1, hostKey, 0, 8), 140}, {0, packet(w, 2, hostKey, 64, 8), 240}, {0, packet(w, 3, hostKey, 128, 8), 340}}},
		{"a word serialises", []step{{0, packet(cas, 1, hostKey, 0, 0), 340}, {0, packet(cas, 2, hostKey, 0, 0), 2340}, {0, packet(cas, 3, hostKey, 8, 0), 540}}},
		{"a word on the NIC", []step{{0, packet(cas, 1, deviceKey, 0, 0), 40}, {0, packet(cas, 2, deviceKey, 0, 0), 1040}, {0, packet(cas, 3, hostKey, 0, 0), 540}}},
		{"what touches a word waits", []step{{0, packet(cas, 1, hostKey, 72, 0), 340}, {0, packet(r, 2, hostKey, 20, 0), 2340}, {0, packet(w, 3, hostKey, 80, 8), 340}, {0, packet(w, 4, hostKey, 68, 4), 440}, {0, packet(w, 5, hostKey, 68, 5), 2140}, {0, packet(w, 6, hostKey, 0, 256), 2140}}},
		{"a slow word holds its queue pair", []step{{0, packet(cas, 1, hostKey, 0, 0), 340}, {0, packet(w, 1, hostKey, 512, 8), 2140}}},
		{"a queue pair keeps its order", []step{{0, packet(r, 1, hostKey, 0, 0), 340}, {1000, packet(w, 1, deviceKey, 0, 8), 1040}, {1001, packet(r, 1, hostKey, 0, 0), 1840}, {2000, packet(w, 1, deviceKey, 0, 8), 2540}}},
		{"a message goes on where it began", []step{{0, packet(wire.RCWriteFirst, 1, deviceKey, 0, 256), 40}, {0, packet(wire.RCWriteLast, 1, 0, 0, 4), 540}}},
		{"an answer", []step{{0, packet(wire.RCAck, 1, 0, 0, 0), 500}, {0, packet(wire.RCReadResponseOnly, 1, 0, 0, 8), 500}}},
		{"an answer overtakes requests", []step{{0, packet(w, 1, hostKey, 0, 8), 140}, {0, packet(w, 1, hostKey, 0, 8), 1140}, {0, packet(wire.RCAck, 1, 0, 0, 0), 500}}},
		{"an address of nothing", []step{{0, packet(cas, 1, 9, 0, 0), 340}, {0, packet(cas, 2, 9, 0, 0), 440}}},
		{"a datagram", []step{{0, packet(wire.UDSendOnly, 1, 0, 0, 8), 340}}},
		{"no RoCE", []step{{7, []byte("an ARP request, perhaps"), 7}, {8, nil, 8}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := nic().NewCard(locate, 1)
			for i, s := range tc.steps {
				if got := c.Arrive(s.now, s.frame); got != s.want {
					t.Errorf("step %d: handed over at %v, want %v", i, got, s.want)
				}
			}
		})
	}
}

// A request that stalls holds back later ones of its queue pair alone. Answers do not stall.
func TestStall(t *testing.T) {
	begin := func(share float64, seed uint64) (at []clock.Time) {
		n := nic()
		n.Stall = Stall{Share: share, Mean: time.Microsecond}
		c := n.NewCard(locate, seed)
		for i := range clock.Time(1000) {
			at = append(at, c.Begin(10*i, packet(wire.RCCmpSwap, wire.QPN(i%4), hostKey, 0, 0)))
		}
		if at := c.Begin(5, packet(wire.RCAtomicAck, 9, 0, 0, 8)); at != 5 {
			t.Errorf("share %v: an answer of time 5 begins at %v", share, at)
		}
		return at
	}
	overtaken := func(at []clock.Time, apart int) (n int) {
		for i := apart; i < len(at); i++ {
			if at[i] < at[i-apart] {
				n++
			}
		}
		return n
	}
	for i, at := range begin(0, 1) {
		if at != clock.Time(10*i) {
			t.Fatalf("without stalls request %d begins at %v", i, at)
		}
	}
	some := begin(0.05, 1)
	if overtaken(some, 4) > 0 || overtaken(some, 1) < 10 {
		t.Errorf("%d requests are overtaken by the next one of their queue pair, %d by the next one of another", overtaken(some, 4), overtaken(some, 1))
	}
	if !slices.Equal(some, begin(0.05, 1)) || slices.Equal(some, begin(0.05, 2)) {
		t.Error("the seed does not decide which requests stall")
	}
	var sum clock.Time
	const requests = 20_000
	n := nic()
	n.Stall = Stall{Share: 0.25, Mean: 4 * time.Microsecond}
	for i, c := wire.QPN(0), n.NewCard(locate, 3); i < requests; i++ {
		sum += c.Begin(0, packet(wire.RCWriteOnly, i, hostKey, 0, 8))
	}
	if mean := sum / requests; mean < 950 || mean > 1050 {
		t.Errorf("a quarter stalls for 4 us on average: the mean of all requests is %v, want 1 us", mean)
	}
}

// Atomics to words whose addresses are equal modulo the slots exclude each other, wherever their
// memory is. Other requests wait only for the word that they access.
func TestSlots(t *testing.T) {
	w, cas := wire.RCWriteOnly, wire.RCCmpSwap
	n := nic()
	n.Atomic.Slots = 4096
	c := n.NewCard(locate, 1)
	for i, s := range []step{
		{0, packet(cas, 1, hostKey, 8, 0), 340},
		{0, packet(cas, 2, hostKey, 8+4096, 0), 2340},
		{0, packet(cas, 3, hostKey, 16, 0), 540},
		{0, packet(cas, 4, deviceKey, 8+8192, 0), 4040},
		{0, packet(w, 5, hostKey, 8+8192, 8), 540},
	} {
		if got := c.Arrive(s.now, s.frame); got != s.want {
			t.Errorf("step %d: handed over at %v, want %v", i, got, s.want)
		}
	}
}

func TestDepart(t *testing.T) {
	c := nic().NewCard(locate, 1)
	for i, s := range []struct {
		now    clock.Time
		frame  []byte
		posted bool
		want   clock.Time
	}{
		{0, packet(wire.RCWriteOnly, 1, 0, 0, 8), true, 700},
		{0, packet(wire.RCWriteOnly, 1, 0, 0, 8), true, 800},
		{0, packet(wire.RCWriteOnly, 2, 0, 0, 8), false, 200}, // another queue pair, no doorbell
		{0, packet(wire.RCWriteOnly, 1, 0, 0, 8), false, 800}, // packets of one queue pair stay in order
		{0, packet(wire.RCAck, 1, 0, 0, 0), false, 0},
		{5, []byte("no RoCE"), true, 5},
		{9000, packet(wire.RCReadRequest, 1, 0, 0, 0), true, 9700},
	} {
		if got := c.Depart(s.now, s.frame, s.posted); got != s.want {
			t.Errorf("step %d: leaves at %v, want %v", i, got, s.want)
		}
	}
}

// Rates that are not a whole number of nanoseconds are exact in the long run.
func TestRatesAreExact(t *testing.T) {
	n := nic()
	n.Write.Total = 63_000_000
	c := n.NewCard(locate, 1)
	const packets = 63_000
	var last clock.Time
	for i := range packets {
		last = c.Depart(0, packet(wire.RCWriteOnly, wire.QPN(i%20), 0, 0, 8), false)
	}
	if want := clock.Time(time.Millisecond); last < want-20 || last > want {
		t.Errorf("%d packets took %v, want a bit less than %v", packets, last, want)
	}
}

// The state of a card is bounded, however many queue pair numbers arrive.
func TestMemoryIsBounded(t *testing.T) {
	c := nic().NewCard(locate, 1)
	now := clock.Time(0)
	for i := range wire.QPN(3 * maxPairs) {
		now += 10_000
		c.Arrive(now, packet(wire.RCCmpSwap, i, hostKey, uint64(i)*8%(1<<16), 0))
		c.Depart(now, packet(wire.RCWriteOnly, i, 0, 0, 8), true)
	}
	if len(c.here) > maxPairs || len(c.peers) > maxPairs || len(c.words.busy) > maxWords {
		t.Errorf("%d queue pairs, %d peers and %d words are remembered", len(c.here), len(c.peers), len(c.words.busy))
	}
}

func TestBox(t *testing.T) {
	a, b := packet(wire.RCWriteOnly, 1, 0, 0, 8), packet(wire.RCWriteOnly, 2, 0, 0, 8)
	free := NewBox(&Switch{Delay: 450})
	for range 3 {
		if got := free.Depart(100, a, nil); got != 550 {
			t.Errorf("a switch at line rate sends at %v, want 550ns", got)
		}
	}
	x := NewBox(&Switch{Delay: 450, Cores: 1 << 10, Forward: 1e7, Rewrite: 1e6})
	for i, s := range []struct {
		frame, cause []byte
		want         clock.Time
	}{
		{a, a, 550}, {a, b, 1550}, {a, nil, 2550}, // one packet was rewritten, one was made
		{b, b, 550}, // on a core of its own
		{[]byte("no RoCE"), nil, 450},
	} {
		if got := x.Depart(0, s.frame, s.cause); got != s.want {
			t.Errorf("step %d: leaves at %v, want %v", i, got, s.want)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := (&Model{}).Validate(); err != nil {
		t.Errorf("the zero model: %v", err)
	}
	for want, spoil := range map[string]func(*Model){
		"link delay":    func(m *Model) { m.Link.Delay = -1 },
		"switch delay":  func(m *Model) { m.Switch.Delay = 2 * time.Second },
		"client post":   func(m *Model) { m.Client.Post = -1 },
		"client poll":   func(m *Model) { m.Client.Poll = -1 },
		"doorbell":      func(m *Model) { m.NIC.Doorbell = -1 },
		"completion":    func(m *Model) { m.NIC.Completion = 2 * time.Second },
		"link rate":     func(m *Model) { m.Link.Rate = -1 },
		"link overhead": func(m *Model) { m.Link.Overhead = -1 },
		"cores":         func(m *Model) { m.Switch.Cores = MaxCores + 1 },
		"rate of -1":    func(m *Model) { m.NIC.Atomic.Word.Device = -1 },
		"rate of -2":    func(m *Model) { m.Switch.Rewrite = -2 },
		"latency":       func(m *Model) { m.NIC.Send.Latency.Host = -1 },
		"slots":         func(m *Model) { m.NIC.Atomic.Slots = MaxSlots + 8 },
	} {
		var m Model
		spoil(&m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestRateString(t *testing.T) {
	for r, want := range map[Rate]string{0: "unlimited", 18_600_000: "18.6M", 500_000: "500k", 1234: "1234"} {
		if got := r.String(); got != want {
			t.Errorf("%d prints %s, want %s", int64(r), got, want)
		}
	}
}

func TestOtherRacks(t *testing.T) {
	m := &Model{Link: Link{Delay: 100}, Switch: Switch{Cores: 3, Delay: 9}}
	if b := m.BackToBack(); b.Switch != (Switch{}) || b.Link.Delay != 50 {
		t.Errorf("back to back: %+v", b)
	}
	if l := m.AtLineRate(); l.Switch.Cores != 0 || l.Switch.Delay != 9 || m.Switch.Cores != 3 {
		t.Errorf("at line rate: %+v", l)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(packet(wire.RCCmpSwap, 1, hostKey, 8, 0))
	f.Add(packet(wire.RCReadRequest, 1, deviceKey, 1<<62, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, x := nic().NewCard(locate, 1), NewBox(&Switch{Cores: 3, Rewrite: 1})
		for range 2 {
			if c.Arrive(5, b) < 5 || c.Depart(5, b, true) < 5 || x.Depart(5, b, nil) < 5 {
				t.Error("a frame goes back in time")
			}
		}
	})
}

func BenchmarkArrive(b *testing.B) {
	c, p := nic().NewCard(locate, 1), packet(wire.RCCmpSwap, 1, hostKey, 8, 0)
	b.ReportAllocs()
	for i := range b.N {
		c.Arrive(clock.Time(i)*1000, p)
	}
}
