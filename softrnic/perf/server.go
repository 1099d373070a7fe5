package perf

import (
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// PerfService is the name of the benchmark service. Its host receives, verifies and echoes
// messages.
const PerfService = "perf"

// NewServer starts the benchmark service: a memory service whose host receives messages, too. The
// caller must call Serve. NewServer sets the fields Service and Worker of cfg.
func NewServer(ctx verbs.Context, m rdmacm.Manager, cfg memservice.Config) (*memservice.Server, error) {
	cfg.Service, cfg.Worker = PerfService, worker{}
	return memservice.New(ctx, m, cfg)
}

// worker makes the server's part in connections; it is the Worker of the memory service.
type worker struct{}

func (worker) Parse(data []byte) (memservice.Work, error) {
	w, err := parseRequest(data)
	return &work{request: w}, err
}

// work is the server's part in one connection.
type work struct {
	request
	*memservice.Conn
	rt     verbs.Runtime
	report verbs.MR
	data   verbs.MR    // receive buffers
	buf    []byte      // the memory of data
	ls     *laneServer // nil means that the connection itself carries the messages
}

// Name returns the mode, or the lanes as text, for the name of the thread.
func (w *work) Name() string {
	if w.lanes.n > 0 {
		return w.lanes.String()
	}
	return w.mode.String()
}

// Bytes returns the size of all receives.
func (w *work) Bytes() int64 { return int64(w.recvs) * int64(w.slot()) * int64(w.queues()) }

// Queues returns the sizes of the queues: they have room for all receives and the echoes.
func (w *work) Queues() (wrs, cqes int) { return w.recvs, 2*w.recvs*w.queues() + 1 }

func (w *work) Register(c *memservice.Conn) (err error) {
	w.Conn, w.rt = c, c.Context.Runtime()
	if w.report, err = c.Register(nil, reportSize+laneBytes(w.queues()), memservice.RemoteAccess); err != nil {
		return err
	}
	var free func() error
	if w.buf, free, err = verbs.Buffer(c.Context, int(w.Bytes())); err != nil {
		return err
	}
	c.OnDestroy(free)
	w.data, err = c.Register(w.buf, len(w.buf), verbs.LocalWrite)
	return err
}

// Build makes the lanes, if the client needs any. It returns the encoded region of the report for
// the client.
func (w *work) Build(*memservice.Conn) ([]byte, error) {
	if w.lanes.n > 0 {
		if err := w.buildLanes(); err != nil {
			return nil, err
		}
	}
	return memservice.RegionOf(w.report).AppendTo(nil), nil
}

func (w *work) Serve() {
	if w.ls != nil {
		w.ls.run()
		return
	}
	s := &sink{w: w, pat: Pattern{w.seed}}
	// The error is ignored, because the client notices the failure itself: its work requests fail,
	// or w.report, which it READs, does not change any more.
	_ = s.serve()
	_ = w.QP.ToError() // so that a client that still sends ends its connection after its retries
	_ = w.Conn.Destroy()
}
