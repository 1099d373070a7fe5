package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
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
	Type           verbs.QPType // RC; others are ErrNotSupported for now
	SendCQ, RecvCQ *cq.CQ
	MaxSendWR      int // 0: 128
	MaxRecvWR      int // 0: 128
	MaxSGE         int // 0: 4
	MaxInline      int // bytes; 0: 256
	SignalAll      bool
	// Window is how many request packets may be in flight, and how many response packets one step may emit.
	Window int // 0: 128
	// AckEvery sets AckReq at least every that many request packets, so that the window always moves.
	AckEvery int // 0: 32
	// CoalesceAcks holds the ACK of a step back until FlushAcks or Tick, so that one ACK answers a receive
	// batch. Deadline is then due at once, so nothing is held for long by a caller that only ticks.
	CoalesceAcks bool
}

// QP is one queue pair.
type QP struct {
	env   *Env
	cfg   Config
	state verbs.QPState
	init  verbs.ToInit
	rtr   verbs.ToRTR
	rts   verbs.ToRTS
}

// New makes a queue pair in RESET.
func New(env *Env, cfg Config) (*QP, error) {
	return &QP{env: env, cfg: cfg}, nil
}

// Num returns the queue pair number.
func (q *QP) Num() wire.QPN { return q.cfg.QPN }

// State returns the state.
func (q *QP) State() verbs.QPState { return q.state }

// Config returns the creation attributes with their defaults filled in.
func (q *QP) Config() Config { return q.cfg }

// Init returns the attributes of the last transition to INIT.
func (q *QP) Init() verbs.ToInit { return q.init }

// RTR returns the attributes of the last transition to RTR: the peer's address.
func (q *QP) RTR() verbs.ToRTR { return q.rtr }

// Query returns attributes and state.
func (q *QP) Query() verbs.QPAttr { return verbs.QPAttr{QPN: q.cfg.QPN, State: q.state} }

// ToInit goes from RESET to INIT (or changes INIT).
func (q *QP) ToInit(a verbs.ToInit) error { q.init, q.state = a, verbs.StateInit; return nil }

// ToRTR goes from INIT to RTR.
func (q *QP) ToRTR(now clock.Time, a verbs.ToRTR) error {
	q.rtr, q.state = a, verbs.StateRTR
	return nil
}

// ToRTS goes from RTR to RTS.
func (q *QP) ToRTS(now clock.Time, a verbs.ToRTS) error {
	q.rts, q.state = a, verbs.StateRTS
	return nil
}

// ToSQD lets the send queue drain; EventSQDrained follows.
func (q *QP) ToSQD(now clock.Time, out *Actions) error { q.state = verbs.StateSQD; return nil }

// ResumeRTS goes back from SQD to RTS.
func (q *QP) ResumeRTS(now clock.Time, out *Actions) error { q.state = verbs.StateRTS; return nil }

// ToError flushes all outstanding work requests, in order, with WRFlushErr.
func (q *QP) ToError(now clock.Time, out *Actions) error { q.state = verbs.StateError; return nil }

// ToReset forgets everything without completions.
func (q *QP) ToReset() error { q.state = verbs.StateReset; return nil }

// PostSend queues a work request and sends what it may. The request is copied; its memory is not, unless inline.
func (q *QP) PostSend(now clock.Time, wr *verbs.SendWR, out *Actions) error { return nil }

// PostRecv queues a receive. In the error state it is flushed by the next Tick, which is due at once.
func (q *QP) PostRecv(wr *verbs.RecvWR) error { return nil }

// Handle takes a packet that is for this queue pair and from its peer. The packet and its payload are only read,
// and not kept.
func (q *QP) Handle(now clock.Time, p *wire.Packet, out *Actions) {}

// FlushAcks sends the acknowledgement that CoalesceAcks held back, if any.
func (q *QP) FlushAcks(now clock.Time, out *Actions) {}

// Tick does what is due at or before now.
func (q *QP) Tick(now clock.Time, out *Actions) {}

// Deadline is when Tick next wants to be called; clock.Never if idle.
func (q *QP) Deadline() clock.Time { return clock.Never }
