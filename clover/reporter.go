package clover

import (
	"errors"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	calls "github.com/rdmalab/rdmalab/store/rpc"
)

// Reporter sends reports of appends to the metadata server, for all clients of a process that have
// it in Config.Reporter. The published client has background threads for this. While a request is
// in flight, further reports wait; the next request contains as many of them as fit. The Reporter
// has a connection of its own, which it makes for the first report, and a thread that runs while
// there are reports. Any thread may call its methods.
//
// A client hands over one part (a list of records) at a time, so that its reports keep their order.
// Because reports name locations, the client confirms no epoch before the metadata server has the
// client's reports of earlier epochs. If the process dies, reports that were not sent are lost, and
// the metadata server finds the appended nodes itself.
type Reporter struct {
	cfg Config
	rt  verbs.Runtime
	// gate wakes the thread. ended wakes Close.
	gate, ended verbs.Gate

	mu sync.Mutex // guards the fields below, and the outcomes of parts; not held during a verb
	// parts are the parts that wait to be sent. Each client has at most one part here. running is
	// true while there is a thread, closed after Close was called.
	parts           []*part
	running, closed bool

	// Only the Reporter's thread uses the fields below, and Close after this thread has ended.
	// There is at most one such thread at a time.
	fab     *remotemem.Fabric
	caller  calls.Caller
	request rpc.Request
	bytes   []byte
	seq     uint32
}

// part has the records of one client that the Reporter sends in one request.
type part struct {
	rpc.Part
	gate verbs.Gate // the client's gate; it opens when the part is over
	// over is true when the Reporter makes no more attempts to send the part. Then lost is false if
	// the metadata server has answered, and true if no answer came: the server may or may not have
	// the part.
	over, lost bool
}

const (
	// reportTimeout is the time limit of an attempt to send a request, including the connection. It
	// is longer than callTimeout, because no operation waits for a report. reportPause is the pause
	// after a failed attempt.
	reportTimeout = 1500 * time.Millisecond
	reportPause   = time.Millisecond
	// reportLinger is how long the thread waits for further reports before it ends.
	reportLinger = 5 * time.Millisecond
)

// NewReporter makes a Reporter for clients with the same Config.Meta and Config.Params as cfg. The
// Reporter's queue pair belongs to cfg.Context.
func NewReporter(cfg Config) *Reporter {
	rt := cfg.Context.Runtime()
	return &Reporter{cfg: cfg, rt: rt, gate: rt.NewGate(), ended: rt.NewGate()}
}

// Close ends the connection. The caller has closed all clients.
func (r *Reporter) Close() error {
	for r.end() {
		r.gate.Open()
		// each thread opens r.ended at its end, so an earlier thread may have opened it: hence the
		// loop
		_ = r.ended.Wait(clock.Never)
	}
	if r.fab == nil {
		return nil
	}
	return r.fab.Close()
}

// end tells the thread to end, and reports whether it still runs.
func (r *Reporter) end() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.running
}

// add accepts a part from a client. It starts the thread if necessary.
func (r *Reporter) add(p *part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		p.over, p.lost = true, true
		return
	}
	r.parts = append(r.parts, p)
	if r.running {
		r.gate.Open()
		return
	}
	r.running = true
	r.rt.Go("reporter", r.run)
}

// outcome reports whether the request with a part has ended (over), and whether it has failed, so
// that the part may be lost.
func (r *Reporter) outcome(p *part) (over, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.over, p.lost
}

// run is the thread that sends the parts.
func (r *Reporter) run() {
	for waited := false; ; {
		list, more := r.next(waited)
		switch {
		case !more:
			return
		case list == nil:
			waited = r.gate.Wait(r.rt.Now().Add(reportLinger)) != nil
		default:
			waited = false
			r.done(list, r.send(list))
		}
	}
}

// next returns the oldest parts, as many as fit into one request. more is false when the thread
// must end: no part waits, and the Reporter is closed or the thread has waited reportLinger for one
// (waited).
func (r *Reporter) next(waited bool) (list []*part, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.parts) == 0 && (waited || r.closed) {
		r.running = false
		r.ended.Open()
		return nil, false
	}
	n := 0
	for left := rpc.MaxParts; n < len(r.parts) && r.parts[n].Len() <= left; n++ {
		left -= r.parts[n].Len()
	}
	list = append(list, r.parts[:n]...)
	r.parts = r.parts[:copy(r.parts, r.parts[n:])]
	return list, true
}

// done is called after a request with the parts in list. It marks them as over, and as lost if
// `sent` is false.
func (r *Reporter) done(list []*part, sent bool) {
	r.mu.Lock()
	for _, p := range list {
		p.over, p.lost = true, !sent
	}
	r.mu.Unlock()
	for _, p := range list {
		p.gate.Open()
	}
	if !sent {
		r.rt.Sleep(reportPause)
	}
}

// send sends a request with the parts in list. It returns true if the metadata server has answered.
// If not, the server may still receive the request later.
func (r *Reporter) send(list []*part) bool {
	deadline := r.rt.Now().Add(reportTimeout)
	if r.connect(deadline) != nil {
		return false
	}
	r.seq++
	to := r.caller.Buffer()
	q := &r.request
	*q = rpc.Request{Seq: r.seq << 1, Op: rpc.OpReports, Parts: q.Parts[:0], BufAddr: to.Addr, BufRKey: to.RKey}
	for _, p := range list {
		q.Parts = append(q.Parts, p.Part)
	}
	r.bytes = q.AppendTo(r.bytes[:0])
	if r.caller.Post(r.bytes, q.Seq) != nil {
		return false
	}
	// The next request uses the same buffer, so the server's NIC must have acknowledged the present
	// request, too.
	if r.caller.Wait(deadline) != nil || r.caller.Drain(deadline) != nil {
		_ = r.fab.Break(r.caller.Peer) // the next attempt makes another connection
		return false
	}
	return true
}

// connect connects to the metadata server if there is no connection.
func (r *Reporter) connect(deadline clock.Time) (err error) {
	if r.fab == nil {
		fab, err := remotemem.New(remotemem.Config{Context: r.cfg.Context, Buffer: rpc.MaxRequest + rpc.MaxAnswer, Access: verbs.RemoteWrite})
		if err != nil {
			return err
		}
		r.caller = calls.Caller{Fabric: fab, Answer: rpc.MaxRequest, Name: r.cfg.Meta.String()}
		fab.OnNotify(r.caller.Notify)
		if r.caller.Peer, err = r.cfg.addMeta(fab, 1); err != nil {
			return errors.Join(err, fab.Close())
		}
		r.fab = fab
	}
	return r.fab.Open(r.caller.Peer, deadline)
}
