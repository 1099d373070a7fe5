// Package chains runs programs made of work requests, and the baselines of the paper RedN, between
// two machines: a server whose NIC or process answers, and clients. The machines are hosts of the
// simulator, or of a rack; the code is the same.
//
//	run.go      Run, a measurement in progress; the client's end of a connection
//	client.go   the requests of a client
//	server.go   the server: its data, its process, and the program of its NIC
//	program.go  a program for a NIC, and the queue pairs that execute it
//	timeline.go GETs while the server's process dies and comes back
//	verbs.go    single requests, chains of no-ops, and constructs, which need no client
package chains

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// Service is the name under which the server listens for clients with the connection manager.
	Service = "redn"
	// patience is how long client and server wait for each other. On a rack whose processors do
	// other work, a value of 64 KiB has taken more than a second to arrive.
	patience = 10 * time.Second
	// dialPatience is how long a client waits for a server that prepares a program.
	dialPatience = 10 * time.Second
	// sendLen is how many bytes of a client's buffer each request in flight has. The places for
	// values are behind those for requests.
	sendLen = 256
)

type Machine struct {
	Context verbs.Context
	Manager rdmacm.Manager
	Addr    netip.Addr
	// Alloc returns n bytes of memory that can be registered with the NIC.
	Alloc func(n int) ([]byte, error)
	// onNIC puts programs into the memory of the NIC.
	onNIC bool
}

type Config struct {
	Load   experiment.RedN
	Server netip.Addr
	// Rounds is how many requests a client makes if the load measures times, Rated how many if it
	// measures a rate (Load.Depth above 1). Span is how long the laps of a recycled loop are
	// counted. Span must be over before 4,096 laps, because the counter of laps has 16 bits and
	// each lap adds the 16 blocks of the ring to it.
	Rounds, Rated int
	Span          time.Duration
	// Doorbell and Completion are times of the NIC that the platform does not spend itself: from a
	// doorbell to its execution, and from a completion to the program. Both are 0 on a rack.
	Doorbell, Completion time.Duration
	// Ready is called by each client when it has connected. It returns when the load may begin.
	Ready func(rt verbs.Runtime) error
	// Failed is called when a thread of the server has ended with an error. Stopped reports whether
	// the run has failed; then a client ends before its next request. Stopped may be nil if clients
	// need not end early.
	Failed  func(err error)
	Stopped func() bool
}

type Run struct {
	Config
	data data

	mu   sync.Mutex            // guards took and out while clients run
	took []time.Duration       // how long requests took; see note
	out  experiment.RedNResult // the outcome, to which Result adds the statistics of took
}

func New(cfg Config) *Run {
	cfg.Load.Clients, cfg.Load.Depth = max(1, cfg.Load.Clients), max(1, cfg.Load.Depth)
	r := &Run{Config: cfg}
	r.data.places, r.data.value = keysOf, max(8, cfg.Load.Bytes)
	if cfg.Load.Kind == experiment.ChainList {
		r.data.places = nodesOf + 1
	}
	if cfg.Load.Kind == experiment.ChainLookup {
		r.data.table = lookUp(cfg.Load.Way, r.data.places, r.data.value)
	}
	return r
}

// Alone reports whether the load needs no client: the server's NIC executes a program by itself.
func (r *Run) Alone() bool {
	return r.Load.Kind == experiment.ChainOrder || r.Load.Kind == experiment.ChainConstruct
}

// Result returns the outcome without RedNResult.Entries, which the platform counts. It is called
// when all clients have ended.
func (r *Run) Result() experiment.RedNResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Times(r.took)
	return r.out
}

func (r *Run) Requests() int { return r.Load.Clients * r.rounds() }

func (r *Run) stopped() bool { return r.Stopped != nil && r.Stopped() }

// note records how long one request took; Result makes statistics of these times.
func (r *Run) note(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = append(r.took, d)
}

// rounds returns the number of requests of a client: Rated if the load measures a rate, otherwise
// Rounds or, with WayBreak, breakWalks. Load.Few reduces Rounds and breakWalks to a quarter.
func (r *Run) rounds() int {
	n := r.Rounds
	switch {
	case r.Load.Depth > 1:
		return r.Rated
	case r.Load.Way == experiment.WayBreak:
		n = breakWalks
	}
	if r.Load.Few {
		n = max(1, n/4)
	}
	return n
}

// endpoint is a client's connection to the server.
type endpoint struct {
	rt    verbs.Runtime
	cq    verbs.CQ
	qp    verbs.QP
	mr    verbs.MR
	buf   []byte
	base  uint64 // address of the server's data
	rkey  uint32
	recvs int // receives that are posted
	wcs   [16]verbs.WC
}

// dial connects a client. The client's buffer has room for Depth requests and Depth values.
func (r *Run) dial(m Machine) (e *endpoint, err error) {
	e = &endpoint{rt: m.Context.Runtime()}
	if e.buf, err = m.Alloc(sendLen*r.Load.Depth + max(r.Load.Bytes, sendLen)*r.Load.Depth); err != nil {
		return nil, err
	}
	pd, err := m.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	if e.mr, err = pd.RegMR(e.buf, len(e.buf), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return nil, err
	}
	if e.cq, err = m.Context.CreateCQ(8 * (r.Load.Depth + 1)); err != nil {
		return nil, err
	}
	if e.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: r.Load.Depth + 1, MaxRecvWR: 4 * (r.Load.Depth + 1)}); err != nil {
		return nil, err
	}
	b, err := m.Manager.Dial(e.qp, r.Server, Service, rdmacm.Params{Timeout: experiment.StallTimeout}, regionOf(e.mr), e.rt.Now().Add(dialPatience))
	if err != nil {
		return nil, err
	}
	var far memgrant.Region
	err = far.Parse(b)
	e.base, e.rkey = far.Addr, far.RKey
	return e, err
}

// regionOf encodes address, R_Key and length of a region, to be sent to the peer with the
// connection manager's messages.
func regionOf(mr verbs.MR) []byte {
	return memgrant.Region{Addr: mr.Addr(), RKey: mr.RKey(), Len: mr.Len()}.AppendTo(nil)
}

// await waits for completions and takes them. sent is how many sends and READs have completed. hits
// is how many answers brought a value, ends how many answers have the immediate data redn.Miss:
// they bring no value, and each of them is the last answer to its request.
func (e *endpoint) await() (sent, hits, ends int, err error) {
	if err := e.cq.Wait(e.rt.Now().Add(patience)); err != nil {
		return 0, 0, 0, err
	}
	n, err := e.cq.Poll(e.wcs[:])
	for i := range e.wcs[:n] {
		switch wc := &e.wcs[i]; {
		case wc.Status != verbs.Success:
			return 0, 0, 0, fmt.Errorf("a request ends with %v", wc.Status)
		case wc.Opcode != verbs.WCRecvWriteImm:
			sent++
		case wc.Imm == redn.Miss:
			ends, e.recvs = ends+1, e.recvs-1
		default:
			hits, e.recvs = hits+1, e.recvs-1
		}
	}
	return sent, hits, ends, err
}

// receive posts receives until n are posted.
func (e *endpoint) receive(n int) error {
	for ; e.recvs < n; e.recvs++ {
		if err := e.qp.PostRecv(verbs.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

// read READs n bytes at an offset of the server's data, and waits for them.
func (e *endpoint) read(off, n int) error {
	wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(0, n)}, RemoteAddr: e.base + uint64(off), RKey: e.rkey}
	if err := e.qp.PostSend(wr); err != nil {
		return err
	}
	_, _, _, err := e.await()
	return err
}

// send SENDs a request. place is the number of its place in the client's buffer.
func (e *endpoint) send(place int, b []byte) error {
	copy(e.buf[place*sendLen:], b)
	return e.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(place*sendLen, len(b))}})
}
