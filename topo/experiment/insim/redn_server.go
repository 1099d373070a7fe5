package insim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

const (
	// chainKeys is the number of keys of a table. chainNodes is the length of a list, without the node
	// behind the last one.
	chainKeys, chainNodes = 16, 8
	// chainStride is the distance of buckets and nodes. chainSlot is the offset of the slot in a bucket,
	// for recycled programs.
	chainStride, chainSlot = 64, 32
	// chainNeighbours is what a client READs to find a key by itself: the six buckets of 16 bytes in
	// which hopscotch hashing may have put it.
	chainNeighbours = 6 * 16
	// chainProgram is the size of the memory of a program.
	chainProgram = 4 << 20
	// chainBreaks is the number of walks with a break: each has queues of its own.
	chainBreaks = 40
	// chainVisit is the time in which the server's process looks at a node.
	chainVisit = 100 * time.Nanosecond
)

// chainData is the memory of a server: buckets or nodes, then the values, each as long as a value.
type chainData struct {
	buf    []byte
	base   uint64
	places int
	value  int
}

func (d *chainData) valueAt(place int) int { return d.places*chainStride + place*d.value }

func chainKey(place int) redn.Operand { return redn.Operand(0x5a0000000001 + place) }

// fill writes the table or the list.
func (d *chainData) fill(mr verbs.MR, list bool) {
	d.base = mr.Addr()
	at := func(off int) uint64 { return d.base + uint64(off) }
	for i := range d.places {
		b, value := d.buf[i*chainStride:], at(d.valueAt(i))
		switch {
		case list && i == d.places-1:
			copy(b, redn.AppendEnd(nil, value, at(i*chainStride)))
		case list:
			copy(b, redn.AppendNode(nil, chainKey(i), value, at((i+1)*chainStride)))
		default:
			copy(b, redn.AppendBucket(nil, chainKey(i), value))
			copy(b[chainSlot:], redn.AppendSlot(nil, chainKey(i), redn.Hit, redn.Mem{Addr: value, LKey: mr.LKey(), Len: d.value}))
		}
		for j := range d.value {
			d.buf[d.valueAt(i)+j] = byte(i + j + 1)
		}
	}
}

// chainServer is the server's process.
type chainServer struct {
	run  *chainRun
	host *simrack.Host
	ctx  verbs.Context
	pd   verbs.PD
	mr   verbs.MR
}

// serve makes the data, and for each client that connects what answers it.
func (s *chainServer) serve() (err error) {
	d := &s.run.data
	d.places, d.value = chainKeys, max(8, s.run.load.Bytes)
	if s.list() {
		d.places = chainNodes + 1
	}
	d.buf = make([]byte, d.valueAt(d.places)+chainNeighbours)
	if s.pd, err = s.ctx.AllocPD(); err != nil {
		return err
	}
	access := verbs.LocalWrite | verbs.RemoteRead
	if s.run.load.Kind == experiment.ChainVerb {
		access |= verbs.RemoteWrite | verbs.RemoteAtomic
	}
	if s.mr, err = s.pd.RegMR(d.buf, len(d.buf), access); err != nil {
		return err
	}
	d.fill(s.mr, s.list())
	l, err := s.host.Manager(s.ctx).Listen(chainService)
	if err != nil {
		return err
	}
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

func (s *chainServer) list() bool { return s.run.load.Kind == experiment.ChainList }

// welcome accepts the connection of a client.
func (s *chainServer) welcome(req rdmacm.Request) error {
	l := &s.run.load
	private := req.Private()
	client := redn.Mem{Addr: binary.BigEndian.Uint64(private), RKey: binary.BigEndian.Uint32(private[8:])}
	client.Len = chainSend*l.Depth + max(l.Bytes, chainSend)*l.Depth
	if l.Kind == experiment.ChainVerb {
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
	if err := p.start(); err != nil {
		return err
	}
	if err := s.accept(req, p.last()); err != nil {
		return err
	}
	return p.last().PostRecv(p.receives...)
}

func (s *chainServer) accept(req rdmacm.Request, qp verbs.QP) error {
	private := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, s.mr.Addr()), s.mr.RKey())
	return req.Accept(qp, rdmacm.Params{}, private, s.ctx.Runtime().Now().Add(chainPatience))
}

// program builds the program that answers a client.
func (s *chainServer) program(client redn.Mem) (p *nicProgram, err error) {
	l := &s.run.load
	n := s.run.rounds()
	table := redn.Mem{Addr: s.mr.Addr(), LKey: s.mr.LKey(), RKey: s.mr.RKey(), Len: s.mr.Len()}
	value := s.run.data.value
	recvs := n
	if l.Way == experiment.WayRecycled && !s.list() {
		recvs = 1
	}
	if p, err = newProgram(s.host, s.ctx, s.pd, chainProgram, recvs); err != nil {
		return nil, err
	}
	if _, err = p.queue("master", 4, verbs.RingInit{}, true); err != nil {
		return nil, err
	}
	answer := client.At(chainSend*l.Depth, value)
	switch {
	case s.list() && l.Way == experiment.WayRecycled:
		return p, p.list(n, table, answer)
	case s.list():
		if l.Way == experiment.WayBreak {
			n = 1
		}
		return p, p.walks(n, chainNodes, l.Way == experiment.WayBreak, table, answer)
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
			beside, err := p.queue("beside", (n+1)*chainLookup, unrolled, true)
			u.Beside = append(u.Beside, beside)
			return 2, err
		}
		return 0, fmt.Errorf("RedN: way %.20q is not known", l.Way)
	}, n, l.Depth, table, client, value)
}

// process accepts a client whose requests the server's process answers, or that READs.
func (s *chainServer) process(req rdmacm.Request, client redn.Mem) error {
	cq, err := s.ctx.CreateCQ(64)
	if err != nil {
		return err
	}
	sent, err := s.ctx.CreateCQ(64)
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
	if way := s.run.load.Way; way != experiment.WayPolling && way != experiment.WayEvents {
		return nil
	}
	w := &chainWorker{server: s, rt: s.ctx.Runtime(), cq: cq, sent: sent, qp: qp, client: client}
	w.buf = make([]byte, chainSend)
	if w.mr, err = s.pd.RegMR(w.buf, len(w.buf), verbs.LocalWrite); err != nil {
		return err
	}
	w.rt.Go("worker", func() {
		if err := w.serve(); !errors.Is(err, verbs.ErrClosed) {
			s.run.rack.Stop(err)
		}
	})
	return nil
}

// chainWorker is a thread of the server's process that answers one client.
type chainWorker struct {
	server *chainServer
	rt     verbs.Runtime
	cq     verbs.CQ // of receives: only a request makes an event
	sent   verbs.CQ
	qp     verbs.QP
	mr     verbs.MR
	buf    []byte
	client redn.Mem
}

// serve answers requests. A request has the place of the key.
func (w *chainWorker) serve() error {
	l, m := &w.server.run.load, w.server.run.model
	var wcs [8]verbs.WC
	recv := verbs.RecvWR{SGL: []verbs.SGE{w.mr.SGE(0, len(w.buf))}}
	if err := w.qp.PostRecv(recv); err != nil {
		return err
	}
	for {
		if err := w.wait(l); err != nil {
			return err
		}
		n, err := w.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if wcs[i].Status != verbs.Success {
				return verbs.ErrClosed // the client has gone
			}
			place := int(w.buf[0])
			took := m.NIC.Completion + l.Serve
			if w.server.list() {
				took += time.Duration(place+1) * chainVisit
			}
			w.rt.Sleep(took)
			if err := w.qp.PostRecv(recv); err != nil {
				return err
			}
			var answered [8]verbs.WC
			if _, err := w.sent.Poll(answered[:]); err != nil {
				return err
			}
			d := &w.server.run.data
			err := w.qp.PostSend(verbs.SendWR{
				Op: verbs.OpWriteImm, Flags: verbs.Signalled, Imm: redn.Hit, SGL: []verbs.SGE{w.server.mr.SGE(d.valueAt(place), d.value)},
				RemoteAddr: w.client.Addr + chainSend, RKey: w.client.RKey,
			})
			if err != nil {
				return err
			}
		}
	}
}

// wait waits for a completion: it polls, or sleeps until an event.
func (w *chainWorker) wait(l *experiment.RedN) error {
	if l.Way == experiment.WayPolling {
		return w.cq.Wait(clock.Never)
	}
	if err := w.cq.Arm(false); err != nil {
		return err
	}
	if err := w.cq.WaitEvent(clock.Never); err != nil {
		return err
	}
	w.rt.Sleep(l.Wake)
	return nil
}
