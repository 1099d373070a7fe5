package journal

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	client = netip.MustParseAddr("10.77.0.5")
	server = netip.MustParseAddr("fd00:77::2")
)

func open(t testing.TB, b []byte) *Journal {
	t.Helper()
	r, err := Open(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func move(t testing.TB, r *Journal, flow Flow) Slot {
	t.Helper()
	s, err := r.Move(flow)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var ignoreSlots = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(Flow{}, "Slot"), cmpopts.IgnoreFields(Conn{}, "Slot")}

// A later incarnation reads the entries of an earlier one, except those that had ended.
func TestIncarnations(t *testing.T) {
	b := make([]byte, Size)
	first := open(t, b)
	if f := first.Former(); f.Flows != nil || f.Conns != nil {
		t.Errorf("an empty journal has %+v", f)
	}
	flows := []Flow{
		{Client: client, Server: server, ClientQPN: 0x11, ServerQPN: 0xffffff, Oldest: 7},
		{Client: client, Server: server, ClientQPN: 0x12, ServerQPN: 0x22, Oldest: 0xffffff},
	}
	var slots []Slot
	for _, flow := range flows {
		slots = append(slots, move(t, first, flow))
	}
	gone := move(t, first, Flow{Client: client, Server: server, ClientQPN: 0x13})
	first.EndFlow(gone)
	first.EndFlow(gone) // frees the slot once
	first.Answered(slots[0], 0xfffffe)
	conn := Conn{Server: server, OwnID: 1, ServerID: 2, ServerQPN: 3}
	if _, err := first.Dial(conn); err != nil {
		t.Fatal(err)
	}
	if s := first.Stats(); s.Flows != 2 || s.Conns != 1 {
		t.Errorf("%+v", s)
	}

	second := open(t, b)
	flows[0].Oldest = 0xfffffe
	got := second.Former()
	slices.SortFunc(got.Flows, func(a, b Flow) int { return int(a.ClientQPN) - int(b.ClientQPN) })
	if d := cmp.Diff(Former{Flows: flows, Conns: []Conn{conn}}, got, ignoreSlots); d != "" {
		t.Error(d)
	}
	// The slots are in use until they are freed.
	taken := move(t, second, Flow{Client: client, Server: server})
	for _, flow := range got.Flows {
		if flow.Slot == taken {
			t.Error("the slot of a former flow was given away")
		}
		second.EndFlow(flow.Slot)
	}
	second.EndConn(got.Conns[0].Slot)
	second.EndFlow(taken)
	if f := open(t, b).Former(); len(f.Flows) != 0 || len(f.Conns) != 0 {
		t.Errorf("left %+v", f)
	}
}

// A slot that was not written completely is free.
func TestTornSlots(t *testing.T) {
	b := make([]byte, Size)
	r := open(t, b)
	at := flowsAt + (int(move(t, r, Flow{Client: client, Server: server, ClientQPN: 5, ServerQPN: 6}))-1)*slotLen
	for i := range sumAt + 4 {
		b[at+i] ^= 0x40
		if f := open(t, b).Former(); len(f.Flows) != 0 {
			t.Errorf("byte %d: %+v", i, f.Flows)
		}
		b[at+i] ^= 0x40
	}
	if f := open(t, b).Former(); len(f.Flows) != 1 {
		t.Error("the whole slot is not found")
	}
}

// Entries beyond the maximum are refused and counted, and there is room again when one ends.
func TestFull(t *testing.T) {
	r := open(t, make([]byte, Size))
	var last Slot
	for range MaxFlows {
		last = move(t, r, Flow{Client: client, Server: server})
	}
	if _, err := r.Move(Flow{Client: client, Server: server}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	r.EndFlow(last)
	move(t, r, Flow{Client: client, Server: server})
	for range MaxConns {
		if _, err := r.Dial(Conn{Server: server}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Dial(Conn{Server: server}); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	r.EndConn(0) // there is a slot of a flow before the first one of a connection
	if s := r.Stats(); s.Flows != MaxFlows || s.Conns != MaxConns || s.Refused != 2 {
		t.Errorf("%+v", s)
	}
}

// If both banks are complete, the newer one is used.
func TestRules(t *testing.T) {
	b := make([]byte, Size)
	r := open(t, b)
	if _, ok := r.Rules(); ok {
		t.Error("there are rules in an empty journal")
	}
	for _, text := range []string{"first", "", strings.Repeat("x", MaxRules), "fourth"} {
		if err := r.SetRules(text); err != nil {
			t.Fatal(err)
		}
		for _, at := range []*Journal{r, open(t, b)} {
			if got, ok := at.Rules(); !ok || got != text {
				t.Errorf("got %.20q, %v; want %.20q", got, ok, text)
			}
		}
	}
	if err := r.SetRules(strings.Repeat("x", MaxRules+1)); err == nil {
		t.Error("too long a text is kept")
	}
	r.bankOf(r.bank)[bankHead] ^= 1 // as if the process had died while it wrote
	if got, ok := open(t, b).Rules(); !ok || len(got) != MaxRules {
		t.Errorf("after a torn write: %.20q, %v", got, ok)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(make([]byte, Size-1)); err == nil {
		t.Error("a short record is taken")
	}
	b := make([]byte, Size)
	copy(b, "rdmalab switch 0")
	if _, err := Open(b); err == nil {
		t.Error("a journal of another version is taken")
	}
	Format(b)
	move(t, open(t, b), Flow{Client: client, Server: server})
	Format(b)
	if f := open(t, b).Former(); len(f.Flows) != 0 {
		t.Errorf("an empty journal has %+v", f)
	}
	clear(b)
	open(t, b)
	if string(b[:len(magic)]) != magic {
		t.Error("a new journal has no magic")
	}
}

// The nil journal stores nothing.
func TestNil(t *testing.T) {
	var r *Journal
	s, err := r.Move(Flow{})
	c, cerr := r.Dial(Conn{})
	r.Answered(s, 1)
	r.EndFlow(s)
	r.EndConn(c)
	r.SetBehind(7)
	if s != 0 || c != 0 || r.FormerlyBehind() != 0 {
		t.Errorf("slots %d and %d, %d behind", s, c, r.FormerlyBehind())
	}
	if _, ok := r.Rules(); ok || err != nil || cerr != nil || r.SetRules("x") != nil || r.Stats() != (Stats{}) || r.Former().Flows != nil {
		t.Error("the nil record does something")
	}
}

// Open does not panic on any bytes, and the entries that it reads can be freed.
func FuzzOpen(f *testing.F) {
	f.Add([]byte("x"), uint16(flowsAt))
	f.Add([]byte{0, 0, 1, 0, 0, 0, 2, 0, 9, 9, 9, 9, 0, 0, 0, 0, 'a'}, uint16(0))
	f.Fuzz(func(t *testing.T, part []byte, at uint16) {
		b := make([]byte, Size)
		copy(b, magic)
		copy(b[banksAt:], part)
		copy(b[int(at)+headLen:], part)
		r, err := Open(b)
		if err != nil {
			return
		}
		r.Rules()
		for _, flow := range r.Former().Flows {
			r.EndFlow(flow.Slot)
		}
		for _, c := range r.Former().Conns {
			r.EndConn(c.Slot)
		}
		if len(open(t, b).Former().Flows) != 0 {
			t.Error("flows are left")
		}
	})
}

// BenchmarkAnswered measures what the journal costs for each response to a moved flow.
func BenchmarkAnswered(b *testing.B) {
	r := open(b, make([]byte, Size))
	s := move(b, r, Flow{Client: client, Server: server})
	b.ReportAllocs()
	for b.Loop() {
		r.Answered(s, 5)
	}
}

// BenchmarkMove measures what the journal costs for the first move of a flow.
func BenchmarkMove(b *testing.B) {
	r := open(b, make([]byte, Size))
	b.ReportAllocs()
	for b.Loop() {
		r.EndFlow(move(b, r, Flow{Client: client, Server: server}))
	}
}

// What incarnations have counted and not had confirmed adds up, also if one dies before it has
// counted anything.
func TestBehind(t *testing.T) {
	b := make([]byte, Size)
	for i, c := range []struct{ former, last uint64 }{{0, 1 << 40}, {1 << 40, 5}, {1<<40 + 5, 0}, {1<<40 + 5, 3}} {
		r := open(t, b)
		if got := r.FormerlyBehind(); got != c.former {
			t.Errorf("incarnation %d: %d, want %d", i, got, c.former)
		}
		if c.last != 0 {
			r.SetBehind(9)
			r.SetBehind(c.last)
		}
	}
}

// The zero slot names no entry, in a journal that has entries. A former connection keeps its slot.
func TestTheZeroSlot(t *testing.T) {
	b := make([]byte, Size)
	r := open(t, b)
	move(t, r, Flow{Client: client, Server: server, Oldest: 5})
	first, err := r.Dial(Conn{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(b)
	r.Answered(0, 0xffffff)
	r.EndFlow(0)
	r.EndConn(0)
	if !slices.Equal(b, before) || r.Stats() != (Stats{Flows: 1, Conns: 1}) {
		t.Errorf("%+v", r.Stats())
	}
	r = open(t, b)
	if s := r.Stats(); s != (Stats{Flows: 1, Conns: 1}) {
		t.Errorf("%+v", s)
	}
	for range MaxConns - 1 {
		if s, err := r.Dial(Conn{Server: server}); err != nil || s == first {
			t.Fatalf("slot %d, %v", s, err)
		}
	}
}

// A slot whose contents have the checksum 0, which marks free slots, is in use all the same.
func TestChecksumZero(t *testing.T) {
	for tail, want := range map[uint32]uint32{0x8435372c: 1, 0x5f44316d: 1} { // behind 40 bytes of zeros: checksums 0 and 1
		s := make([]byte, slotLen)
		if sealed(s) {
			t.Error("an empty slot is in use")
		}
		le.PutUint32(s[sumAt-4:], tail)
		seal(s)
		if !sealed(s) || sum(s) != want {
			t.Errorf("%#x: checksum %d, sealed %v", tail, sum(s), sealed(s))
		}
	}
}
