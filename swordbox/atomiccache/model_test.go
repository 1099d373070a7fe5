package atomiccache

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

var seedFlag = flag.Uint64("seed", 0, "run only this seed of TestModel")

// The model is a memory server with real words, connections of a few clients, and the shared
// connection: queues in order, each with random delays. The clients send random operations. When
// the server executes an operation, the table's decision about it must agree with the memory.

// opsPerClient is how many operations a model runs.
const opsPerClient = 400

type modelOp struct {
	client int
	kind   byte // 'c' CAS, 'f' FAA, 'w' WRITE, 'l' long WRITE
	va     uint64
	rkey   uint32
	cmp    uint64
	operand,
	bits uint64 // value of a WRITE
	mask uint64
	n    uint32 // values of a long WRITE

	w       *Word
	d       Decision
	psn     wire.PSN
	refused bool
	orig    uint64
	lost    bool // the packet is lost: the server executes the operation late, or never
}

type model struct {
	t       *testing.T
	r       *rand.Rand
	table   *Table
	now     clock.Time
	memory  map[uint64]uint64
	shared  []*modelOp   // queue to the server
	acks    []*modelOp   // queue from the server
	own     [][]*modelOp // by client: queue to the server
	late    []*modelOp   // lost on the way, sent again later
	waiting []*modelOp   // in the order of their arrival
	busy    []bool       // by client: its oldest unanswered operation is not executed
	psn     []wire.PSN   // by client: next, and the first unanswered one
	acked   []wire.PSN
	grace   []Grace
	kinds   map[Kind]int
	literal map[uint64]bool // words to which no WRITE is allowed
	noKey   uint32          // an R_Key that the server refuses
	told    int             // CAS answered without the server
}

const (
	goodKey  = 7
	otherKey = 8
	badKey   = 9
)

func newModel(t *testing.T, seed uint64, clients int) *model {
	m := &model{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), memory: map[uint64]uint64{}, kinds: map[Kind]int{}, literal: map[uint64]bool{}, noKey: badKey,
		own: make([][]*modelOp, clients), busy: make([]bool, clients), psn: make([]wire.PSN, clients), acked: make([]wire.PSN, clients), grace: make([]Grace, clients),
	}
	m.table = New(Config{Max: 6, Budget: time.Millisecond, Patience: 20 * time.Microsecond, HoldOff: 40 * time.Microsecond})
	for i := range clients {
		m.psn[i] = wire.PSN(0xfffff0)
		m.acked[i] = m.psn[i]
	}
	if m.r.IntN(4) == 0 {
		m.literal[0x1008] = true
	}
	return m
}

// clean is the clean time that the switch would compute from its flows.
func (m *model) clean() clock.Time {
	c := clock.Never
	for i := range m.grace {
		c = clock.Min(c, m.grace[i].Clean(m.now, m.psn[i], m.acked[i]))
	}
	return c
}

// draw makes a new operation of a client.
func (m *model) draw(client int) *modelOp {
	op := &modelOp{client: client, va: 0x1000 + 8*uint64(m.r.IntN(8)), rkey: goodKey}
	if m.r.IntN(30) == 0 {
		op.rkey = otherKey + uint32(m.r.IntN(2))
	}
	op.cmp, op.operand = uint64(m.r.IntN(4)), uint64(m.r.IntN(4))
	switch p := m.r.IntN(20); {
	case p < 10:
		op.kind = 'c'
		if m.r.IntN(2) == 0 {
			op.cmp = m.memory[op.va] // a value with which the CAS is likely to succeed
		}
	case p < 15:
		op.kind = 'f'
	case p < 19:
		op.kind, op.mask = 'w', ^uint64(0)
		if m.r.IntN(2) == 0 {
			op.mask = 0xffff << (8 * m.r.IntN(7))
		}
		op.bits = uint64(m.r.IntN(1<<20)) * 0x1001 & op.mask
	default:
		op.kind, op.n = 'l', uint32(1+m.r.IntN(40))
		op.bits = uint64(m.r.IntN(1000))
	}
	return op
}

// offer asks the table about an operation, and sends it as the decision says. It returns false if
// the operation must wait.
func (m *model) offer(op *modelOp) bool {
	switch op.kind {
	case 'l':
		op.d = m.table.ClientAll(m.now, 1, op.va, op.n)
	case 'w':
		if op.w = m.table.Lookup(Key{1, op.va}); op.w != nil {
			op.d = op.w.Touch(m.now, op.rkey, transform.Piece{Bits: op.bits, Mask: op.mask})
		} else {
			op.d = Decision{Kind: Client}
		}
	default:
		if op.w = m.table.Get(m.now, Key{1, op.va}); op.w != nil {
			opcode := wire.RCCmpSwap
			if op.kind == 'f' {
				opcode = wire.RCFetchAdd
			} else if m.tell(op) {
				return true
			}
			op.d = op.w.Decide(m.now, m.clean(), op.rkey, opcode, op.cmp, op.operand)
		} else {
			op.d = Decision{Kind: Client}
		}
	}
	m.kinds[op.d.Kind]++
	switch op.d.Kind {
	case Wait:
		return false
	case Client:
		op.psn = m.psn[op.client]
		m.psn[op.client] = op.psn.Next()
		m.own[op.client] = append(m.own[op.client], op)
	default:
		m.shared = append(m.shared, op)
	}
	return true
}

// tell answers a CAS locally, if the table allows it. The memory must hold the told value at this
// moment.
func (m *model) tell(op *modelOp) bool {
	v, ok := op.w.Tell(m.now, op.rkey, op.cmp)
	if !ok {
		return false
	}
	if m.memory[op.va] != v || op.cmp == v {
		m.t.Fatalf("CAS of %#x from %d is told that it found %d; memory holds %d", op.va, op.cmp, v, m.memory[op.va])
	}
	if m.r.IntN(2) == 0 {
		return false // the model sends some of these operations to the server nevertheless
	}
	m.told++
	m.busy[op.client] = false
	return true
}

// after returns the value of a word after an operation.
func (op *modelOp) after(va, old uint64) uint64 {
	switch op.kind {
	case 'c':
		return transform.Result(wire.RCCmpSwap, op.cmp, op.operand, old)
	case 'f':
		return old + op.operand
	case 'w':
		return transform.Piece{Bits: op.bits, Mask: op.mask}.Apply(old)
	}
	return op.bits + va // a long WRITE
}

// execute executes the next operation on the server.
func (m *model) execute(op *modelOp) {
	if op.rkey == m.noKey || m.literal[op.va] && (op.kind == 'w' || op.d.Kind == Write) {
		op.refused = true
		return
	}
	if op.kind == 'l' {
		for va := op.va &^ 7; va < op.va+uint64(op.n); va += 8 {
			m.memory[va] = op.after(va, 0)
		}
		return
	}
	op.orig = m.memory[op.va]
	want := op.after(op.va, op.orig)
	switch op.d.Kind {
	case Write:
		if op.orig != op.d.Prior || want != op.d.Value {
			m.t.Fatalf("%c of %#x was decided as %+v; memory holds %d and should become %d", op.kind, op.va, op.d, op.orig, want)
		}
	case EmptyWrite:
		if op.orig != op.d.Prior || want != op.orig {
			m.t.Fatalf("%c of %#x was decided as %+v; memory holds %d and should become %d", op.kind, op.va, op.d, op.orig, want)
		}
	}
	m.memory[op.va] = want
}

// finish reports a response to the table.
func (m *model) finish(op *modelOp) {
	m.busy[op.client] = false
	if op.d.Kind == Client {
		m.acked[op.client] = op.psn.Next()
	}
	switch {
	case op.kind == 'l':
		m.table.EndAll(m.now, op.d, 1, op.va, op.n)
	case op.w == nil:
	case op.refused && op.d.Kind == Client:
		op.w.Undone(m.now, op.d)
	default:
		op.w.Answered(m.now, op.d, op.orig)
	}
}

// broken handles a fatal NAK on the shared connection for its oldest operation: the operations
// after it are not executed, and are decided again.
func (m *model) broken(guilty *modelOp) {
	replay := m.shared
	m.shared = nil
	literal := guilty.d.Kind == Write || guilty.d.Kind == EmptyWrite
	guilty.w.Refused(m.now, guilty.d)
	for _, op := range replay {
		op.w.Undone(m.now, op.d)
	}
	if literal {
		guilty.refused = false
		replay = append([]*modelOp{guilty}, replay...)
	} else {
		m.busy[guilty.client] = false
	}
	m.waiting = append(replay, m.waiting...)
	m.ask()
}

// ask asks the table about all waiting operations again, in their order.
func (m *model) ask() {
	list := m.waiting
	m.waiting = nil
	for _, op := range list {
		if !m.offer(op) {
			m.waiting = append(m.waiting, op)
		}
	}
}

// step makes one random step.
func (m *model) step() {
	m.now += clock.Time(m.r.IntN(2000))
	if m.r.IntN(200) == 0 {
		m.bypass()
	}
	c := m.r.IntN(len(m.own))
	switch p := m.r.IntN(10); {
	case p < 4:
		if !m.busy[c] {
			m.busy[c] = true
			if op := m.draw(c); !m.offer(op) {
				m.waiting = append(m.waiting, op)
			}
		}
	case p < 6 && len(m.own[c]) != 0:
		op := m.own[c][0]
		m.own[c] = m.own[c][1:]
		if !op.lost && m.r.IntN(20) == 0 { // its client retransmits it much later
			op.lost = true
			m.late = append(m.late, op)
			return
		}
		m.execute(op)
		m.acks = append(m.acks, op)
	case p < 8 && len(m.shared) != 0:
		op := m.shared[0]
		m.shared = m.shared[1:]
		if m.execute(op); op.refused {
			if op.rkey == m.noKey {
				m.t.Fatal("a key that never worked reached the shared connection")
			}
			for len(m.acks) != 0 { // the NAK acknowledges the operations before it
				m.answer()
			}
			m.broken(op)
			return
		}
		m.acks = append(m.acks, op)
	case len(m.acks) != 0:
		m.answer()
	case len(m.late) != 0 && m.r.IntN(4) == 0:
		op := m.late[0]
		m.late = m.late[1:]
		m.own[op.client] = append([]*modelOp{op}, m.own[op.client]...)
	}
	for w := m.table.Changed(m.now); w != nil; w = m.table.Changed(m.now) {
		m.ask()
	}
}

// bypass changes a word without the switch. The server has executed everything that the switch has
// sent; responses may still be in flight.
func (m *model) bypass() {
	va := 0x1000 + 8*uint64(m.r.IntN(8))
	for _, op := range m.shared {
		if op.va == va {
			return
		}
	}
	m.memory[va] += 1000
	if w := m.table.Lookup(Key{1, va}); w != nil {
		w.Forget()
	}
}

func (m *model) answer() {
	op := m.acks[0]
	m.acks = m.acks[1:]
	m.finish(op)
}

func (m *model) run(steps int) {
	for range steps {
		m.step()
	}
	for range 100000 { // all operations end
		if len(m.waiting)+len(m.shared)+len(m.acks)+len(m.late) == 0 && m.quiet() {
			return
		}
		for i := range m.busy {
			m.busy[i] = true
		}
		m.step()
	}
	m.t.Fatalf("no end: %d wait, %d shared, %d answers, %d late", len(m.waiting), len(m.shared), len(m.acks), len(m.late))
}

func (m *model) quiet() bool {
	for _, q := range m.own {
		if len(q) != 0 {
			return false
		}
	}
	return true
}

// In any order of operations, responses, losses and refusals, each response that the switch makes
// is the one that the memory would have given, and no operation waits forever.
func TestModel(t *testing.T) {
	seeds, first, least := uint64(600), uint64(1), 500
	if testing.Short() {
		seeds, least = 60, 50
	}
	if *seedFlag != 0 {
		seeds, first = 1, *seedFlag
	}
	total, told := map[Kind]int{}, 0
	for seed := first; seed < first+seeds; seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, seed, 2+int(seed%7))
			m.run(5 * opsPerClient)
			told += m.told
			for k, n := range m.kinds {
				total[k] += n
			}
			m.table.Each(func(w *Word) {
				if w.Pending != 0 {
					t.Errorf("%+v: %d pending at the end", w.Key, w.Pending)
				}
				if w.State == Known && w.Value != m.memory[w.VA] {
					t.Errorf("%#x is known as %d and is %d", w.VA, w.Value, m.memory[w.VA])
				}
			})
			if c := m.table.Counters(); c.Words > 6 {
				t.Errorf("%+v", c)
			}
		})
		if !ok {
			t.Fatalf("replay: go test ./swordbox/atomiccache -run TestModel -seed %d", seed)
		}
	}
	t.Logf("decisions: %v, %d told", total, told)
	if seeds > 1 && told < least {
		t.Errorf("only %d times a CAS was answered without the server: the model does not test it", told)
	}
	for k := Wait; k <= EmptyWrite; k++ {
		if seeds > 1 && total[k] < least {
			t.Errorf("only %d times %v: the model does not test it", total[k], k)
		}
	}
}
