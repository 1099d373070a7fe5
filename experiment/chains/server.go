package chains

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// keysOf is the number of keys of a table. nodesOf is the number of nodes of a list that have a
	// key; an end node follows them.
	keysOf, nodesOf = 16, 8
	// stride is the distance of nodes in bytes.
	stride = 64
	// neighbours is the length of the READ by which a client finds a key by itself: the six buckets
	// of 16 bytes in which hopscotch hashing may have put it.
	neighbours = 6 * 16
	// programLen is the size of the memory of a program, in bytes.
	programLen = 4 << 20
	// breakWalks is how many walks a client makes with WayBreak. It is small because each of these
	// walks needs a connection and queues of its own.
	breakWalks = 40
	// visit is the time that the server's process takes for each node of a list.
	visit = 100 * time.Nanosecond
)

// data is the server's memory. buf, at address base, has the buckets or nodes, whose number is
// `places`, and behind them the value of each, of `value` bytes.
type data struct {
	buf    []byte
	base   uint64
	places int
	value  int
	table  *lookedUp // the table of lookups; nil if there are none
}

func (d *data) valueAt(place int) int {
	if d.table != nil {
		return d.table.shape.ValueAt(len(d.table.firsts) + place)
	}
	return d.places*stride + place*d.value
}

func keyAt(place int) redn.Operand { return redn.Operand(0x5a0000000001 + place) }

// fill writes the list if list is true, otherwise the table, and the values.
func (d *data) fill(mr verbs.MR, list bool) {
	d.base = mr.Addr()
	at := func(off int) uint64 { return d.base + uint64(off) }
	for i := range d.places {
		b, value := d.buf[i*stride:], at(d.valueAt(i))
		switch {
		case list && i == d.places-1:
			copy(b, redn.AppendEnd(nil, value, at(i*stride)))
		case list:
			copy(b, redn.AppendNode(nil, keyAt(i), value, at((i+1)*stride)))
		default:
			copy(b, redn.AppendBucket(nil, keyAt(i), value))
		}
		for j := range d.value {
			d.buf[d.valueAt(i)+j] = byte(i + j + 1)
		}
	}
}

type server struct {
	*Run
	m  Machine
	pd verbs.PD
	mr verbs.MR
}

// Serve runs the server: it makes the data, and accepts clients. What answers a client depends on
// the Run: a program of the NIC, a thread of the process, or nothing, if the client uses only
// one-sided operations. Serve makes it when the client connects. When clients may connect, Serve
// calls ready with a function that ends the server. Serve returns nil after that function was
// called or the machine's context was closed.
func (r *Run) Serve(m Machine, ready func(close func() error)) (err error) {
	m.onNIC = r.Load.OnNIC
	s, d := &server{Run: r, m: m}, &r.data
	if d.buf, err = m.Alloc(d.valueAt(d.places) + neighbours); err != nil {
		return err
	}
	if s.pd, err = m.Context.AllocPD(); err != nil {
		return err
	}
	access := verbs.LocalWrite | verbs.RemoteRead
	if s.Load.Kind == experiment.ChainVerb || s.Load.Kind == experiment.ChainRate {
		access |= verbs.RemoteWrite | verbs.RemoteAtomic
	}
	if s.mr, err = s.pd.RegMR(d.buf, len(d.buf), access); err != nil {
		return err
	}
	if d.table != nil {
		err = d.table.fill(s.mr)
	} else {
		d.fill(s.mr, s.isList())
	}
	if err != nil {
		return err
	}
	l, err := m.Manager.Listen(Service)
	if err != nil {
		return err
	}
	ready(l.Close)
	for {
		req, err := l.Accept(clock.Never)
		if errors.Is(err, verbs.ErrClosed) {
			return nil
		}
		if err == nil {
			err = s.welcome(req)
		}
		if err != nil {
			return err
		}
	}
}

func (r *Run) isList() bool { return r.Load.Kind == experiment.ChainList }

// welcome accepts the connection of a client, and makes the NIC program or the thread, if the load
// needs one, that answers the client's requests.
func (s *server) welcome(req rdmacm.Request) error {
	l := &s.Load
	var region memgrant.Region
	if err := region.Parse(req.Private()); err != nil {
		return req.Reject(err.Error())
	}
	client := redn.Mem{Addr: region.Addr, RKey: region.RKey, Len: region.Len}
	if l.Kind == experiment.ChainVerb || l.Kind == experiment.ChainRate {
		return s.process(req, client)
	}
	switch l.Way {
	case experiment.WayIdeal, experiment.WayReads, experiment.WayPolling, experiment.WayEvents:
		return s.process(req, client)
	}
	p, err := s.program(client)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	if err := s.accept(req, p.Last()); err != nil {
		return err
	}
	return p.Last().PostRecv(p.receives...)
}

func (s *server) accept(req rdmacm.Request, qp verbs.QP) error {
	return req.Accept(qp, rdmacm.Params{}, regionOf(s.mr), s.m.Context.Runtime().Now().Add(patience))
}

func (s *server) program(client redn.Mem) (p *program, err error) {
	l := &s.Load
	n := s.rounds()
	table := redn.MemOf(s.mr)
	value := s.data.value
	recvs := n
	if l.Way == experiment.WayRecycled && !s.isList() {
		recvs = 1
	}
	if p, err = newProgram(s.m, s.pd, programLen, recvs); err != nil {
		return nil, err
	}
	if p.queue("master", 4, verbs.RingInit{}, true); p.err != nil {
		return nil, p.err
	}
	answer := client.At(sendLen*l.Depth, value)
	switch {
	case s.isList() && l.Way == experiment.WayRecycled:
		return p, p.list(n, table, answer)
	case s.isList():
		if l.Way == experiment.WayBreak {
			n = 1
		}
		return p, p.walks(n, nodesOf, l.Way == experiment.WayBreak, table, answer)
	case l.Way == experiment.WayRecycled:
		return p, p.again(1, table, answer)
	}
	return p, p.lookups(func(u *redn.Lookup) (int, error) {
		switch l.Way {
		case experiment.WayNIC:
			return 1, nil
		case experiment.WaySequential:
			return 2, nil
		case experiment.WayParallel:
			u.Beside = append(u.Beside, p.queue("beside", (n+1)*lookupBlocks, unrolled, true))
			return 2, nil
		}
		return 0, fmt.Errorf("RedN: way %.20q is not known", l.Way)
	}, n, l.Depth, table, client, value)
}

// process accepts a client that needs no program: the server's process answers its requests, or the
// client uses only one-sided operations.
func (s *server) process(req rdmacm.Request, client redn.Mem) error {
	cq, err := s.m.Context.CreateCQ(64)
	if err != nil {
		return err
	}
	sent, err := s.m.Context.CreateCQ(64)
	if err != nil {
		return err
	}
	qp, err := s.pd.CreateQP(verbs.QPInit{SendCQ: sent, RecvCQ: cq, MaxRecvWR: 16, MaxSendWR: 16})
	if err != nil {
		return err
	}
	if err := s.accept(req, qp); err != nil {
		return err
	}
	if way := s.Load.Way; way != experiment.WayPolling && way != experiment.WayEvents {
		return nil
	}
	w := &worker{server: s, rt: s.m.Context.Runtime(), cq: cq, sent: sent, qp: qp, client: client}
	if w.buf, err = s.m.Alloc(sendLen); err != nil {
		return err
	}
	if w.mr, err = s.pd.RegMR(w.buf, len(w.buf), verbs.LocalWrite); err != nil {
		return err
	}
	w.rt.Go("worker", func() {
		if err := w.serve(); !errors.Is(err, verbs.ErrClosed) {
			s.Failed(err)
		}
	})
	return nil
}

// worker is a thread of the server's process that answers the requests of one client.
type worker struct {
	server *server
	rt     verbs.Runtime
	cq     verbs.CQ // completions of receives alone, so that only a request makes an event
	sent   verbs.CQ
	qp     verbs.QP
	mr     verbs.MR
	buf    []byte
	client redn.Mem
}

// serve answers each request by a WRITE of the value, with immediate data. The first byte of a
// request is the place of its key.
func (w *worker) serve() error {
	l := &w.server.Load
	var wcs [8]verbs.WC
	recv := verbs.RecvWR{SGL: []verbs.SGE{w.mr.SGE(0, len(w.buf))}}
	if err := w.qp.PostRecv(recv); err != nil {
		return err
	}
	for {
		n, err := w.wait(l, wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if wcs[i].Status != verbs.Success {
				return verbs.ErrClosed // the client has gone
			}
			place := int(w.buf[0])
			took := w.server.Completion + l.Serve
			if w.server.isList() {
				took += time.Duration(place+1) * visit
			}
			w.sleep(took)
			if err := w.qp.PostRecv(recv); err != nil {
				return err
			}
			var answered [8]verbs.WC
			if _, err := w.sent.Poll(answered[:]); err != nil {
				return err
			}
			d := &w.server.data
			err := w.qp.PostSend(verbs.SendWR{
				Op: verbs.OpWriteImm, Flags: verbs.Signalled, Imm: redn.Hit, SGL: []verbs.SGE{w.server.mr.SGE(d.valueAt(place), d.value)},
				RemoteAddr: w.client.Addr + sendLen, RKey: w.client.RKey,
			})
			if err != nil {
				return err
			}
		}
	}
}

// wait waits for completions: with WayPolling it polls, otherwise it sleeps until an event. A
// completion that has come before the completion queue was armed makes no event, so wait polls
// after arming.
func (w *worker) wait(l *experiment.RedN, wcs []verbs.WC) (n int, err error) {
	if l.Way == experiment.WayPolling {
		if err := w.cq.Wait(clock.Never); err != nil {
			return 0, err
		}
		return w.cq.Poll(wcs)
	}
	for {
		if err := w.cq.Arm(false); err != nil {
			return 0, err
		}
		if n, err := w.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if err := w.cq.WaitEvent(clock.Never); err != nil {
			return 0, err
		}
		w.sleep(l.Wake)
		if n, err := w.cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
	}
}

// sleep spends the time d, which the server's process takes for its work in the model. On a rack d
// is 0, except for the nodes of a list (visit).
func (w *worker) sleep(d time.Duration) {
	if d > 0 {
		w.rt.Sleep(d)
	}
}
