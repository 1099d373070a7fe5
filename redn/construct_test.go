package redn_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// machine is a redn.Machine under test.
type machine struct {
	t testing.TB
	*redn.Machine
	main, enabled *redn.Queue
}

const ringBlocks = 64

// newMachine makes a machine. managed false: the second queue prefetches, too.
func newMachine(t testing.TB, managed bool) *machine {
	t.Helper()
	m, err := redn.NewMachine(managed)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t: t, Machine: m, main: m.Main, enabled: m.Second}
}

func (m *machine) run() {
	m.t.Helper()
	if err := m.Run(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) verify(want string) {
	m.t.Helper()
	err := redn.Verify(nil, m.main, m.enabled)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		m.t.Fatalf("verify: %v, want %q", err, want)
	}
}

// Each construct gives what the same statement in Go gives, for random inputs: over the wraps of the
// ring and of the 16 bits of an index.
func TestConstructsAgreeWithGo(t *testing.T) {
	m := newMachine(t, true)
	rnd := rand.New(rand.NewPCG(7, 7))
	for i := range verbstest.Tries(verbstest.Constructs*100_000, verbstest.Constructs*10_000) {
		kind := i % verbstest.Constructs
		want := verbstest.Construct(rnd, kind, m.main, m.enabled, m.Data.At(0, verbstest.ConstructData), m.Memory)
		if i < 100 {
			m.verify("")
		}
		m.run()
		if got := m.Memory[:len(want)]; !bytes.Equal(got, want) {
			t.Fatalf("run %d, construct %d:\ngot  % x\nwant % x", i, kind, got, want)
		}
	}
}

// An if whose operand the conditional request holds takes as many requests as in Table 2 of the paper. It decides by what
// was put there before it began.
func TestHeldOperand(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	m := newMachine(t, true)
	q, err := m.Add("q", ringBlocks)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		y := redn.Operand(rnd.Uint64() & (1<<48 - 1))
		x := y
		if i%2 == 1 {
			x ^= 1 << rnd.IntN(48)
		}
		binary.LittleEndian.PutUint64(m.Memory, uint64(x))
		binary.LittleEndian.PutUint64(m.Memory[8:], 0)
		binary.LittleEndian.PutUint64(m.Memory[16:], 77)
		w := q.If(m.enabled, redn.Held, y, m.Data.At(8, 8), m.Data.At(16, 8), m.Data.At(24, 8))
		if got, want := redn.CostOf(q, m.enabled), (redn.Cost{Copies: 1, Atomics: 1, Controls: 3}); got != want {
			t.Fatalf("%+v, want %+v", got, want)
		}
		low, high := w.Operand()
		if i%4 < 2 {
			m.main.Read(sendring.Signalled, m.Data.At(0, redn.OperandLen), low, high) // as a receive would
		} else {
			w.Hold(x)
			m.main.Nop(sendring.Signalled)
		}
		m.main.Wait(m.main.Done)
		m.main.Enable(q)
		m.run()
		if got, want := binary.LittleEndian.Uint64(m.Memory[8:]), map[bool]uint64{true: 77}[x == y]; got != want {
			t.Fatalf("run %d: x %x, y %x: %d, want %d", i, x, y, got, want)
		}
	}
}

// An if takes as many requests as in Table 2 of the paper, and one that copies its operand.
func TestCost(t *testing.T) {
	m := newMachine(t, true)
	m.main.If(m.enabled, m.Data.At(0, 8), 1, m.Data.At(8, 8), m.Data.At(16, 8), m.Data.At(24, 8))
	if got, want := redn.CostOf(m.main), (redn.Cost{Copies: 1, Atomics: 1, Controls: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := redn.CostOf(m.enabled), (redn.Cost{Copies: 1}); got != want {
		t.Errorf("the conditional request: %+v, want %+v", got, want)
	}
}

// The second copy of a load is enabled when its address has been patched: between the READ and the
// ENABLE is a WAIT.
func TestCostOfLoad(t *testing.T) {
	m := newMachine(t, true)
	m.main.Load(m.enabled, m.Data.At(0, 8), m.Data.At(8, 8), m.Data.RKey)
	if got, want := redn.CostOf(m.main, m.enabled), (redn.Cost{Copies: 2, Controls: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// With a queue that is not managed the NIC has read the request before the program changes it: the
// condition has no effect.
func TestStaleFetch(t *testing.T) {
	for _, managed := range []bool{true, false} {
		m := newMachine(t, managed)
		d := m.Memory
		binary.LittleEndian.PutUint64(d, 5)
		binary.LittleEndian.PutUint64(d[16:], 77)
		m.enabled.Nop(0)
		w := sendring.Entry{Op: sendring.NOP, Segments: 3, RemoteAddr: m.Data.Addr + 8, RKey: m.Data.RKey, NSGE: 1, Flags: sendring.Signalled}
		w.SGL[0] = verbs.SGE{Addr: m.Data.Addr + 16, Length: 8, LKey: m.Data.LKey}
		r := m.enabled.Append(w)
		low, high := r.Operand()
		m.main.Read(sendring.Signalled, m.Data.At(0, 6), low, high)
		m.main.Wait(m.main.Done)
		compare := append([]byte{5, 0, 0, 0, 0, 0, 0, 3}, make([]byte, 8)...)
		swap := uint64(sendring.Write)<<24 | 3<<56
		m.main.CAS(sendring.Signalled, r.Control(), m.Data.At(64, 8), binary.NativeEndian.Uint64(compare), swap)
		m.main.Wait(m.main.Done)
		if managed {
			m.main.Enable(m.enabled)
		}
		m.run()
		want := uint64(0)
		if managed {
			want = 77
		}
		if got := binary.LittleEndian.Uint64(d[8:]); got != want {
			t.Errorf("managed %t: %d, want %d", managed, got, want)
		}
	}
}

// Verify refuses what would hang or overrun, and says where.
func TestVerify(t *testing.T) {
	m := newMachine(t, true)
	m.enabled.Nop(0)
	m.verify("queue second is never enabled from index 0 on")
	m.main.Enable(m.enabled)
	m.verify("")
	m.run()
	m.main.Done.Count++ // a completion that no request causes
	m.main.Wait(m.main.Done)
	m.verify("queue main, index 1: WAIT for 1 completions")
	m = newMachine(t, true)
	outside := &redn.Counter{Number: 99, Count: 2}
	m.main.Wait(outside)
	m.verify("WAIT for 2 completions of queue 99, which gets 0")
	if err := redn.Verify(map[*redn.Counter]uint32{outside: 2}, m.main); err != nil {
		t.Error(err)
	}
	for range ringBlocks {
		m.enabled.Nop(0)
	}
	m.main.Enable(m.enabled)
	for range ringBlocks {
		m.main.Nop(0)
	}
	m.verify("66 blocks do not fit into a ring of 64")
	m = newMachine(t, true)
	m.enabled.OneBlock = true
	m.enabled.Read(0, m.Data.At(0, 3), m.Data.At(8, 1), m.Data.At(9, 1), m.Data.At(10, 1))
	m.verify("READ of 2 blocks; the queue's requests have one")
	m.enabled.OneBlock = false
	m.main.EnableUpTo(m.enabled, 1)
	m.verify("enabled up to index 1, inside of the request at 0, which has 2 blocks")
}

// Verify refuses counts of 16 bits that the ring takes for counts of the past.
func TestVerifyOverflow(t *testing.T) {
	for _, narrow := range []bool{true, false} {
		m := newMachine(t, true)
		m.enabled.Counts16 = narrow
		m.enabled.Wait(&redn.Counter{Number: 77, Count: 1 << 15})
		m.main.Enable(m.enabled)
		want := "WAIT for 32768 completions of queue 77, which gets 0"
		if narrow {
			want = "its counts overflow behind 32767"
		}
		m.verify(want)
	}
}

// A listing has a line for each entry.
func TestDisassemble(t *testing.T) {
	m := newMachine(t, true)
	m.main.If(m.enabled, m.Data.At(0, 8), 0x112233445566, m.Data.At(8, 8), m.Data.At(16, 8), m.Data.At(24, 8))
	var b []byte
	image, _ := m.main.Take()
	for _, p := range image {
		b = append(b, p.Bytes...)
	}
	b = append(b, bytes.Repeat([]byte{0xff}, 64)...)
	lines := redn.Disassemble(b, 0)
	for i, want := range []string{"READ", "CAS", "WAIT", "ENABLE", "WAIT", "?? unknown opcode"} {
		if i >= len(lines) || !strings.HasPrefix(lines[i][7:], want) {
			t.Errorf("line %d of\n%s\nwant %s", i, strings.Join(lines, "\n"), want)
		}
	}
	if len(lines) != 6 {
		t.Errorf("%d lines", len(lines))
	}
}
