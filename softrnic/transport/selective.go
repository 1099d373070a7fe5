package transport

import (
	"cmp"
	"encoding/binary"
	"sort"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Recovery is how a queue pair of RC recovers from losses, if its peer can do the same. The zero
// value is go-back-N.
type Recovery struct {
	Kind selective.Kind
	// Ahead is how many packets ahead of the expected one the queue pair can hold, and how many PSNs
	// it may send ahead of the oldest one that is not acknowledged. 0 means four times Config.Window.
	Ahead int
	// Low and High are the retransmission timeouts of package selective. 0 means a 32nd and a quarter
	// of the local ACK timeout; without an ACK timeout, 1 ms and 4 ms.
	Low, High time.Duration
	// Rate, in bits per second, is how fast a queue pair with selective retransmission hands packets to
	// the link; 0 means at once. At the link's rate, packets in flight do not wait in a queue in front
	// of the link, where a packet that is sent again would wait behind them.
	Rate int64
}

// maxAhead bounds Recovery.Ahead.
const maxAhead = 4 * maxWindow

// Reach returns how many packets ahead of the expected one a queue pair can hold that was created
// with Config.Window window (0 means the default); 0 for go-back-N.
func (c Recovery) Reach(window int) int {
	if c.Kind == selective.GoBackN {
		return 0
	}
	return min(cmp.Or(c.Ahead, 4*cmp.Or(window, defaultWindow)), maxAhead)
}

// selects reports whether the connection uses selective retransmission: both sides can.
func (c *core) selects() bool {
	return c.rtr.Ahead > 0 && c.cfg.Recovery.Kind != selective.GoBackN && !c.svc.datagram && c.svc.packet == nil && c.svc.opcodes == wire.ServiceRC
}

// timeouts returns Low and High with their defaults.
func (c *core) timeouts() (low, high time.Duration) {
	low, high = time.Millisecond, 4*time.Millisecond
	if c.rts.Timeout != 0 {
		whole := AckTimeout(c.rts.Timeout)
		low, high = max(whole/32, 1), max(whole/4, 1)
	}
	return cmp.Or(c.cfg.Recovery.Low, low), cmp.Or(c.cfg.Recovery.High, high)
}

// selectiveSender is what a requester and its completer do differently with selective
// retransmission. The scoreboard has an entry for each PSN from una to maxPSN.
//
// A READ asks for at most `part` responses with one request packet. Its next part is asked for when
// the last response of the part before has arrived, so that a READ never needs more than one of the
// peer's resources. To the peer, parts are READs like any others.
type selectiveSender struct {
	req  *requester
	cmp  *completer
	rec  *selective.Recovery
	part uint32 // in packets
	// next is when Recovery.Rate allows the next packet, wake is next while a packet waits for it.
	next, wake clock.Time
	// notReady is the PSN whose RNR NAK demands the present wait.
	notReady wire.PSN
}

func (r *requester) newSelectiveSender() *selectiveSender {
	limit := min(r.cfg.Recovery.Reach(r.cfg.Window), r.rtr.Ahead)
	low, high := r.timeouts()
	return &selectiveSender{
		req: r, cmp: &r.qp.cmp, part: uint32(max(limit/2, 1)), wake: clock.Never,
		rec: selective.NewRecovery(selective.Config{Kind: r.cfg.Recovery.Kind, Window: r.cfg.Window, Limit: limit, Low: low, High: high}),
	}
}

// stop is called when the queue pair ends.
func (s *selectiveSender) stop() {
	if s != nil {
		s.rec.Pause()
		s.rec.Clear()
		s.wake = clock.Never
	}
}

// deadline returns when tick must be called.
func (s *selectiveSender) deadline() clock.Time {
	if s.req.retry.rnrAt != clock.Never {
		return clock.Never
	}
	return clock.Min(s.rec.Deadline(), s.wake)
}

// early reports whether the next packet must wait, because of Recovery.Rate.
func (s *selectiveSender) early(now clock.Time) bool {
	if s.req.cfg.Recovery.Rate == 0 || s.next <= now {
		return false
	}
	s.wake = s.next
	return true
}

// pace is called for a packet that is sent.
func (s *selectiveSender) pace(now clock.Time, tx *wire.Packet) {
	if rate := s.req.cfg.Recovery.Rate; rate > 0 {
		const headers = 50 // Ethernet without FCS, IPv4, UDP and ICRC, with the BTH
		s.next = max(s.next, now).Add(time.Duration(int64(len(tx.Payload)+headers) * 8 * int64(time.Second) / rate))
	}
}

// find returns the position in the send queue of the started work request to which psn belongs, and
// the index of the packet in it.
func (s *selectiveSender) find(psn wire.PSN) (pos, k uint32) {
	n := sort.Search(s.req.sender.sq.len(), func(i int) bool {
		w := s.req.sender.sq.at(s.req.sender.sq.head + uint32(i))
		return !w.started || s.req.offset(w.first) > s.req.offset(psn) && i > 0
	})
	pos = s.req.sender.sq.head + uint32(n-1)
	return pos, uint32(psn-s.req.sender.sq.at(pos).first) & max24
}

// pump sends what is lost, and then what is new, as far as window, fences and limits allow.
func (s *selectiveSender) pump(now clock.Time, out *Actions) {
	if s.req.state != verbs.StateRTS && s.req.state != verbs.StateSQD {
		return
	}
	s.wake = clock.Never
	for off := 0; s.req.retry.rnrAt == clock.Never && s.rec.Count(selective.Lost) > 0 && !s.early(now) && s.rec.MayRepeat(); {
		at, n := s.rec.NextLost(off, int(s.part))
		if n == 0 {
			break
		}
		off = at + s.sendAgain(now, at, n, out)
	}
	for s.req.retry.rnrAt == clock.Never && s.req.sender.sq.send != s.req.sender.sq.tail && s.rec.Count(selective.Lost) == 0 {
		w := s.req.sender.sq.at(s.req.sender.sq.send)
		if !w.started && !s.req.startWQE(w) || w.status != verbs.Success || s.rec.Load() >= s.req.cfg.Window || s.early(now) {
			break
		}
		if w.local() {
			s.req.sender.executeLocal(w, out)
			continue
		}
		if !s.sendNew(now, w, out) {
			break
		}
	}
	if w := s.req.sender.sq.at(s.req.sender.sq.head); s.req.sender.sq.len() > 0 && w.status != verbs.Success {
		s.req.sender.failOldest(w.status, w.code(), out)
		return
	}
	if s.rec.Used() > 0 && s.req.retry.at == clock.Never && s.req.retry.rnrAt == clock.Never {
		s.req.armTimer(now)
	}
	if s.req.retry.rnrAt == clock.Never {
		s.rec.Resume(now)
	}
}

// sendNew sends the next packet of w, which is the entry at position sq.send of the send queue. It
// returns false if w must wait.
func (s *selectiveSender) sendNew(now clock.Time, w *sendWQE, out *Actions) bool {
	k, n := w.sent, uint32(1)
	if w.op == verbs.OpRead {
		k = w.askedFrom
		n = min(s.part, w.packets-k)
		if k > 0 && w.acked < k && s.rec.At(int(s.req.offset(w.first.Add(int(k-1))))).State != selective.Settled {
			return false
		}
	}
	if s.rec.Room() < int(n) {
		return false
	}
	psn := w.first.Add(int(k))
	if !s.emit(now, s.req.sender.sq.send, k, n, false, out) {
		w.status = verbs.LocProtErr
		return true
	}
	s.req.maxPSN = psn.Add(int(n))
	if w.op == verbs.OpRead {
		if w.askedFrom = k + n; w.askedFrom < w.packets {
			return true
		}
	}
	if w.sent++; w.sent >= w.requests() {
		s.req.sender.sq.send++
	}
	return true
}

// sendAgain sends lost packets at the offsets [off, off+n) again: one request packet. It returns how
// many offsets it has dealt with.
func (s *selectiveSender) sendAgain(now clock.Time, off, n int, out *Actions) int {
	pos, k := s.find(s.req.una.Add(off))
	w := s.req.sender.sq.at(pos)
	if w.status != verbs.Success {
		return 1 // it fails when it is the oldest
	}
	count, back := uint32(1), uint32(0)
	if w.op == verbs.OpRead {
		first := k / s.part * s.part
		end := min(first+s.part, w.packets)
		count = min(uint32(n), end-k)
		if !s.answering(w, first, end) { // the peer may not have the request: it must begin where its PSN does
			back = k - first
			k, count = first, end-first
		}
	}
	if !s.emit(now, pos, k, count, true, out) {
		w.status = verbs.LocProtErr
	}
	return int(count - back)
}

// answering reports whether a response of the part [first, end) of a READ has arrived.
func (s *selectiveSender) answering(w *sendWQE, first, end uint32) bool {
	if w.acked > first {
		return true
	}
	for k := first; k < end; k++ {
		if s.rec.At(int(s.req.offset(w.first.Add(int(k))))).State == selective.Settled {
			return true
		}
	}
	return false
}

// emit sends packet k of the work request at position pos; for a READ, the request for the n
// responses from number k on. It returns false if the memory may not be read.
func (s *selectiveSender) emit(now clock.Time, pos, k, n uint32, again bool, out *Actions) bool {
	w := s.req.sender.sq.at(pos)
	psn, last := w.first.Add(int(k)), k+1 == w.packets || w.answered()
	tx := s.req.newPacket(out)
	switch {
	case w.op == verbs.OpRead:
		done := k * s.req.mtu
		tx.BTH.Opcode = wire.RCReadRequest
		tx.RETH = wire.RETH{VA: w.remote + uint64(done), RKey: w.rkey, Length: min(n*s.req.mtu, w.length-done)}
	case w.op == verbs.OpAtomicWrite:
		w.buildAtomicWrite(tx, out)
	case w.op == verbs.OpFlush:
		w.buildFlush(tx)
	case w.answered():
		w.buildAtomic(tx)
	default:
		sent, send := w.sent, s.req.sender.sq.send
		w.sent, s.req.sender.sq.send = k, pos // what buildData builds
		fault := s.req.sender.buildData(w, tx, last, out)
		w.sent, s.req.sender.sq.send = sent, send
		if fault != mem.OK {
			out.Tx = out.Tx[:len(out.Tx)-1]
			return false
		}
	}
	tx.BTH.PSN = psn
	s.pace(now, tx)
	s.rec.Sending(now, int(s.req.offset(psn)), int(n), w.answered())
	s.req.window.flight = s.rec.Load()
	tx.BTH.AckReq = s.req.window.asksAck(last || again, s.req.cfg.AckEvery)
	if again {
		s.req.env.Counters.RetransPkts++
		s.req.retransPkts++
	}
	return true
}

// tick handles the deadlines of the recovery.
func (s *selectiveSender) tick(now clock.Time, out *Actions) {
	if s.deadline() > now {
		return
	}
	before := s.rec.Episodes
	due := s.rec.Tick(now)
	if s.rec.Episodes != before {
		code := reason.SequenceNak
		if due {
			code = reason.Timeout
		}
		s.req.noteRetry(now, code, s.req.rts.RetryCount, s.req.retry.left)
	}
	s.pump(now, out)
}

// handle handles a response of the peer, with selective retransmission.
func (s *selectiveSender) handle(now clock.Time, p *wire.Packet, out *Actions) {
	off := s.req.offset(p.BTH.PSN)
	selective := p.BTH.Opcode == wire.RCAck && p.AETH.Syndrome.IsSelective()
	switch {
	case selective:
		s.req.saw(p.BTH.Opcode, "selective NAK")
		s.req.env.Counters.PacketSeqErr++
		s.holding(now, p)
		if off <= s.req.offset(s.req.maxPSN) {
			s.rec.Executed(now, int(off))
		}
	case off >= s.req.offset(s.req.maxPSN):
		s.req.saw(p.BTH.Opcode, "stale")
		s.req.env.Counters.DuplicateAck++
		return
	case p.BTH.Opcode != wire.RCAck:
		s.rec.Executed(now, int(off))
		s.answer(now, p, int(off), out)
	case p.AETH.Syndrome.IsAck():
		s.req.sawAnswer(p.AETH.Syndrome)
		s.rec.Executed(now, int(off)+1)
	default:
		s.rec.Executed(now, int(off))
	}
	s.settle(out, now)
	if s.req.state == verbs.StateError {
		return
	}
	if p.BTH.Opcode == wire.RCAck && !selective && !p.AETH.Syndrome.IsAck() {
		s.refused(now, p, out)
	}
	if s.req.state != verbs.StateError && s.rec.Look(now) {
		s.req.noteRetry(now, reason.SequenceNak, s.req.rts.RetryCount, s.req.retry.left)
	}
	s.pump(now, out)
	s.req.window.flight = s.rec.Load()
	s.req.sender.checkDrained(out)
}

// settle completes what is settled, in the order of the PSNs.
func (s *selectiveSender) settle(out *Actions, now clock.Time) {
	moved := false
	for s.req.state != verbs.StateError && s.rec.Advance(now) {
		moved = true
		w := s.req.sender.sq.at(s.req.sender.sq.head)
		w.acked++
		s.req.una = s.req.una.Next()
		if w.acked == w.packets {
			s.req.sender.completeSend(w, verbs.Success, reason.None, out)
		}
	}
	if moved {
		wait := s.req.retry.rnrAt
		s.req.progress()
		if s.req.offset(s.notReady) < s.req.offset(s.req.maxPSN) { // not acknowledged: the wait goes on
			s.req.retry.rnrAt = wait
		}
	}
}

// holding takes what a selective NAK says: which requests the peer holds. IRN uses only the one that
// has caused the NAK, as published.
func (s *selectiveSender) holding(now clock.Time, p *wire.Packet) {
	newest := wire.PSN(p.AETH.MSN)
	run := int(p.AETH.Syndrome.Value())
	if s.rec.Kind() == selective.IRN {
		run = 0
	}
	for i := range run + 1 {
		psn := newest.Add(-i)
		off := int(s.req.offset(psn))
		if off >= s.rec.Used() {
			continue
		}
		n := 1
		if s.rec.At(off).Response {
			pos, k := s.find(psn)
			if w := s.req.sender.sq.at(pos); w.op == verbs.OpRead {
				if k%s.part != 0 {
					continue
				}
				n = int(min(s.part, w.packets-k))
			}
		}
		s.rec.Holds(now, off, n, i == 0)
	}
}

// answer takes the response of a READ, atomic, ATOMIC_WRITE or FLUSH. Responses may arrive in any
// order; what they carry is put at its place at once.
func (s *selectiveSender) answer(now clock.Time, p *wire.Packet, off int, out *Actions) {
	pos, k := s.find(p.BTH.PSN)
	w := s.req.sender.sq.at(pos)
	if s.rec.At(off).State == selective.Settled {
		s.req.saw(p.BTH.Opcode, "stale")
		s.req.env.Counters.DuplicateAck++
		return
	}
	data := p.Payload
	switch {
	case w.status != verbs.Success:
		return
	case !positive(p) || !w.fitsSelective(k, s.req.mtu, p):
		s.req.saw(p.BTH.Opcode, "bad")
		if pos == s.req.sender.sq.head {
			s.cmp.badResponse(out)
			return
		}
		s.req.env.Counters.BadResponse++
		w.status = verbs.BadRespErr // it fails when it is the oldest
		return
	case w.atomic():
		data = s.req.scratch[:atomicSize]
		binary.NativeEndian.PutUint64(data, p.AtomicAck)
	}
	if s.req.access.scatter(s.req.cfg.PD, s.req.sender.sq.sgl(pos), k*s.req.mtu, data) != mem.OK {
		s.req.saw(p.BTH.Opcode, "local")
		w.status = verbs.LocProtErr
		if pos == s.req.sender.sq.head {
			s.req.sender.failOldest(verbs.LocProtErr, reason.None, out)
		}
		return
	}
	s.req.saw(p.BTH.Opcode, "taken")
	s.rec.Answered(now, off)
}

// fitsSelective checks the kind and the length of response packet k of w. Whether it is FIRST,
// MIDDLE, LAST or ONLY depends on which responses were requested together.
func (w *sendWQE) fitsSelective(k, mtu uint32, p *wire.Packet) bool {
	op := p.BTH.Opcode
	switch {
	case w.atomic():
		return op == wire.RCAtomicAck
	case op == wire.RCAtomicAck || !w.answered():
		return false
	case w.op != verbs.OpRead:
		return op == wire.RCReadResponseOnly && len(p.Payload) == 0
	}
	return len(p.Payload) == int(min(mtu, w.length-k*mtu))
}

// refused handles a NAK that is no selective one.
func (s *selectiveSender) refused(now clock.Time, p *wire.Packet, out *Actions) {
	y, oldest := p.AETH.Syndrome, p.BTH.PSN == s.req.una
	off := int(s.req.offset(p.BTH.PSN))
	if off >= s.rec.Used() || s.rec.At(off).State == selective.Settled {
		return
	}
	s.req.sawAnswer(y)
	switch {
	case y.IsRNR():
		if s.req.retry.rnrAt != clock.Never {
			s.req.env.Counters.DuplicateAck++
			return
		}
		s.rec.Refused(off, 1)
		s.rec.Pause()
		s.notReady = p.BTH.PSN
		if oldest {
			s.req.receiverNotReady(now, y.Value(), out)
			return
		}
		// Responses before it are missing: this costs no retry, and neither does the ACK timer meanwhile.
		s.req.rewind()
		s.req.retry.rnrAt = now.Add(RNRDelay(y.Value()))
	case y == wire.NakPSNSequence: // of a peer that has gone back to go-back-N: no such peer was agreed on
		s.req.env.Counters.DuplicateAck++
	case oldest:
		s.cmp.fatalNak(y, out)
	}
}
