package hard

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// placeOwn is the client's own connection; others are shards.
const placeOwn = -1

// lane is one row: the requests of one queue pair of a client to one of the server.
type lane struct {
	m             *Machine
	s             *server
	row           *conntrack.Row
	generation    uint32 // of the row
	index, serial uint32
	closed        bool

	// loose says that the PSN which the server expects is not known yet: everything passes as it is. Then psns.own is one
	// past the highest that was forwarded, if any is true. whole says that nothing was forwarded before the lane was made,
	// and nothing has been dropped since: what was dropped is new to the server when it comes again.
	loose, any, whole bool
	lastLoose         clock.Time

	// next is the PSN of the next new request; psns knows those before that have been placed, the others are held.
	next wire.PSN
	psns psnMap
	// acked is the first PSN of the own connection that no response covers.
	acked wire.PSN
	// inMsg says that a message of several packets has begun on the own connection and not ended.
	inMsg bool
	// far is the most that was ever outstanding on the own connection, in PSNs.
	far int32
	// vague is a READ on the own connection that takes a number of PSNs that is not known, because the path MTU is not.
	// It is there alone.
	vague bool

	// msn counts the messages that the server has completed, as far as the client was told; valid if hasMSN.
	msn    uint32
	hasMSN bool

	place  int
	out    int // requests outstanding on the shared connection place
	window window
	ops    ownOps
	grace  words.Grace

	held    queue
	blocked bool // in Machine.blocked
	served  bool // in the last round of settle
	// overflow says that there was no room to hold a packet, and the client is to be told when there is again.
	overflow bool
	awaits   waiting // the first held packet
	nakSent  bool    // for the present gap

	redoAt clock.Time
	cnpAt  clock.Time

	// dead says that a request was refused for good, with fatal for deadPSN.
	dead    bool
	deadPSN wire.PSN
	fatal   wire.Syndrome

	// client and clientQPN outlive the row, for listings.
	client    netip.Addr
	clientQPN wire.QPN

	proof proof
	// formers are what the lane waits for since it began.
	formers []former
	began   clock.Time

	asked bool // Config.Moving was
	may   bool // what it said
	moved uint64
}

// start makes a loose lane a strict one: psn is the one that the server expects, if all that was forwarded arrives. alone
// says that everything before has been answered.
func (l *lane) start(now clock.Time, psn wire.PSN, alone bool) {
	l.reaches()
	if l.loose, l.next = false, psn; alone && l.any {
		l.ackOwn(now, psn)
	}
	if alone || !l.any || wire.Diff(l.acked, psn) > 0 {
		l.acked = psn
	}
	if !l.any && l.whole {
		l.hasMSN = true // nothing was ever sent: the responder counts from 0
	}
	l.psns.start(psn, l.m.cfg.Segments)
}

// ownIdle reports whether everything on the own connection has been answered.
func (l *lane) ownIdle() bool { return l.acked == l.psns.own && !l.inMsg && !l.vague }

// idle reports whether nothing of the lane is under way: it may change its place.
func (l *lane) idle() bool { return l.out == 0 && l.window.outstanding() == 0 && l.ownIdle() }

// canGo reports whether the next request may go to a place now.
func (l *lane) canGo(place int) bool { return l.place == place || l.idle() }

// incomplete is the PSN of the oldest request that has not been answered; the next one if there is none.
func (l *lane) incomplete() wire.PSN {
	psn := l.psns.client
	if !l.ownIdle() && !l.vague {
		if p, _, ok := l.psns.back(l.acked); ok {
			psn = p
		}
	}
	if r := l.window.oldest(); r != nil {
		if p := r.psn.Add(r.got); wire.Diff(p, psn) < 0 {
			psn = p
		}
	}
	return psn
}

// mayMove asks once whether the row may depend on the switch. A connection that one end wants to end, by a DREQ, moves
// nothing any more: a server that fences a client takes its queue pair away, and what the client sends then, from whatever
// host woke up late, must die there and not come by another way.
func (l *lane) mayMove() bool {
	if l.row.ReqQPN == 0 || !l.hasMSN || l.dead || l.row.State == conntrack.Closing || !l.isProven() {
		return false
	}
	if !l.asked {
		l.asked = true
		if l.may = l.m.cfg.Moving(l.row); !l.may {
			l.m.stats.NotRecorded++
		}
		l.answered()
	}
	return l.may
}

// answered lets the record of a row that depends on the switch know what its client still waits for.
func (l *lane) answered() {
	if l.may {
		l.m.cfg.Answered(l.row, l.incomplete())
	}
}

// back is how answers reach the client: as those of the server do, or if there were none yet, the way that its requests
// came.
func (l *lane) back() *rewrite.Path {
	if p := l.row.Peer; p != nil && p.HasPath && p.Path.DestQP == l.row.ReqQPN {
		return &p.Path
	}
	l.m.path = l.row.Path.Back(l.row.ReqQPN)
	return &l.m.path
}

// advance counts a new request as received.
func (l *lane) advance(span int) {
	l.next = l.next.Add(span)
	l.row.Expected = l.next
}

// cleanSince is a time before which everything that was forwarded on the own connection has been answered.
func (l *lane) cleanSince(now clock.Time) clock.Time {
	switch {
	case !l.loose:
		return l.grace.Clean(now, l.psns.own, l.acked)
	case !l.any || l.acked == l.psns.own:
		return now.Add(1)
	case now > l.lastLoose.Add(l.m.cfg.Words.Budget):
		return now.Add(1)
	}
	return 0
}

// ackOwn notes that the server has executed everything before end on the own connection.
func (l *lane) ackOwn(now clock.Time, end wire.PSN) {
	if wire.Diff(end, l.acked) <= 0 {
		return
	}
	l.acked = end
	l.proves(end)
	l.m.kick = l.m.kick || l.blocked
	o := &l.ops
	for o.head != o.tail {
		op := o.at(o.head)
		if wire.Diff(end, op.end) < 0 {
			break
		}
		switch {
		case op.all:
			l.m.words.EndAll(now, op.decision, l.s.index, op.va, op.n)
		case op.word != nil:
			op.word.Answered(now, op.decision, 0)
		}
		if op.prove {
			l.s.keys.prove(op.rkey, op.right, op.va, op.n)
		}
		o.head++
	}
}

// dropOps ends what was on the own connection and will never be executed, because the connection has failed. The first one
// was refused.
func (l *lane) dropOps(now clock.Time) {
	o := &l.ops
	for first := true; o.head != o.tail; o.head++ {
		op := o.at(o.head)
		switch {
		case op.all:
			l.m.words.EndAll(now, op.decision, l.s.index, op.va, op.n)
		case op.word != nil && first:
			op.word.Refused(now, op.decision)
		case op.word != nil:
			op.word.Undone(now, op.decision)
		}
		if first && op.prove {
			l.s.keys.forget(op.rkey)
		}
		first = false
	}
}

// schedule sets the lane's deadline.
func (l *lane) schedule() {
	at := clock.Never
	if l.held.n > 0 {
		at = l.m.held.slots[l.held.first].at.Add(l.m.cfg.HoldTime)
		if l.awaits.word != nil {
			at = min(at, l.missUntil())
		}
	}
	if l.window.redos > 0 {
		at = clock.Min(at, l.redoAt)
	}
	l.m.due.Set(l.index, at)
}

// tick does what is due: held packets are given up, READs that are executed again waited for no longer.
func (l *lane) tick(ctx *pipeline.Ctx) {
	if l.held.n > 0 && l.m.held.slots[l.held.first].at.Add(l.m.cfg.HoldTime) <= ctx.Now {
		l.m.stats.HoldTimeouts++
		l.giveUpHeld()
	}
	if l.held.n > 0 && l.awaits.word != nil && l.missUntil() <= ctx.Now {
		l.awaits = waiting{}
		l.m.kick = true
	}
	if l.window.redos > 0 && l.redoAt <= ctx.Now {
		l.endRedos(ctx, l.next)
	}
	l.schedule()
}

// giveUpHeld drops the held packets. They count as not received, so that the client can send them again.
func (l *lane) giveUpHeld() {
	for l.held.n > 0 {
		l.m.stats.HeldDropped++
		l.held.pop(&l.m.held)
	}
	if !l.loose {
		l.next = l.psns.client
		l.row.Expected = l.next
	}
	l.schedule()
}

// close ends the lane. Its index is free when the last of its requests has ended.
func (l *lane) close() {
	for l.held.n > 0 {
		l.held.pop(&l.m.held)
	}
	l.overflow = false
	l.m.forgetUnblocked()
	l.m.due.Remove(l.index)
	l.closed = true
	l.reap()
}

func (l *lane) reap() {
	if l.closed && l.out == 0 {
		l.m.lanes[l.index] = nil
		l.m.free = append(l.m.free, l.index)
	}
}
