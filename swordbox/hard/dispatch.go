package hard

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// outcome is what became of the next request of a lane.
type outcome uint8

const (
	mustWait   outcome = iota // its place is not free
	sentOwn                   // the frame has its numbers for the own connection; the caller sends it
	sentShared                // it is on a shared connection
	told                      // the switch has answered it
)

// dispatch finds the place of the next request, and sends it there if it may go now. span is how many PSNs it takes; 0:
// that is not known.
func (l *lane) dispatch(c *pipeline.Ctx, f *wire.Frame, span int) outcome {
	m := l.m
	m.rawPSN, m.rawAckReq = f.BTH.PSN, f.BTH.AckReq
	op := f.BTH.Opcode
	va, n, rkey := target(f)
	if l.inMsg || !op.Has(wire.HasRETH|wire.HasAtomicETH) {
		return l.toOwn(c, f, span)
	}
	rule := l.s.match(va, n, rkey)
	switch {
	case op.Is(wire.OpAtomic):
		return l.dispatchAtomic(c, f, rule)
	case op.Is(wire.OpWrite):
		return l.dispatchWrite(c, f, rule)
	}
	if rule != nil && rule.Action == rules.Move && span == 1 {
		return l.dispatchMove(c, f)
	}
	return l.toOwn(c, f, span)
}

func (l *lane) dispatchAtomic(c *pipeline.Ctx, f *wire.Frame, rule *rules.Rule) outcome {
	m, k := l.m, words.Key{Server: l.s.index, VA: f.AtomicETH.VA}
	var w *words.Word
	if rule != nil && rule.Action == rules.Atomics {
		w = m.words.Get(c.Now, k)
	} else if l.s.watch {
		w = m.words.Lookup(k)
	}
	switch {
	case w != nil:
		return l.dispatchWord(c, f, w)
	case k.VA%rewrite.WordLen != 0:
		return l.toOwn(c, f, 1) // it will be refused
	case rule != nil && rule.Action == rules.Move:
		return l.dispatchMove(c, f)
	}
	return l.toOwn(c, f, 1)
}

func (l *lane) dispatchWrite(c *pipeline.Ctx, f *wire.Frame, rule *rules.Rule) outcome {
	m := l.m
	single := f.BTH.Opcode == wire.RCWriteOnly && int(f.RETH.Length) == len(f.Payload)
	if l.s.watch {
		m.cover = m.words.Overlapping(m.cover[:0], l.s.index, f.RETH.VA, f.RETH.Length)
		switch {
		case len(m.cover) == 1 && single:
			return l.dispatchWord(c, f, m.cover[0])
		case len(m.cover) > 0:
			return l.dispatchAll(c, f)
		}
	}
	if single && rule != nil && rule.Action == rules.Move {
		return l.dispatchMove(c, f)
	}
	return l.toOwn(c, f, 1)
}

// dispatchAll sends a WRITE that touches words on the own connection, when all of them are ready for that.
func (l *lane) dispatchAll(c *pipeline.Ctx, f *wire.Frame) outcome {
	if !l.canGo(placeOwn) || !l.ops.room() {
		return mustWait
	}
	va, n, _ := target(f)
	d := l.m.words.OwnAll(c.Now, l.s.index, va, n)
	if d.Kind == words.Wait {
		return mustWait
	}
	out := l.toOwn(c, f, 1)
	op := l.ops.add()
	op.end, op.all, op.decision, op.va, op.n = l.psns.own.Add(l.rest(f)), true, d, va, n
	return out
}

// rest is how many packets of a WRITE follow its first one.
func (l *lane) rest(f *wire.Frame) int {
	if !f.BTH.Opcode.Is(wire.OpFirst) || len(f.Payload) == 0 {
		return 0
	}
	return (int(f.RETH.Length)+len(f.Payload)-1)/len(f.Payload) - 1
}

// dispatchMove moves a request under a rule that moves all, if it is known to work.
func (l *lane) dispatchMove(c *pipeline.Ctx, f *wire.Frame) outcome {
	shard := int(l.row.ID) % len(l.s.links)
	conn := l.s.links[shard].conn
	va, n, rkey := target(f)
	if !l.s.usable(shard, int(n)) || !l.s.keys.covers(rkey, rightOf(f.BTH.Opcode), va, n) || !l.mayMove() {
		return l.toOwn(c, f, 1)
	}
	if !l.canGo(shard) || !l.window.room() || !conn.Room(len(f.Payload)) {
		return mustWait
	}
	r := l.record(f, 1)
	l.submit(c, f, r, shard)
	return sentShared
}

// dispatchWord asks a word what becomes of an atomic, or of a WRITE that touches it alone. It asks only if the lane can
// go where the answer may say.
func (l *lane) dispatchWord(c *pipeline.Ctx, f *wire.Frame, w *words.Word) outcome {
	_, _, rkey := target(f)
	shard := l.s.shardOf(w.VA)
	conn := l.s.links[shard].conn
	usable := l.s.usable(shard, max(len(f.Payload), rewrite.WordLen)) && !l.s.keys.isBanned(rkey) && l.mayMove()
	if !l.s.replaces(w.VA) { // there was a rule
		if usable = false; w.State != words.Pass && w.Pending == 0 {
			w.Reset(c.Now)
		}
	}
	proven := w.Proven(rkey)
	ready := false
	switch {
	case !usable, !proven && w.State != words.Busy && w.State != words.Closing:
		ready = l.canGo(placeOwn)
	case proven && (w.State == words.Unknown || w.State == words.Known):
		ready = l.canGo(shard)
	default:
		ready = l.idle()
	}
	if !ready || !l.window.room() || !l.ops.room() || usable && !conn.Room(max(len(f.Payload), rewrite.WordLen)) {
		return mustWait
	}
	if usable && f.BTH.Opcode == wire.RCCmpSwap && l.idle() {
		if out := l.dispatchMiss(c, f, w, shard); out != sentShared {
			return out
		}
	}
	var d words.Decision
	l.ask(c.Now, f, w, rkey, usable, &d)
	switch d.Kind {
	case words.Wait:
		return mustWait
	case words.Own:
		out := l.toOwn(c, f, 1)
		op := l.ops.add()
		op.end, op.word, op.decision = l.psns.own, w, d
		return out
	case words.Shared, words.Write, words.EmptyWrite:
	}
	if !l.canGo(shard) {
		w.Undone(c.Now, d)
		return mustWait
	}
	r := l.record(f, 1)
	r.word, r.decision = w, d
	switch d.Kind {
	case words.Write:
		rewrite.ToWrite(f, d.Value, &l.m.payload)
		l.m.stats.Replaced++
	case words.EmptyWrite:
		rewrite.ToEmptyWrite(f)
		l.m.stats.ReplacedEmpty++
	case words.Shared, words.Own, words.Wait:
	}
	l.submit(c, f, r, shard)
	return sentShared
}

// ask is the word's decision. An atomic under a key that is not proven stays on the own connection, and proves the key there.
func (l *lane) ask(now clock.Time, f *wire.Frame, w *words.Word, rkey uint32, usable bool, d *words.Decision) {
	switch {
	case !usable && (w.Proven(rkey) || !f.BTH.Opcode.Is(wire.OpAtomic) || l.s.keys.isBanned(rkey)):
		*d = w.Foreign(now)
	case f.BTH.Opcode.Is(wire.OpAtomic):
		clean := clock.Time(0)
		if w.State == words.Pass && w.Proven(rkey) {
			clean = l.s.cleanSince(now)
		}
		a := &f.AtomicETH
		*d = w.Decide(now, clean, rkey, f.BTH.Opcode, a.Compare, a.SwapOrAdd)
	default:
		*d = w.Touch(now, rkey, rewrite.PieceOf(f, w.VA))
	}
}

// record remembers a request that is about to be sent.
func (l *lane) record(f *wire.Frame, span int) *record {
	r := l.window.add()
	r.psn, r.span, r.op, r.ackReq = f.BTH.PSN, span, f.BTH.Opcode, f.BTH.AckReq
	r.va, r.length, r.rkey = target(f)
	r.compare, r.operand = f.AtomicETH.Compare, f.AtomicETH.SwapOrAdd
	return r
}

// submit sends the next request on a shared connection. The caller has seen that there is room.
func (l *lane) submit(c *pipeline.Ctx, f *wire.Frame, r *record, shard int) {
	r.moved, r.shard = true, uint8(shard)
	l.place = shard
	l.out++
	l.leave()
	l.m.stats.Moved++
	conn, ok := l.s.links[shard].conn, false
	if l.m.inPlace && len(l.m.blocked) == 0 { // else what is released now would leave before it
		ok, l.m.now, l.m.note = conn.SubmitInPlace(c, f, l.tag(r.psn))
	} else {
		ok = conn.Submit(c, f, l.tag(r.psn))
	}
	if !ok {
		panic("hard: a shared connection has no room, but it had")
	}
}

func (l *lane) tag(psn wire.PSN) shared.Tag {
	return shared.Tag{Lane: l.index, Generation: l.serial, PSN: psn}
}

// toOwn gives the next request its numbers on the own connection.
func (l *lane) toOwn(_ *pipeline.Ctx, f *wire.Frame, span int) outcome {
	if !l.canGo(placeOwn) {
		return mustWait
	}
	op := f.BTH.Opcode
	va, n, rkey := target(f)
	answered := op.Is(wire.OpRead | wire.OpAtomic)
	switch {
	case span == 0 && !l.idle():
		return mustWait
	case answered && !l.window.room():
		return mustWait
	}
	l.place = placeOwn
	if answered {
		l.record(f, max(1, span))
	}
	if l.shouldAsk(op) {
		f.BTH.AckReq = true
	}
	switch {
	case op.Is(wire.OpFirst):
		l.inMsg = true
	case op.Is(wire.OpLast):
		l.inMsg = false
	}
	f.BTH.PSN = l.psns.own
	l.sends(l.psns.own)
	if span == 0 {
		l.vague = true
		return sentOwn
	}
	l.psns.add(span, false)
	l.reaches()
	if l.s.proves && n > 0 && l.ops.room() && !l.s.keys.covers(rkey, rightOf(op), va, n) {
		o := l.ops.add()
		o.end, o.prove, o.right, o.va, o.n, o.rkey = l.psns.own.Add(l.rest(f)), true, rightOf(op), va, n, rkey
	}
	return sentOwn
}
