package serialize

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// outcome says what dispatch has done with the next request of a flow.
type outcome uint8

const (
	mustWait outcome = iota // the place of the request is not free
	// the caller sends the request on the client's connection: the frame has the PSN for that
	sentOwn
	sentShared // the request was submitted to a shared connection
	told       // the switch has answered the request
)

// placing finds the place of the next request of a flow: the client's connection, a shared
// connection, or an answer of the switch.
type placing struct {
	l *sequencer
	c *pipeline.Ctx
	f *wire.Frame // the request as the client sent it; dispatch changes it into the packet to send
	// span is how many PSNs the request takes; 0 means not known.
	span int
	// arrived is true if f is the packet that has just arrived, so that the switch may change it
	// into the packet for the shared connection; it is false if f is a held request. now is true
	// once f has been changed in this way.
	arrived, now bool
}

// dispatch finds the place of the request, and sends the request there if that is possible now.
func (g *placing) dispatch() outcome {
	op := g.f.BTH.Opcode
	va, n, rkey := target(g.f)
	if g.l.conn.msg == inMessage && g.l.s.watch && op.Is(wire.OpWrite) {
		return g.restOfWrite()
	}
	if g.l.conn.msg == between && g.l.s.watch && op.Is(wire.OpWrite) && op.Is(wire.OpMiddle|wire.OpLast) {
		return g.partOfUnknown()
	}
	if g.l.conn.msg == inMessage || !op.Has(wire.HasRETH|wire.HasAtomicETH) || op.Is(wire.OpFlush) {
		// A FLUSH changes no word. It concerns what its connection has written, so it stays on the
		// client's connection, behind all earlier requests of the client (hole 39).
		return g.toOwn(g.span)
	}
	rule := g.l.s.match(va, n, rkey)
	switch {
	case op.Is(wire.OpAtomic):
		return g.atomic(rule)
	case op.Is(wire.OpWrite):
		return g.write(rule)
	}
	if rule != nil && rule.Action == rules.Move && g.span == 1 {
		return g.move()
	}
	return g.toOwn(g.span)
}

func (g *placing) atomic(rule *rules.Rule) outcome {
	va, _, _ := target(g.f)
	m, k := g.l.m, atomiccache.Key{Server: g.l.s.index, VA: va}
	var w *atomiccache.Word
	if rule != nil && rule.Action == rules.Atomics {
		w = m.words.Get(g.c.Now, k)
	} else if g.l.s.watch {
		w = m.words.Lookup(k)
	}
	switch {
	case w != nil:
		return g.forWord(w)
	case k.VA%transform.WordLen != 0:
		return g.toOwn(1) // the server will refuse it
	case rule != nil && rule.Action == rules.Move && !isUncached(g.f):
		return g.move()
	}
	return g.toOwn(1)
}

// isUncached reports whether a request is a masked atomic or an ATOMIC_WRITE. The switch forgets
// the value of the word that such a request changes, so only the client's connection may carry it
// (hole 39).
func isUncached(f *wire.Frame) bool {
	return f.BTH.Opcode.Has(wire.HasAtomicMasks) || f.BTH.Opcode == wire.RCAtomicWrite
}

func (g *placing) write(rule *rules.Rule) outcome {
	m := g.l.m
	single := g.f.BTH.Opcode == wire.RCWriteOnly && int(g.f.RETH.Length) == len(g.f.Payload)
	if g.l.s.watch {
		m.step.cover = m.words.Overlapping(m.step.cover[:0], g.l.s.index, g.f.RETH.VA, g.f.RETH.Length)
		switch {
		case len(m.step.cover) == 1 && single:
			return g.forWord(m.step.cover[0])
		case len(m.step.cover) > 0:
			return g.writeAll()
		}
		if x := g.l.conn.extentOf(g.f, g.l.conn.psns.own); x.isLong() && g.l.canGo(placeOwn) {
			g.l.conn.keep(g.c.Now, &x)
		}
	}
	if single && rule != nil && rule.Action == rules.Move {
		return g.move()
	}
	return g.toOwn(1)
}

// writeAll sends a WRITE on the client's connection if all words that it touches allow that. It is
// used for a WRITE that touches several words, or that touches one and is no plain WRITE_ONLY.
func (g *placing) writeAll() outcome {
	if !g.l.canGo(placeOwn) || !g.l.conn.ops.room() {
		return mustWait
	}
	x := g.l.conn.extentOf(g.f, g.l.conn.psns.own)
	d := g.l.m.words.ClientAll(g.c.Now, g.l.s.index, x.va, x.n)
	if d.Kind == atomiccache.Wait {
		return mustWait
	}
	out := g.toOwn(1)
	g.l.conn.addAll(&x, d)
	return out
}

// move moves a request under a rule of action move if its key is proven, its payload fits the
// shared connection, and the flow may move; otherwise the request goes to the client's connection.
func (g *placing) move() outcome {
	shard := shardOfFlow(g.l.flow.ID, g.l.s.shards)
	conn := g.l.s.links[shard].conn
	va, n, rkey := target(g.f)
	if !g.l.s.usable(shard, int(n)) || !g.l.s.keys.covers(rkey, rightOf(g.f.BTH.Opcode), va, n) || !g.l.mayMove() {
		return g.toOwn(1)
	}
	if !g.l.canGo(shard) || !g.l.replies.window.room() || !conn.Requests.Room(len(g.f.Payload)) || !g.mayEnter(shard) {
		return mustWait
	}
	r := g.l.replies.window.remember(g.f, 1, shard)
	g.submit(r, shard)
	return sentShared
}

// forWord lets a word decide on which connection a request travels. The request is an atomic, or a
// WRITE that touches only this word. Before forWord asks the word, it checks that the flow may
// change to any connection that the word may choose; otherwise the request waits.
func (g *placing) forWord(w *atomiccache.Word) outcome {
	_, _, rkey := target(g.f)
	shard := g.l.s.shardOf(w.VA)
	conn := g.l.s.links[shard].conn
	usable := g.l.s.usable(shard, max(len(g.f.Payload), transform.WordLen)) && !g.l.s.keys.isBanned(rkey) && g.l.mayMove() && !isUncached(g.f)
	if g.l.s.ruleOf(w.VA) == nil { // the rule was removed
		if usable = false; w.State != atomiccache.Pass && w.Pending == 0 {
			w.Reset(g.c.Now)
		}
	}
	proven := w.Proven(rkey)
	var ready bool
	switch {
	case !usable, !proven && w.State != atomiccache.Busy && w.State != atomiccache.Closing:
		ready = g.l.canGo(placeOwn)
	case proven && (w.State == atomiccache.Unknown || w.State == atomiccache.Known):
		ready = g.l.canGo(shard)
	default:
		ready = g.l.idle()
	}
	if !ready || !g.l.replies.window.room() || !g.l.conn.ops.room() || usable && !conn.Requests.Room(max(len(g.f.Payload), transform.WordLen)) {
		return mustWait
	}
	if usable && g.l.canGo(shard) && !g.mayEnter(shard) {
		return mustWait
	}
	if usable && g.f.BTH.Opcode == wire.RCCmpSwap && g.l.idle() {
		if out := g.miss(w, shard); out != sentShared {
			return out
		}
	}
	var d atomiccache.Decision
	g.ask(w, rkey, usable, &d)
	switch d.Kind {
	case atomiccache.Wait:
		return mustWait
	case atomiccache.Client:
		out := g.toOwn(1)
		op := g.l.conn.ops.add()
		op.end, op.word, op.decision = g.l.conn.psns.own, w, d
		return out
	case atomiccache.Shared, atomiccache.Write, atomiccache.EmptyWrite:
	}
	if !g.l.canGo(shard) {
		w.Undone(g.c.Now, d)
		return mustWait
	}
	r := g.l.replies.window.remember(g.f, 1, shard)
	r.word, r.decision = w, d
	switch d.Kind {
	case atomiccache.Write:
		transform.ToWrite(g.f, d.Value, &g.l.m.step.payload)
		g.l.m.stats.Replaced++
	case atomiccache.EmptyWrite:
		transform.ToEmptyWrite(g.f)
		g.l.m.stats.ReplacedEmpty++
	case atomiccache.Shared, atomiccache.Client, atomiccache.Wait:
	}
	g.submit(r, shard)
	return sentShared
}

// ask sets d to the decision of word w about the request. usable is true if the word's shared
// connection may carry the request. An atomic under an R_Key that is not proven stays on the
// client's connection; if the atomic succeeds, it proves the R_Key.
func (g *placing) ask(w *atomiccache.Word, rkey uint32, usable bool, d *atomiccache.Decision) {
	switch {
	case !usable && (w.Proven(rkey) || !g.f.BTH.Opcode.Is(wire.OpAtomic) || g.l.s.keys.isBanned(rkey) || isUncached(g.f)):
		*d = w.Foreign(g.c.Now)
	case g.f.BTH.Opcode.Is(wire.OpAtomic):
		clean := clock.Time(0)
		if w.State == atomiccache.Pass && w.Proven(rkey) {
			clean = g.l.s.cleanSince(g.c)
		}
		a := &g.f.AtomicETH
		*d = w.Decide(g.c.Now, clean, rkey, g.f.BTH.Opcode, a.Compare, a.SwapOrAdd)
	default:
		*d = w.Touch(g.c.Now, rkey, transform.PieceOf(g.f, w.VA))
	}
}

// submit sends the next request on a shared connection. The caller has checked that there is room.
func (g *placing) submit(r *record, shard int) {
	g.l.place = shard
	g.l.out++
	g.leave()
	g.l.m.stats.Moved++
	g.enters(shard)
	conn := g.l.s.links[shard].conn
	var ok bool
	// If any flow has held requests, the packet must not overtake those that this step releases.
	if g.arrived && len(g.l.m.blocked.list) == 0 {
		ok, g.now, g.l.m.step.note = conn.SubmitInPlace(g.c, g.f, g.l.tag(r.psn))
	} else {
		ok = conn.Submit(g.c, g.f, g.l.tag(r.psn))
	}
	if !ok {
		panic("serialize: a shared connection has no room, but it had")
	}
}

// toOwn gives the next request its PSN on the client's connection, and the caller then sends it
// there. If the result is mustWait, the request has no PSN yet, and waits in the switch.
func (g *placing) toOwn(span int) outcome {
	if !g.l.canGo(placeOwn) {
		return mustWait
	}
	op := g.f.BTH.Opcode
	va, n, rkey := target(g.f)
	answered := op.Is(wire.OpAnswered)
	if span == 0 && !g.l.idle() || answered && !g.l.replies.window.room() {
		return mustWait
	}
	g.l.place = placeOwn
	if answered {
		g.l.replies.window.remember(g.f, max(1, span), placeOwn).own = g.l.conn.psns.own
	}
	if wantsAck(op) {
		g.f.BTH.AckReq = true
	}
	switch {
	case op.Is(wire.OpFirst):
		g.l.conn.msg.on(evFirst)
		g.l.conn.rest.begin(g.f, g.l.conn.psns.own)
	case op.Is(wire.OpLast):
		g.l.conn.msg.on(evLast)
	}
	g.f.BTH.PSN = g.l.conn.psns.own
	g.l.conn.sends(g.l.conn.psns.own)
	if span == 0 {
		g.l.conn.msg.on(evOpenRead)
		return sentOwn
	}
	g.l.assign(span, false)
	g.l.conn.reaches()
	if g.l.s.proves && n > 0 && !op.Is(wire.OpFlush) && g.l.conn.ops.room() && !g.l.s.keys.covers(rkey, rightOf(op), va, n) {
		o := g.l.conn.ops.add()
		o.end, o.prove, o.right, o.va, o.n, o.rkey = g.l.conn.psns.own.Add(restOf(g.f)), true, rightOf(op), va, n, rkey
	}
	return sentOwn
}

// leave records that the next request is not sent on the client's connection. From then on the PSNs
// of client and server differ.
func (g *placing) leave() {
	g.l.flow.Pinned = true
	g.l.replies.client, g.l.replies.clientQPN = g.l.flow.Requester, g.l.flow.ReqQPN
	g.l.assign(1, true)
	g.l.moved++
}

// restOf returns how many packets of a WRITE follow the first one.
func restOf(f *wire.Frame) int {
	if !f.BTH.Opcode.Is(wire.OpFirst) || len(f.Payload) == 0 {
		return 0
	}
	return (int(f.RETH.Length)+len(f.Payload)-1)/len(f.Payload) - 1
}

// wantsAck reports whether the switch sets AckReq in a packet on the client's connection. It does
// so to learn when nothing is in flight there.
func wantsAck(op wire.Opcode) bool {
	return op.Is(wire.OpLast|wire.OpOnly) && op.Is(wire.OpSend|wire.OpWrite)
}
