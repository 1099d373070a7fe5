package serve

import (
	"errors"
	"math/bits"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

const (
	controlPages = ring.ControlLen
	// maxProgramCQE is the largest number of entries of a program's completion queue: that of mlx5.
	maxProgramCQE = 1<<22 - 1
)

// mostCQE returns how many entries a program's completion queue may have; nic is the largest number
// of entries of a completion queue of the NIC. The size of a ring is a power of two, and one entry of
// the ring stays free; the NIC's queue has as many entries as the ring can hold.
func mostCQE(nic int) int { return min(1<<(bits.Len(uint(nic)+1)-1)-1, maxProgramCQE) }

// refuse returns the error EINVAL for an attribute that is too large or too small. A program only
// sees the number; the text is for the log and the status.
func refuse(op, format string, args ...any) error {
	return verbs.Errorf(op, verbs.ErrInvalid, format, args...)
}

// within returns an error if an attribute of a new object is not from least to most.
func within(op, what string, n, least, most uint32) error {
	if n < least || n > most {
		return refuse(op, "%s is %d; the NIC takes %d to %d", what, n, least, most)
	}
	return nil
}

// place is the position and the length of a ring in the area, the memory file of a program's rings.
type place struct{ at, n int }

// makeRing allocates a ring of n entries in the area, the memory file of a program's rings.
func (x *programQueues) makeRing(n, entry int) (uverbs.Ring, place, uverbs.Area, error) {
	l := uverbs.RingLen(n, entry)
	at, bytes, ok := x.area.take(l)
	if !ok {
		return uverbs.Ring{}, place{}, uverbs.Area{}, limitError("create queue", "no room for %d bytes of rings", l)
	}
	return uverbs.NewRing(bytes, n, entry), place{at, l}, uverbs.Area{Offset: uint64(at), Size: uint32(l)}, nil
}

func (x *programQueues) drop(places ...place) {
	for _, l := range places {
		x.area.give(l.at, l.n)
	}
}

// with calls f with exclusive use of the engine, so that f may change the objects on which the pump
// works.
func (p *program) with(f func(port *port)) {
	p.c.s.pump.with(func(e *engine.Engine) {
		p.c.s.pump.noticeDown(e)
		f(p.c.port)
	})
}

func (x *programQueues) createAH(pd verbs.PD, a uverbs.AHArgs) (result, error) {
	if a.Attr.Port != 1 || a.Attr.Global == 0 {
		return result{}, unix.EINVAL
	}
	ah, err := made(&x.p.c.objects, "create AH", kindAH, 0, func() (verbs.AH, error) {
		return pd.CreateAH(verbs.AHAttr{
			DestGID: a.Attr.DestGID, SourceGID: int(a.Attr.SourceGID), TrafficClass: a.Attr.TClass, HopLimit: a.Attr.Hop, FlowLabel: a.Attr.Flow & flowLabel,
		})
	})
	if err != nil {
		return result{}, err
	}
	h, num := x.p.add(uAH, ah), ah.Handle()
	x.p.with(func(port *port) { port.ahs[num] = ah })
	return answer(uverbs.AH{H: h, Num: num}), nil
}

func (x *programQueues) destroyAH(ah verbs.AH, a uverbs.Handle) (result, error) {
	num := ah.Handle()
	return result{}, x.p.destroy(uAH, a.H, kindAH, 0, func() error {
		err := ah.Destroy()
		if gone(err) {
			x.p.with(func(port *port) { delete(port.ahs, num) })
		}
		return err
	})
}

// flowLabel is the mask of a flow label, which has 20 bits.
const flowLabel = 0xfffff

// cqObject is a completion queue with the place of its ring. queued is the memory that is counted
// for it against the quota QueueBytes.
type cqObject struct {
	cq     verbs.CQ
	own    *programCQ
	place  place
	queued int64
}

func (x *programQueues) createCQ(c uverbs.Command) (result, error) {
	a, ok := uverbs.Decode[uverbs.CQArgs](c)
	if !ok {
		return result{}, unix.EINVAL
	}
	cq, mi, err := x.makeCQ(c.Channel, a, 0)
	return answer(cq, mi), err
}

func (x *programQueues) createCQEx(c uverbs.Command) (result, error) {
	a, ok := uverbs.Decode[uverbs.ExCQArgs](c)
	switch {
	case !ok || a.CompMask != 0:
		return result{}, unix.EINVAL
	case a.Flags&^(uverbs.CQTimestamps|uverbs.CQIgnoreOverrun) != 0:
		return result{}, unix.EOPNOTSUPP
	}
	cq, mi, err := x.makeCQ(c.Channel, uverbs.CQArgs{User: a.User, CQE: a.CQE, Vector: a.Vector, Channel: a.Channel}, a.Flags)
	ex := uverbs.Ex{}
	ex.Length = uint32(len(uverbs.Encode(cq, ex)))
	return answer(cq, ex, mi), err
}

// makeCQ makes a completion queue. channel is the number of a completion channel, if the program
// gives one; the preloaded library has replaced the channel's file descriptor by this number. flags are
// those of uverbs.ExCQArgs.
func (x *programQueues) makeCQ(channel uint32, a uverbs.CQArgs, flags uint32) (out uverbs.CQ, mi uverbs.Area, err error) {
	if err = errors.Join(within("create CQ", "cqe", a.CQE, 1, x.p.device().MaxCQE), within("create CQ", "comp_vector", a.Vector, 0, 0)); err != nil {
		return out, mi, err
	}
	own := &programCQ{owner: x.p.newOwner(a.User), number: channel, stamped: flags&uverbs.CQTimestamps != 0}
	if a.Channel >= 0 {
		if own.channel, err = named[*eventQueue](x.p, uChannel, channel); err != nil {
			return out, mi, err
		}
	}
	n := int(a.CQE)
	queued := int64(n)*wcBytes + int64(uverbs.RingLen(n, uverbs.WCSlot))
	o, err := made(&x.p.c.objects, "create CQ", kindCQ, queued, func() (o *cqObject, err error) {
		o = &cqObject{own: own, queued: queued}
		if own.ring, o.place, mi, err = x.makeRing(n, uverbs.WCSlot); err == nil {
			if o.cq, err = x.p.c.ctx.CreateCQ(own.ring.Cap()); err != nil {
				x.drop(o.place)
			}
		}
		return o, err
	})
	if err != nil {
		return out, mi, err
	}
	own.cq = verbsengine.EngineCQ(o.cq)
	x.p.with(func(port *port) {
		port.cqs = append(port.cqs, own)
		x.cqOwners[own.cq.ID()] = &own.owner
		x.p.c.s.pump.cqs[own.cq.ID()] = port
	})
	return uverbs.CQ{H: x.p.add(uCQ, o), CQE: uint32(own.ring.Cap())}, mi, nil
}

func (x *programQueues) destroyCQ(o *cqObject, a uverbs.Handle) (result, error) {
	if err := x.p.destroy(uCQ, a.H, kindCQ, o.queued, o.cq.Destroy); err != nil {
		return result{}, err
	}
	r := result{}
	x.p.with(func(port *port) {
		x.p.c.s.pump.tell()
		port.cqs = slices.DeleteFunc(port.cqs, func(m mover) bool { return m == o.own })
		delete(x.cqOwners, o.own.cq.ID())
		disown(x.p.c.s.pump.cqs, o.own.cq.ID(), port)
		r = answer(uverbs.CQReported{Completions: o.own.channel.withdraw(o.own.tag, o.own.told), Events: x.p.ended(&o.own.owner)})
	})
	r.Element, r.Channel = uint64(o.own.tag), uverbs.NoChannel
	r.Drain = 1 << 1
	if o.own.channel != nil {
		r.Channel, r.Drain = o.own.number, 1<<0|1<<1
	}
	x.drop(o.place)
	return r, nil
}

// notifyCQ arms a completion queue. First it copies all completions from the NIC's queue to the
// program's ring, because the program polls the ring after this command.
func (x *programQueues) notifyCQ(o *cqObject, a uverbs.Notify) (result, error) {
	x.p.with(func(port *port) {
		o.own.fetch(port)
		if o.own.channel != nil {
			o.own.channel.flush()
		}
		if q, err := o.own.cq.Queue(); err == nil {
			q.Arm(a.Solicited != 0)
		}
	})
	return result{}, nil
}

// modifyCQ moderates the events of a completion queue. The rxe provider has no function for it, our
// own has.
func (x *programQueues) modifyCQ(o *cqObject, a uverbs.ModifyCQArgs) (result, error) {
	switch {
	case a.Mask == 0 || a.Reserved != 0:
		return result{}, unix.EINVAL
	case a.Mask != uverbs.MaskModerate:
		return result{}, unix.EOPNOTSUPP
	}
	return result{}, o.cq.Moderate(int(a.Count), time.Duration(a.Period)*time.Microsecond)
}

// srqObject is a shared receive queue with its ring and the ring's place. queued is the memory that
// is counted for the queue against the quota QueueBytes. attr has the attributes with which the
// queue was made.
type srqObject struct {
	srq    verbs.SRQ
	recv   *receiveRing
	own    owner
	place  place
	queued int64
	attr   verbs.SRQAttr
}

func (x *programQueues) createSRQ(pd verbs.PD, a uverbs.SRQArgs) (result, error) {
	return x.makeSRQ(pd, a, verbs.SRQInit{})
}

// makeSRQ makes a shared receive queue. init says whether it is of XRC.
func (x *programQueues) makeSRQ(pd verbs.PD, a uverbs.SRQArgs, init verbs.SRQInit) (result, error) {
	const op = "create SRQ"
	d := x.p.device()
	if err := errors.Join(within(op, "max_wr", a.MaxWR, 1, d.MaxSRQWR), within(op, "max_sge", a.MaxSGE, 0, d.MaxSRQSGE)); err != nil {
		return result{}, err
	}
	a.MaxSGE = max(a.MaxSGE, 1) // as rxe_srq_chk_init raises it; receives without data need no SGE
	n, slot := int(a.MaxWR), uverbs.RecvSlot(int(a.MaxSGE))
	queued := int64(uverbs.RingLen(n, slot)) + int64(n)*(wrBytes+int64(a.MaxSGE)*sgeBytes)
	var mi uverbs.Area
	o, err := made(&x.p.c.objects, op, kindSRQ, queued, func() (o *srqObject, err error) {
		o = &srqObject{queued: queued, own: x.p.newOwner(a.User), recv: &receiveRing{port: x.p.c.port}}
		if o.recv.ring, o.place, mi, err = x.makeRing(n, slot); err != nil {
			return o, err
		}
		init.MaxWR, init.MaxSGE = n, int(a.MaxSGE)
		if o.srq, err = pd.CreateSRQ(init); err == nil {
			o.attr, err = o.srq.Query()
		}
		if err != nil {
			x.drop(o.place)
		}
		return o, err
	})
	if err != nil {
		return result{}, err
	}
	o.recv.scratch = make([]byte, o.recv.ring.SlotLen())
	x.p.with(func(port *port) {
		verbsengine.EngineSRQ(o.srq).TakeReceives(o.recv)
		x.srqOwners[o.attr.ID] = &o.own
		x.p.c.s.pump.srqs[o.attr.ID] = port
	})
	return answer(uverbs.SRQ{H: x.p.add(uSRQ, o), MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Num: o.attr.ID}, mi, uverbs.SRQNum{Num: o.attr.ID}), nil
}

func (x *programQueues) modifySRQ(o *srqObject, a uverbs.ModifySRQArgs) (result, error) {
	switch {
	case a.Mask&^uverbs.MaskSRQLimit != 0:
		return result{}, unix.EOPNOTSUPP // shared receive queues cannot be resized here
	case a.Mask == 0:
		return result{}, nil
	case a.Limit > uint32(o.attr.MaxWR):
		return result{}, unix.EINVAL
	}
	return result{}, o.srq.SetLimit(int(a.Limit))
}

func (x *programQueues) querySRQ(o *srqObject, _ uverbs.Handle) (result, error) {
	attr, err := o.srq.Query()
	return answer(uverbs.SRQAttr{MaxWR: uint32(attr.MaxWR), MaxSGE: uint32(attr.MaxSGE), Limit: uint32(attr.Limit)}), err
}

func (x *programQueues) destroySRQ(o *srqObject, a uverbs.Handle) (result, error) {
	if err := x.p.destroy(uSRQ, a.H, kindSRQ, o.queued, o.srq.Destroy); err != nil {
		return result{}, err
	}
	r := result{}
	x.p.with(func(port *port) {
		x.p.c.s.pump.tell()
		delete(x.srqOwners, o.attr.ID)
		disown(x.p.c.s.pump.srqs, o.attr.ID, port)
		r = answer(uverbs.Reported{Events: x.p.ended(&o.own)})
	})
	r.Element, r.Channel, r.Drain = uint64(o.own.tag), uverbs.NoChannel, 1
	x.drop(o.place)
	return r, nil
}

// programQPObject is a queue pair with the attributes that a query returns: `made` has those with
// which it was made, attr those that modify commands have set. places are the places of its rings.
// queued is the memory that is counted for it against the quota QueueBytes. state is the state in
// which the last modify command has found the queue pair. target is set for a target of XRC, which has
// neither rings nor a protection domain: then own is nil.
type programQPObject struct {
	qp     verbs.QP
	own    *programQP
	owner  owner
	places []place
	queued int64
	made   uverbs.QPArgs
	attr   uverbs.ModifyQPArgs
	state  uint8
	groups attachments
	target *targetUse
}

// types are the queue pair types by their number in libibverbs.
var types = map[uint8]verbs.QPType{
	uverbs.TypeRC: verbs.RC, uverbs.TypeUC: verbs.UC, uverbs.TypeUD: verbs.UD, uverbs.TypeXRCInitiator: verbs.XRCInitiator, uverbs.TypeXRCTarget: verbs.XRCTarget,
}

func (x *programQueues) createQP(a uverbs.QPArgs) (result, error) {
	out, recv, send, err := x.makeQP(a)
	return answer(out, recv, send), err
}

func (x *programQueues) createQPEx(a uverbs.ExQPArgs) (result, error) {
	if a.CompMask != 0 || a.CreateFlags != 0 || a.SourceQPN != 0 {
		return result{}, unix.EOPNOTSUPP
	}
	out, recv, send, err := x.makeQP(a.QPArgs)
	ex := uverbs.Ex{}
	ex.Length = uint32(len(uverbs.Encode(out, ex)))
	return answer(out, ex, recv, send), err
}

// checkQP checks the attributes of a new queue pair and converts them.
func (x *programQueues) checkQP(a *uverbs.QPArgs) (init verbs.QPInit, err error) {
	const op = "create QP"
	d, mostInline := x.p.device(), uint32(x.p.c.ctx.Device().MaxInline)
	typ, ok := types[a.Type]
	if !ok {
		return init, unix.EOPNOTSUPP
	}
	if typ == verbs.XRCInitiator { // it has no receives, whatever a program asks for
		a.MaxRecv, a.MaxRecvSGE, a.HasSRQ, a.RecvCQ = 0, 0, 0, a.SendCQ
	}
	recvSGE := a.MaxRecvSGE
	if a.HasSRQ != 0 { // max_recv_wr and max_recv_sge are ignored, whatever they are: ibv_create_qp(3)
		recvSGE = 0
	} else if err = errors.Join(within(op, "max_recv_wr", a.MaxRecv, 0, d.MaxQPWR), within(op, "max_recv_sge", recvSGE, 0, d.MaxSGE)); err != nil {
		return init, err
	}
	err = errors.Join(within(op, "max_send_wr", a.MaxSend, 0, d.MaxQPWR), within(op, "max_send_sge", a.MaxSGE, 0, d.MaxSGE),
		within(op, "max_inline_data", a.MaxInline, 0, mostInline))
	if err != nil {
		return init, err
	}
	// Pieces and inline data of a send have the same place in an entry, so each gets as much as the
	// other (rxe_qp_init_req). The word of an ATOMIC_WRITE always has a place there.
	const word = 8
	a.MaxSGE = min(max(a.MaxSGE, a.MaxInline/sgeBytes), d.MaxSGE)
	a.MaxInline = min(max(a.MaxInline, a.MaxSGE*sgeBytes, word), mostInline)
	init = verbs.QPInit{Type: typ, MaxSGE: int(max(a.MaxSGE, recvSGE, 1)), MaxInline: int(a.MaxInline), SignalAll: a.SignalAll != 0}
	send, err := named[*cqObject](x.p, uCQ, a.SendCQ)
	if err != nil {
		return init, err
	}
	recv, err := named[*cqObject](x.p, uCQ, a.RecvCQ)
	if err != nil {
		return init, err
	}
	init.SendCQ, init.RecvCQ = send.cq, recv.cq
	if a.HasSRQ != 0 {
		o, err := named[*srqObject](x.p, uSRQ, a.SRQ)
		if err != nil {
			return init, err
		}
		init.SRQ = o.srq
	}
	return init, nil
}

// makeQP makes a queue pair. Its handle is the number of its bell, the bit by which the program
// announces entries in the send ring.
func (x *programQueues) makeQP(a uverbs.QPArgs) (out uverbs.QP, recvAt, sendAt uverbs.Area, err error) {
	if a.Own == 0 && (a.Type == uverbs.TypeXRCInitiator || a.Type == uverbs.TypeXRCTarget) {
		return out, recvAt, sendAt, unix.EOPNOTSUPP // rdma-core's provider for rxe would map rings that are not there
	}
	if a.Type == uverbs.TypeXRCTarget {
		out, err = x.p.xrc().createTarget(a)
		return out, recvAt, sendAt, err
	}
	pd, err := named[verbs.PD](x.p, uPD, a.PD)
	if err != nil {
		return out, recvAt, sendAt, err
	}
	init, err := x.checkQP(&a)
	if err != nil {
		return out, recvAt, sendAt, err
	}
	sends, recvs := int(max(a.MaxSend, 1)), int(max(a.MaxRecv, 1))
	sendSlot, recvSlot := uverbs.SendSlot(int(a.MaxSGE), init.MaxInline), uverbs.RecvSlot(int(a.MaxRecvSGE))
	queued := int64(uverbs.RingLen(sends, sendSlot)) + int64(sends)*2*(wrBytes+int64(init.MaxSGE*sgeBytes+init.MaxInline))
	receives := init.SRQ == nil && init.Type != verbs.XRCInitiator
	if receives {
		queued += int64(uverbs.RingLen(recvs, recvSlot))
	}
	if err := x.p.c.objects.reserve("create QP", kindQP, 0, queued); err != nil {
		return out, recvAt, sendAt, err
	}
	o := &programQPObject{queued: queued, made: a, owner: x.p.newOwner(a.User)}
	undo := func(err error) error {
		x.drop(o.places...)
		x.p.c.objects.giveBack(kindQP, 0, queued)
		return err
	}
	own := &programQP{sges: init.MaxSGE}
	var at place
	if own.ring, at, sendAt, err = x.makeRing(sends, sendSlot); err != nil {
		return out, recvAt, sendAt, undo(err)
	}
	o.places = append(o.places, at)
	own.slot = own.ring.SlotLen()
	if receives {
		var r uverbs.Ring
		if r, at, recvAt, err = x.makeRing(recvs, recvSlot); err != nil {
			return out, recvAt, sendAt, undo(err)
		}
		o.places = append(o.places, at)
		own.recv = &receiveRing{port: x.p.c.port, ring: r, scratch: make([]byte, r.SlotLen())}
		recvs = r.Cap()
	}
	init.MaxSendWR, init.MaxRecvWR = own.ring.Cap(), 1
	if o.qp, err = pd.CreateQP(init); err != nil {
		return out, recvAt, sendAt, undo(err)
	}
	send, _ := named[*cqObject](x.p, uCQ, a.SendCQ) // checkQP has found it already
	own.qp, own.done, o.own = verbsengine.EngineQP(o.qp), send.own, own
	n := o.qp.QPN()
	var bell uint32
	ok := false
	x.p.with(func(port *port) {
		if bell, ok = port.addBell(own); !ok {
			return
		}
		if own.recv != nil {
			own.qp.TakeReceives(own.recv)
		}
		if x.p.privileged() {
			own.qp.AllowControlledQKey()
		}
		port.settled = append(port.settled, own)
		x.qpOwners[n] = &o.owner
		x.p.c.s.pump.qps[n] = port
	})
	if !ok {
		return out, recvAt, sendAt, undo(errors.Join(limitError("create QP", "no doorbell is left; destroy a queue or queue pair first"), o.qp.Destroy()))
	}
	x.p.objects[uQP][bell] = o
	o.made.MaxRecv = uint32(recvs)
	if !receives {
		o.made.MaxRecv, o.made.MaxRecvSGE = 0, 0
	}
	return uverbs.QP{
		H: bell, QPN: uint32(n), MaxSend: a.MaxSend, MaxRecv: a.MaxRecv, MaxSGE: a.MaxSGE, MaxRecvSGE: a.MaxRecvSGE, MaxInline: a.MaxInline,
	}, recvAt, sendAt, nil
}

func (x *programQueues) destroyQP(o *programQPObject, a uverbs.Handle) (result, error) {
	if o.target != nil {
		return x.p.xrc().closeTarget(o, a.H)
	}
	n := o.qp.QPN()
	if err := x.p.destroy(uQP, a.H, kindQP, o.queued, o.qp.Destroy); err != nil {
		return result{}, err
	}
	o.groups.forget(x.p.c)
	r := result{}
	x.p.with(func(port *port) {
		x.p.c.s.pump.tell()
		port.bells[a.H] = nil
		port.settled = slices.DeleteFunc(port.settled, func(q *programQP) bool { return q == o.own })
		delete(x.qpOwners, n)
		disown(x.p.c.s.pump.qps, n, port)
		r = answer(uverbs.Reported{Events: x.p.ended(&o.owner)})
	})
	r.Element, r.Channel, r.Drain = uint64(o.owner.tag), uverbs.NoChannel, 1
	x.drop(o.places...)
	return r, nil
}

// postSend executes PostSend, by which the preloaded library asks whether a queue pair takes sends:
// the queue pair may have gone to ERROR by itself before RTS. If it does, the entries that wait in
// its send ring are posted.
func (x *programQueues) postSend(o *programQPObject, _ uverbs.Handle) (result, error) {
	if s, _ := x.stateOf(o); s < stateRTS || o.own == nil {
		return result{}, unix.EINVAL
	}
	if err := x.ask(o); err != nil {
		return result{}, err
	}
	x.ring(o)
	return answer(uverbs.Posted{}), nil
}

// ask asks the injected faults about the entries that wait in the send ring of a queue pair. If one is
// refused, ask removes it and those behind it from the ring, posts those before it, and returns the
// refusal, which the program gets from its post. The program waits for the answer, so it writes no
// entries meanwhile.
func (x *programQueues) ask(o *programQPObject) error {
	now, _, out := x.p.c.s.pump.shell.Enter()
	defer x.p.c.s.pump.shell.Leave()
	q := o.own
	if q == nil {
		return nil
	}
	first := q.unchecked()
	allowed, err := q.qp.AllowPost(now, q.ring.Between(first, q.ring.Producer()))
	if err != nil {
		q.ring.SetProducer(first + uint32(allowed))
		q.rung(now, x.p.c.port, out)
	}
	q.checked = q.head + uint32(q.ring.Between(q.head, q.ring.Producer()))
	return err
}

// ring posts the entries that wait in the send ring of a queue pair, as if the program had rung the
// bell.
func (x *programQueues) ring(o *programQPObject) {
	now, _, out := x.p.c.s.pump.shell.Enter()
	defer x.p.c.s.pump.shell.Leave()
	if o.own != nil {
		o.own.rung(now, x.p.c.port, out)
	}
}

func (x *programQueues) queryQP(o *programQPObject, _ uverbs.QueryQPArgs) (result, error) {
	defer o.current()()
	s, draining := x.stateOf(o)
	k, m := &o.attr, &o.made
	out := uverbs.QPAttr{
		Dest: k.Dest, MaxSend: m.MaxSend, MaxRecv: m.MaxRecv, MaxSGE: m.MaxSGE, MaxRecvSGE: m.MaxRecvSGE, MaxInline: m.MaxInline,
		QPNumbers: k.QPNumbers, QPState: k.QPState, SignalAll: m.SignalAll,
	}
	out.State, out.Current = s, s
	if draining {
		out.Draining = 1
	}
	return answer(out), nil
}

// mover is a completion queue that can copy completions from the NIC to the application.
type mover interface{ move(p *port) }
