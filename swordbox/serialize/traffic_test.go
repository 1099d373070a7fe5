package serialize

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "replay only this seed of the random traffic")
	traceFlag = flag.Int("tap", -1, "log the last packets of a client's link")
	seedsFlag = flag.Int("seeds", 40, "how many seeds of random traffic")
)

// Layout of the server's memory.
const (
	counters  = 0    // words that all users add to
	locks     = 1024 // words that all users lock
	private   = 4096 // words of one client, 64 bytes each
	area      = 8192 // slots of one client
	slotLen   = 2500 // two packets and a part of a third
	slots     = 6
	areaLen   = slots * slotLen
	bufLen    = 2560 // of a client's memory, for one operation
	bufs      = 64
	receives  = 0 // server: all receives share a buffer
	nCounters = 3
	nLocks    = 2
)

// op is an operation in flight.
type op struct {
	buf     int // offset in the client's memory
	counter int // the counter to which it adds; -1: none
	check   func()
}

// user is a client with traffic on one connection, and its model of the server's memory.
type user struct {
	*conn
	id      int
	w       *world
	r       *rand.Rand
	ops     map[uint64]*op
	order   []uint64
	nextID  uint64
	left    int
	depth   int
	free    []int
	shadow  [areaLen]byte
	reading [slots]int
	word    uint64 // private word
	sends   uint32
	heard   uint32 // SENDs that the server has received
	lock    int    // held or wanted; -1 none
	// A word with an R_Key of its own, and its value.
	foreignBase uint64
	foreignKey  uint32
	foreign     uint64
}

// world is the state that all users share.
type world struct {
	*rig
	users  []*user
	priors [nCounters][]uint64
	holder [nLocks]int
	byQPN  map[wire.QPN]*user
	posted map[wire.QPN]int
	mix    []string
	lean   bool // the server often has no receive posted
	extra  func()
}

func newWorld(t testing.TB, rc rigConfig, mix []string, ops, depth int) *world {
	w := &world{rig: newRig(t, rc), byQPN: map[wire.QPN]*user{}, posted: map[wire.QPN]int{}, mix: mix}
	for i := range w.holder {
		w.holder[i] = -1
	}
	for i := range rc.clients {
		u := &user{conn: w.connect(i), id: i, w: w, r: rand.New(rand.NewPCG(rc.seed, uint64(i))), ops: map[uint64]*op{}, left: ops, depth: depth, lock: -1}
		for b := range bufs {
			u.free = append(u.free, b*bufLen)
		}
		w.users = append(w.users, u)
		w.byQPN[u.server.Num()] = u
		w.receives(u)
	}
	return w
}

// receives posts receives for a user's SENDs.
func (w *world) receives(u *user) {
	want := 16
	if w.lean {
		want = 2
	}
	for w.posted[u.server.Num()] < want {
		w.posted[u.server.Num()]++
		if err := u.server.PostRecv([]verbs.RecvWR{{SGL: w.server.sge(regionLen-64, 64)}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// start posts one random operation; it returns false if it cannot.
func (u *user) start() bool {
	if u.left == 0 || len(u.ops) >= u.depth {
		return false
	}
	b := u.free[0]
	o := &op{buf: b, counter: -1, check: func() {}}
	wr, ok := u.make(u.w.mix[u.r.IntN(len(u.w.mix))], o)
	if !ok {
		return false
	}
	u.left--
	u.free = u.free[1:]
	u.nextID++
	wr.ID, wr.Flags = u.nextID, verbs.Signalled
	u.ops[wr.ID] = o
	u.order = append(u.order, wr.ID)
	if err := u.qp.PostSend(u.w.now, []verbs.SendWR{wr}, &u.n.out); err != nil {
		u.w.t.Fatal(err)
	}
	return true
}

func (u *user) make(kind string, o *op) (verbs.SendWR, bool) {
	s := u.r.IntN(slots)
	base := area + u.id*areaLen
	switch kind {
	case "small", "medium", "large":
		n := 1 + u.r.IntN(map[string]int{"small": 64, "medium": 1024, "large": slotLen}[kind])
		off := s*slotLen + u.r.IntN(slotLen-n+1)
		if u.reading[s] > 0 {
			return verbs.SendWR{}, false
		}
		for i := range n {
			u.n.buf[o.buf+i] = byte(u.r.Uint32())
		}
		copy(u.shadow[off:], u.n.buf[o.buf:o.buf+n])
		return u.write(base+off, o.buf, n), true
	case "read", "readLarge":
		n := 1 + u.r.IntN(map[string]int{"read": 200, "readLarge": slotLen}[kind])
		off := s*slotLen + u.r.IntN(slotLen-n+1)
		want := bytes.Clone(u.shadow[off : off+n])
		u.reading[s]++
		o.check = func() {
			u.reading[s]--
			if !bytes.Equal(u.n.buf[o.buf:o.buf+n], want) {
				u.w.t.Errorf("user %d: READ of %d bytes at %d brought something else", u.id, n, off)
			}
		}
		return u.read(base+off, o.buf, n), true
	case "count":
		k := u.r.IntN(nCounters)
		o.counter = k
		o.check = func() { u.w.priors[k] = append(u.w.priors[k], u.n.word(o.buf)) }
		if u.r.IntN(8) == 0 { // no counter reaches bit 40, the field boundary of this masked FETCH_ADD
			wr := u.maskedAdd(counters+64*k, 1, o.buf)
			wr.CompareAddMask = 1 << 40
			return wr, true
		}
		return u.faa(counters+64*k, 1, o.buf), true
	case "own":
		want := u.word
		o.check = func() {
			if got := u.n.word(o.buf); got != want {
				u.w.t.Errorf("user %d: own word was %d, want %d", u.id, got, want)
			}
		}
		off := private + 64*u.id
		switch u.r.IntN(6) {
		case 5:
			o.check = func() {}
			return u.flush(off), true
		case 4:
			u.word = u.r.Uint64()
			o.check = func() {} // it answers with nothing
			return u.atomicWrite(off, u.word), true
		case 0:
			u.word = want&^0xff | 9
			return u.masked(off, 9, o.buf), true
		case 3:
			u.word += 3
			return u.faa(off, 3, o.buf), true
		case 1:
			u.word = want*5 + 1
			return u.cas(off, want, u.word, o.buf), true
		}
		return u.cas(off, want+1, 77, o.buf), true
	case "ownWrite": // sets the private word, a part of it, or a larger range
		off, n := private+64*u.id, []int{8, 3, 16, 8, 64, 2000}[u.r.IntN(6)]
		if n == 2000 { // several packets; user 0's word may be the first one in the range
			if u.id != len(u.w.users)-1 {
				n = 8
			}
		}
		for i := range n {
			u.n.buf[o.buf+i] = 0
		}
		var v [8]byte
		binary.LittleEndian.PutUint64(v[:], u.word)
		x := u.r.Uint64()
		binary.LittleEndian.PutUint64(u.n.buf[o.buf:], x)
		copy(v[:min(n, 8)], u.n.buf[o.buf:o.buf+min(n, 8)])
		u.word = binary.LittleEndian.Uint64(v[:])
		if n < 8 {
			clear(u.n.buf[o.buf+n : o.buf+8])
		}
		return u.write(off, o.buf, n), true
	case "foreign":
		want := u.foreign
		u.foreign += 7
		o.check = func() {
			if got := u.n.word(o.buf); got != want {
				u.w.t.Errorf("user %d: word under its own key was %d, want %d", u.id, got, want)
			}
		}
		wr := u.faa(0, 7, o.buf)
		wr.RemoteAddr, wr.RKey = u.foreignBase, u.foreignKey
		return wr, true
	case "lock":
		return u.lockStep(o)
	case "send", "imm":
		u.sends++
		binary.LittleEndian.PutUint32(u.n.buf[o.buf:], u.sends)
		if kind == "imm" {
			wr := u.write(base+s*slotLen, o.buf, 0)
			wr.Op, wr.Imm = verbs.OpWriteImm, u.sends
			return wr, true
		}
		return verbs.SendWR{Op: verbs.OpSend, SGL: u.n.sge(o.buf, 4)}, true
	}
	panic(kind)
}

// lockStep takes a lock, or releases it.
func (u *user) lockStep(o *op) (verbs.SendWR, bool) {
	tag := uint64(u.id + 1)
	switch u.lock {
	case -1:
		k := u.r.IntN(nLocks)
		u.lock = -2 // requested
		o.check = func() {
			if u.lock = -1; u.n.word(o.buf) != 0 {
				return
			}
			if h := u.w.holder[k]; h >= 0 {
				u.w.t.Errorf("users %d and %d both hold lock %d", h, u.id, k)
			}
			u.w.holder[k], u.lock = u.id, k
		}
		return u.cas(locks+64*k, 0, tag, o.buf), true
	case -2:
		return verbs.SendWR{}, false
	}
	k := u.lock
	u.lock = -2
	u.w.holder[k] = -1 // from here on another user may hold the lock
	off := locks + 64*k
	switch u.r.IntN(3) {
	case 0:
		o.check = func() {
			u.lock = -1
			if got := u.n.word(o.buf); got != tag {
				u.w.t.Errorf("user %d: lock %d was taken by %d while held", u.id, k, got)
			}
		}
		return u.cas(off, tag, 0, o.buf), true
	case 1: // by a WRITE of more than a packet
		o.check = func() { u.lock = -1 }
		if k == nLocks-1 {
			clear(u.n.buf[o.buf : o.buf+1500])
			return u.write(off, o.buf, 1500), true
		}
	}
	o.check = func() { u.lock = -1 }
	clear(u.n.buf[o.buf : o.buf+8])
	return u.write(off, o.buf, 8), true
}

// finish handles completions.
func (w *world) finish() {
	for _, u := range w.users {
		for _, wc := range u.n.poll() {
			if wc.Status != verbs.Success {
				w.t.Fatalf("user %d: operation %d: %v at %v\n%+v\n%+v", u.id, wc.ID, wc.Status, w.now, w.m.Stats(), w.state())
			}
			if len(u.order) == 0 || u.order[0] != wc.ID {
				w.t.Fatalf("user %d: completion of %d, want %v", u.id, wc.ID, u.order)
			}
			u.order = u.order[1:]
			o := u.ops[wc.ID]
			delete(u.ops, wc.ID)
			u.free = append(u.free, o.buf)
			o.check()
		}
	}
	for _, wc := range w.server.poll() {
		u := w.byQPN[wc.QPN]
		if u != nil && u.n.dead {
			continue
		}
		if wc.Status != verbs.Success || u == nil {
			w.t.Fatalf("server: %+v", wc)
		}
		w.posted[wc.QPN]--
		u.heard++
		if wc.Opcode == verbs.WCRecvWriteImm && wc.Imm != u.heard {
			w.t.Errorf("user %d: immediate %d, want %d", u.id, wc.Imm, u.heard)
		}
		if !w.lean || u.r.IntN(3) == 0 {
			w.receives(u)
		}
	}
	if w.lean && w.seq%7 == 0 {
		for _, u := range w.users {
			w.receives(u)
		}
	}
}

// drive runs until all operations have ended.
func (w *world) drive(limit time.Duration) {
	w.t.Helper()
	end := w.now.Add(limit)
	for {
		w.finish()
		busy := false
		for _, u := range w.users {
			for range u.depth {
				if u.start() && u.r.IntN(3) == 0 {
					continue
				}
				break
			}
			busy = busy || u.left > 0 || len(u.ops) > 0
		}
		if w.extra != nil {
			w.extra()
		}
		w.flush()
		if w.t.Failed() {
			return
		}
		if !busy {
			break
		}
		if w.now >= end {
			w.t.Fatalf("not done at %v: %s", w.now, w.state())
		}
		if !w.step(w.now + 50*hop) {
			continue
		}
	}
	w.run(100 * time.Millisecond)
	w.finish()
	w.audit()
}

func (w *world) state() (s string) {
	for _, u := range w.users {
		s += fmt.Sprintf("\nuser %d: left %d, in flight %d, lock %d", u.id, u.left, len(u.ops), u.lock)
		flow := w.sequencerOf(u)
		if flow != nil {
			s += fmt.Sprintf(" sequencer %+v held %d idle %v acked %v own %v next %v out %d win %d", flow.info(), flow.waits.held.n, flow.idle(), flow.conn.acked, flow.conn.psns.own, flow.next, flow.out, flow.replies.window.outstanding())
		}
	}
	s += fmt.Sprintf("\n%+v\n%+v\n", w.m.Stats(), w.m.Info(w.now))
	return s
}

func (w *world) sequencerOf(u *user) *sequencer {
	for _, l := range w.m.flows.list {
		if l != nil && l.phase != closed && l.flow.RespQPN == u.server.Num() && l.s.addr == l.flow.Responder {
			return l
		}
	}
	return nil
}

// audit compares the server's memory with the users' models.
func (w *world) audit() {
	w.t.Helper()
	for k := range w.priors {
		p := w.priors[k]
		slices.Sort(p)
		for i, v := range p {
			if v != uint64(i) {
				w.t.Errorf("counter %d: %d additions found %v", k, len(p), p)
				break
			}
		}
		if got := w.server.word(counters + 64*k); got != uint64(len(p)) {
			w.t.Errorf("counter %d is %d after %d additions", k, got, len(p))
		}
	}
	for k, h := range w.holder {
		if got := w.server.word(locks + 64*k); (got != 0) != (h >= 0) || h >= 0 && got != uint64(h+1) {
			w.t.Errorf("lock %d is %d, holder %d", k, got, h)
		}
	}
	for _, u := range w.users {
		off := area + u.id*areaLen
		if !bytes.Equal(w.server.buf[off:off+areaLen], u.shadow[:]) {
			w.t.Errorf("user %d: the server's memory differs", u.id)
		}
		if got := w.server.word(private + 64*u.id); got != u.word {
			w.t.Errorf("user %d: own word is %#x, want %#x", u.id, got, u.word)
		}
		if u.heard != u.sends {
			w.t.Errorf("user %d: %d of %d messages arrived", u.id, u.heard, u.sends)
		}
		if l := w.sequencerOf(u); l != nil && (!l.idle() || l.waits.held.n > 0) {
			w.t.Errorf("user %d: the sequencer is not idle at the end: %+v", u.id, l.info())
		}
	}
	for _, s := range w.m.Info(w.now).Shared {
		if s.Outstanding+s.Queued > 0 {
			w.t.Errorf("shared connection is not idle at the end: %+v", s)
		}
	}
	w.m.words.Each(func(word *wordsWord) {
		if word.State == wordsKnown {
			if got := w.server.word(int(word.VA - w.server.base)); got != word.Value {
				w.t.Errorf("word at %d is %d, the switch believes %d", word.VA-w.server.base, got, word.Value)
			}
		}
		if word.Pending != 0 {
			w.t.Errorf("word at %d has %d pending", word.VA-w.server.base, word.Pending)
		}
	})
}

var (
	allMix  = []string{"small", "medium", "large", "read", "readLarge", "count", "count", "own", "own", "ownWrite", "lock", "lock", "lock", "send", "imm"}
	lockMix = []string{"lock", "count", "own"}
	sherman = []string{"lock", "lock", "small", "read", "large"}
	moveMix = []string{"small", "medium", "large", "read", "read", "readLarge", "count", "own", "send"}
)

// randomRig draws a configuration from a seed.
func randomRig(seed uint64) (rc rigConfig, mix []string, ops, depth int, faults chance, quantum clock.Time) {
	r := rand.New(rand.NewPCG(seed, 1))
	rc = rigConfig{seed: seed, clients: 1 + r.IntN(5), shards: 1 + r.IntN(3), depth: []int{1, 2, 4, 16}[r.IntN(4)]}
	rc.rules = atomicsRule(rc.shards)
	rc.rules[0].Misses = rules.Answerer(rc.seed % 3)
	switch r.IntN(4) {
	case 0:
		rc.rules = moveRule(rc.shards)
	case 1: // atomics are replaced in one range, and all other requests move
		rc.rules = append([]rules.Rule{{Server: ipOf(serverIP), Action: rules.Atomics, From: 0, To: 8, Shards: rc.shards}}, moveRule(rc.shards)...)
	}
	mix = [][]string{allMix, lockMix, sherman, moveMix}[r.IntN(4)]
	depth = []int{1, 1, 2, 4, 8, 30}[r.IntN(6)]
	ack := []int{1, 4, 16}[r.IntN(3)]
	rc.engine = func(c *engine.Config) { c.Acks.Every = ack }
	quantum = []clock.Time{0, 4 * hop, 16 * hop}[r.IntN(3)]
	if r.IntN(3) > 0 {
		faults = chance{loss: r.IntN(40), dup: r.IntN(40), late: r.IntN(80)}
	}
	if r.IntN(2) == 0 {
		rc.cfg.Shared = requester.Config{Ring: 8, Waiting: 4}
	}
	switch r.IntN(3) {
	case 0:
		rc.cfg.Window, rc.cfg.Segments = 32, 64
	case 1:
		rc.cfg.Held, rc.cfg.HeldPerFlow = 16, 6
	}
	return rc, mix, 60, depth, faults, quantum
}

func runSeed(t *testing.T, seed uint64) {
	rc, mix, ops, depth, faults, quantum := randomRig(seed)
	w := newWorld(t, rc, mix, ops, depth)
	for i := range rc.rules { // the ranges are known only here
		if r := &rc.rules[i]; r.To == 8 {
			r.From, r.To = w.server.base, w.server.base+area
		}
	}
	set, err := rules.NewSet(rc.rules)
	if err != nil {
		t.Fatal(err)
	}
	w.m.SetRules(set)
	w.lean = seed%3 == 0
	var trace []string
	if *traceFlag >= 0 {
		w.tap = func(up bool, port int, data []byte) bool {
			if f := parse(data); port == *traceFlag || w.server.port == port && *traceFlag == 99 {
				trace = append(trace, fmt.Sprintf("%v up=%v port %d %v", w.now, up, port, &f))
			}
			return true
		}
		defer func() {
			t.Log(strings.Join(trace[max(0, len(trace)-400):], "\n"))
		}()
	}
	w.faults, w.quantum = faults, quantum
	w.drive(20 * time.Second)
	if t.Failed() {
		t.Logf("%+v depth %d faults %+v quantum %v mix %v\n%s", rc, depth, faults, quantum, mix, w.state())
		t.Logf("replay: go test ./swordbox/serialize -run TestRandomTraffic -seed %d", seed)
	}
}

// Mixed traffic of several clients over a network that loses, duplicates and reorders: every
// completion, every answer and every byte of memory is as it would be without a switch.
func TestRandomTraffic(t *testing.T) {
	if *seedFlag != 0 {
		runSeed(t, *seedFlag)
		return
	}
	for seed := range uint64(*seedsFlag) {
		t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) { runSeed(t, seed+1) })
	}
}
