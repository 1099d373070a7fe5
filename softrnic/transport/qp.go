package transport

import (
	"cmp"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Limits of one queue pair.
const (
	maxWR       = 1 << 15 // work requests in one queue
	maxSGEs     = 32      // pieces of one work request
	maxInline   = 4096    // bytes
	maxRdAtomic = 255     // READs and atomics in flight
	maxWindow   = 1 << 14 // packets in flight
	// defaultWindow is the window in packets if Config.Window is 0.
	defaultWindow = 128
	// MaxMessage is the length of the largest message in bytes (IBTA 9.7/size).
	MaxMessage = 1 << 31
)

// Env has the objects that all queue pairs of a NIC share.
type Env struct {
	Mem      *mem.Table
	Counters *metrics.NIC
}

// Config describes a queue pair at its creation.
type Config struct {
	QPN            wire.QPN
	PD             mem.PD
	Type           verbs.QPType
	SendCQ, RecvCQ *cq.CQ
	// SRQ, if not nil, is the shared receive queue from which the queue pair takes its receives.
	SRQ *SRQ
	// XRC is the domain of a target of XRC, and nil for other queue pairs.
	XRC       XRCDomain
	MaxSendWR int // 0 means 128
	MaxRecvWR int // 0 means 128
	MaxSGE    int // 0 means 4
	MaxInline int // bytes; 0 means 256
	// SignalAll makes every send work request signalled.
	SignalAll bool
	// Window is the largest number of request packets in flight, and of READ response packets that one
	// step sends.
	Window int // 0 means 128
	// PortMTU is the largest payload of a datagram of a UD queue pair. 0 means 1024.
	PortMTU verbs.MTU
	// AckEvery: at least every AckEvery-th request packet requests an acknowledgement (AckReq), so
	// that the sender gets some during a long message.
	AckEvery int // 0 means 32
	// Flow, if not nil, decides when data packets may leave. The queue pair uses it alone.
	Flow *congestion.Flow
	// CoalesceAcks delays the ACK of a step until FlushAcks or Tick is called, so that one ACK answers
	// a batch of received packets. Until then Deadline is due at once, so that the next Tick sends the
	// ACK if the caller does not call FlushAcks.
	CoalesceAcks bool
	// Acks is how many requests one ACK may answer. 0 means those of a batch (see CoalesceAcks). With 1,
	// each request has an ACK of its own. With n > 1 the queue pair also holds an ACK back for AckHold,
	// until n requests are executed.
	Acks int
	// Recovery is how a queue pair of RC recovers from losses. It has an effect if the peer can do it,
	// too (verbs.ToRTR.Ahead).
	Recovery Recovery
}

// withDefaults returns c with its zero values replaced by defaults. It fails with an OpError that
// names the attribute and its range.
func (c Config) withDefaults() (Config, error) {
	fail := func(err error, format string, args ...any) (Config, error) {
		return c, verbs.Errorf("create qp", err, format, args...)
	}
	if int(c.Type) >= len(services) || services[c.Type] == nil {
		return fail(verbs.ErrNotSupported, "type %v", c.Type)
	}
	if c.XRC == nil != (c.Type != verbs.XRCTarget) || c.SRQ != nil && services[c.Type].opcodes == wire.ServiceXRC {
		return fail(verbs.ErrInvalid, "%v: a target of XRC has an XRC domain, and no queue pair of XRC has a shared receive queue of its own", c.Type)
	}
	c.PortMTU = cmp.Or(c.PortMTU, verbs.MTU1024)
	if !c.PortMTU.Valid() {
		return fail(verbs.ErrInvalid, "PortMTU %d; choose 256, 512, 1024, 2048 or 4096", c.PortMTU)
	}
	if (c.SendCQ == nil || c.RecvCQ == nil) && c.XRC == nil {
		return fail(verbs.ErrInvalid, "set SendCQ and RecvCQ")
	}
	err := fill("create qp", []sizeAttr{
		{"MaxSendWR", &c.MaxSendWR, 128, maxWR},
		{"MaxRecvWR", &c.MaxRecvWR, 128, maxWR},
		{"MaxSGE", &c.MaxSGE, 4, maxSGEs},
		{"MaxInline", &c.MaxInline, 256, maxInline},
		{"Window", &c.Window, defaultWindow, maxWindow},
		{"AckEvery", &c.AckEvery, 32, maxWindow},
	})
	return c, err
}

// sizeAttr is an attribute that is a size: its name, its value, its default and its largest value.
type sizeAttr struct {
	name     string
	v        *int
	def, max int
}

// fill replaces zeros by defaults. It returns an error of operation op for the first value that is
// out of its range.
func fill(op string, attrs []sizeAttr) error {
	for _, f := range attrs {
		*f.v = cmp.Or(*f.v, f.def)
		if *f.v < 1 || *f.v > f.max {
			return verbs.Errorf(op, verbs.ErrInvalid, "%s is %d; choose 1 to %d", f.name, *f.v, f.max)
		}
	}
	return nil
}

// QP is one queue pair: its state machine and its parts. The parts send requests, handle responses,
// receive messages and execute requests; the methods of QP call them.
type QP struct {
	core core
	req  requester        // send queue; for RC also requests and their retransmission
	cmp  completer        // for RC: handles responses of the peer
	unr  unreliableSender // for UC and UD: sends requests
	rcv  receiver         // receive queue
	rsp  responder        // executes requests of the peer
}

// New makes a queue pair in RESET. It fails with an OpError of ErrInvalid or ErrNotSupported.
func New(env *Env, cfg Config) (*QP, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	q := &QP{core: core{env: *env, cfg: cfg, svc: services[cfg.Type], access: memoryAccess{env.Mem, cfg.QPN, cfg.PD, cfg.PD}}}
	c := &q.core
	c.qp = q
	if cfg.XRC == nil {
		c.sent, c.received = cfg.SendCQ.Source(), cfg.RecvCQ.Source()
	}
	q.req.core, q.req.sender = c, sender{core: c, sq: newSendQueue(cfg.MaxSendWR, cfg.MaxSGE, cfg.MaxInline)}
	q.cmp = completer{core: c, req: &q.req}
	q.unr = unreliableSender{sender: &q.req.sender}
	q.rcv.open(c)
	q.rsp = responder{core: c, rcv: &q.rcv, answers: answers{core: c, rcv: &q.rcv}}
	q.rsp.exec = executor{core: c, rcv: &q.rcv, answers: &q.rsp.answers}
	q.forget()
	return q, nil
}

// Sent returns the Source of the send queue's completions.
func (q *QP) Sent() *cq.Source { return q.core.sent }

func (q *QP) Num() wire.QPN { return q.core.cfg.QPN }

func (q *QP) State() verbs.QPState { return q.core.state }

// Config returns the creation attributes with their defaults filled in.
func (q *QP) Config() Config { return q.core.cfg }

// Purge removes the completions of the queue pair from its completion queues. It is called when the
// queue pair is reset or destroyed.
func (q *QP) Purge() {
	if q.core.cfg.XRC == nil { // completions of a target are those of shared receive queues
		q.core.sent.Purge()
		q.core.received.Purge()
	}
}

func (q *QP) Query() verbs.QPAttr {
	return verbs.QPAttr{
		QPN: q.core.cfg.QPN, Type: q.core.cfg.Type, State: q.core.state,
		Init: q.core.init, RTR: q.core.rtr, RTS: q.core.rts,
		SendPSN: q.req.sender.nextPSN, RecvPSN: q.rsp.ePSN,
		SendQueued: q.req.sender.sq.len(), RecvQueued: q.rcv.rq.len(), RetransPkts: q.req.retransPkts,
		Draining: q.req.sender.draining,
	}
}

// Handle handles a received packet. The packet must be for this queue pair and from its peer.
// Handle only reads the packet and the payload, and keeps neither. In a state that does not
// receive, it drops the packet.
func (q *QP) Handle(now clock.Time, p *wire.Packet, out *Actions) {
	if q.accepts(now, p) {
		q.core.svc.receive(q, now, p, out)
	}
}

// accepts reports whether the queue pair receives in its state, and whether the packet belongs to
// its transport service.
func (q *QP) accepts(now clock.Time, p *wire.Packet) bool {
	q.core.lastNow = now
	switch q.core.state {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
	default:
		q.core.env.Counters.RxUnknownQP++
		q.core.saw(p.BTH.Opcode, "state")
		return false
	}
	if !q.Hears(p.BTH.Opcode) {
		q.core.env.Counters.RxUnsupported++ // dropped silently, IBTA 9.6/service
		return false
	}
	return true
}

// FlushAcks sends the ACK that was delayed because of CoalesceAcks, if there is one.
func (q *QP) FlushAcks(now clock.Time, out *Actions) {
	q.core.lastNow = now
	if a := &q.rsp.answers; a.cfg.Acks > 1 && a.at > now && a.onlyAck() {
		return
	}
	if len(q.rsp.answers.owed) > 0 || q.rsp.held != nil && q.rsp.held.waits {
		q.rsp.respond(now, out)
	}
}

// Tick handles the deadlines that are due at time `now`.
func (q *QP) Tick(now clock.Time, out *Actions) {
	q.core.lastNow = now
	if q.rcv.flushAt <= now {
		q.rcv.flushAt = clock.Never
		q.rcv.flush(out)
	}
	if q.rsp.answers.at <= now {
		q.rsp.respond(now, out)
	}
	if h := q.rsp.held; h != nil && h.at <= now && q.live() {
		q.rsp.tickHeld(now, out)
	}
	q.req.tick(now, out)
	q.req.tickPace(now, out)
	if q.unr.at <= now {
		q.unr.at = clock.Never
		q.send(now, out)
	}
}

// Deadline returns when Tick must be called next; clock.Never if nothing is due.
func (q *QP) Deadline() clock.Time {
	at := clock.Min(clock.Min(q.req.retry.at, q.req.retry.rnrAt), clock.Min(q.rsp.answers.at, q.rcv.flushAt))
	if h := q.rsp.held; h != nil {
		at = clock.Min(at, h.at)
	}
	if s := q.req.sel; s != nil {
		at = clock.Min(at, s.deadline())
	}
	return clock.Min(at, clock.Min(q.unr.at, q.req.pace.at))
}
