package transport

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Limits of one queue pair.
const (
	MaxWR       = 1 << 15 // work requests in one queue
	MaxSGEs     = 32      // pieces of one work request
	MaxInline   = 4096    // bytes
	MaxRdAtomic = 255     // READs and atomics outstanding
	MaxWindow   = 1 << 14 // packets in flight
	// MaxMsgSize is the largest message in bytes (IBTA 9.7/size).
	MaxMsgSize = 1 << 31
)

// Env is what all queue pairs of a NIC share.
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
	// SRQ, if any, gives the receives.
	SRQ       *SRQ
	MaxSendWR int // 0: 128
	MaxRecvWR int // 0: 128
	MaxSGE    int // 0: 4
	MaxInline int // bytes; 0: 256
	// SignalAll makes every send work request signalled.
	SignalAll bool
	// Window is how many request packets may be in flight, and how many response packets one step may emit.
	Window int // 0: 128
	// PortMTU bounds the datagrams of a UD queue pair. 0: 1024.
	PortMTU verbs.MTU
	// AckEvery sets AckReq at least every that many request packets, so that the window always moves.
	AckEvery int // 0: 32
	// CoalesceAcks holds the ACK of a step back until FlushAcks or Tick, so that one ACK answers a receive
	// batch. Deadline is then due at once, so nothing is held for long by a caller that only ticks.
	CoalesceAcks bool
}

// withDefaults returns c with its zero values replaced, or says what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	fail := func(err error, format string, args ...any) (Config, error) {
		return c, &verbs.OpError{Op: "create qp", Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	if int(c.Type) >= len(services) || services[c.Type] == nil {
		return fail(verbs.ErrNotSupported, "type %v", c.Type)
	}
	if c.PortMTU == 0 {
		c.PortMTU = verbs.MTU1024
	}
	if !validMTU(c.PortMTU) {
		return fail(verbs.ErrInvalid, "PortMTU %d; choose 256, 512, 1024, 2048 or 4096", c.PortMTU)
	}
	if c.SendCQ == nil || c.RecvCQ == nil {
		return fail(verbs.ErrInvalid, "a send and a receive completion queue are needed")
	}
	for _, f := range []struct {
		name     string
		v        *int
		def, max int
	}{
		{"MaxSendWR", &c.MaxSendWR, 128, MaxWR},
		{"MaxRecvWR", &c.MaxRecvWR, 128, MaxWR},
		{"MaxSGE", &c.MaxSGE, 4, MaxSGEs},
		{"MaxInline", &c.MaxInline, 256, MaxInline},
		{"Window", &c.Window, 128, MaxWindow},
		{"AckEvery", &c.AckEvery, 32, MaxWindow},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < 1 || *f.v > f.max {
			return fail(verbs.ErrInvalid, "%s is %d; choose 1 to %d", f.name, *f.v, f.max)
		}
	}
	return c, nil
}

// QP is one queue pair. Its parts are in the files of their roles: the requester sends, the completer takes the
// answers, the responder executes what the peer asks.
type QP struct {
	env   *Env
	cfg   Config
	svc   *service
	state verbs.QPState
	init  verbs.ToInit
	rtr   verbs.ToRTR
	rts   verbs.ToRTS
	mtu   uint32
	// recvPD is the protection domain of receives: that of the shared receive queue, if there is one.
	recvPD mem.PD
	// lastNow is the latest time that a caller told, for calls that have none.
	lastNow clock.Time
	// retransPkts is this queue pair's share of the NIC's counter of that name.
	retransPkts uint64

	sq  sendQueue
	rq  recvQueue
	req requester
	rsp responder
	// flushAt is due when a receive was posted in the error state.
	flushAt clock.Time
}

// New makes a queue pair in RESET.
func New(env *Env, cfg Config) (*QP, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	q := &QP{
		env: env, cfg: cfg, svc: services[cfg.Type],
		sq: newSendQueue(cfg.MaxSendWR, cfg.MaxSGE, cfg.MaxInline),
		rq: newRecvQueue(cfg.MaxRecvWR, cfg.MaxSGE), recvPD: cfg.PD,
	}
	if cfg.SRQ != nil {
		q.rq, q.recvPD = newRecvQueue(1, cfg.SRQ.rq.maxSGE), cfg.SRQ.pd
	}
	q.forget()
	return q, nil
}

// Num returns the queue pair number.
func (q *QP) Num() wire.QPN { return q.cfg.QPN }

// State returns the state.
func (q *QP) State() verbs.QPState { return q.state }

// Config returns the creation attributes with their defaults filled in.
func (q *QP) Config() Config { return q.cfg }

// Init returns the attributes of the last transition to INIT, with defaults filled in.
func (q *QP) Init() verbs.ToInit { return q.init }

// RTR returns the attributes of the last transition to RTR: the peer's address.
func (q *QP) RTR() verbs.ToRTR { return q.rtr }

// Query returns attributes and state.
func (q *QP) Query() verbs.QPAttr {
	return verbs.QPAttr{
		QPN: q.cfg.QPN, Type: q.cfg.Type, State: q.state,
		Init: q.init, RTR: q.rtr, RTS: q.rts,
		SendPSN: q.req.nextPSN, RecvPSN: q.rsp.ePSN,
		SendQueued: q.sq.len(), RecvQueued: q.rq.len(), RetransPkts: q.retransPkts,
	}
}

// Handle takes a packet that is for this queue pair and from its peer. The packet and its payload are only read,
// and not kept. In a state that does not receive, it is dropped.
func (q *QP) Handle(now clock.Time, p *wire.Packet, out *Actions) {
	if q.accepts(now, p) {
		q.svc.receive(q, now, p, out)
	}
}

// accepts reports whether state and service let p in.
func (q *QP) accepts(now clock.Time, p *wire.Packet) bool {
	q.lastNow = now
	switch q.state {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
	default:
		q.env.Counters.RxUnknownQP++
		q.saw(p.BTH.Opcode, "state")
		return false
	}
	if p.BTH.Opcode.Service() != q.svc.opcodes {
		q.env.Counters.RxUnsupported++ // dropped silently, IBTA 9.6/service
		return false
	}
	return true
}

// handleRC takes a packet of a reliable connection.
func (q *QP) handleRC(now clock.Time, p *wire.Packet, out *Actions) {
	switch {
	case !p.BTH.Opcode.Is(wire.OpResponse):
		q.handleRequest(now, p, out)
	case q.state != verbs.StateRTR:
		q.handleResponse(now, p, out)
	default:
		q.saw(p.BTH.Opcode, "state")
	}
}

// FlushAcks sends the acknowledgement that CoalesceAcks held back, if any.
func (q *QP) FlushAcks(now clock.Time, out *Actions) {
	q.lastNow = now
	if len(q.rsp.owed) > 0 {
		q.respond(now, out)
	}
}

// Tick does what is due at or before now.
func (q *QP) Tick(now clock.Time, out *Actions) {
	q.lastNow = now
	if q.flushAt <= now {
		q.flushAt = clock.Never
		q.flushReceives(out)
	}
	if q.rsp.respondAt <= now {
		q.respond(now, out)
	}
	q.tickRequester(now, out)
	if q.req.sendAt <= now {
		q.req.sendAt = clock.Never
		q.svc.send(q, now, out)
	}
}

// Deadline is when Tick next wants to be called; clock.Never if idle.
func (q *QP) Deadline() clock.Time {
	at := clock.Min(clock.Min(q.req.retryAt, q.req.rnrAt), clock.Min(q.rsp.respondAt, q.flushAt))
	return clock.Min(at, q.req.sendAt)
}
