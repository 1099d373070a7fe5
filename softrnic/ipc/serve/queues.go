package serve

import (
	"cmp"
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// queues executes the calls of one client that concern completion queues, queue pairs, shared
// receive queues and address handles.
type queues struct {
	c       *client
	objects *objects
	pump    *pump
}

// queueObject is a completion queue, queue pair or shared receive queue with the memory of its
// rings; one of cq, qp and srq is set.
type queueObject struct {
	cq     verbs.CQ
	qp     verbs.QP
	srq    verbs.SRQ
	kind   kind
	bytes  []byte
	queued int64
	bell   uint32
	groups attachments // multicast groups of a queue pair
}

// Approximate sizes in bytes, by which queues count against the quota QueueBytes.
const (
	wcBytes   = 56  // a completion in a queue of the NIC
	wrBytes   = 128 // a work request in a queue of the NIC, without its SGEs
	sgeBytes  = 16  // an SGE
	ringBytes = 64  // a completion in the shared ring
)

// publish maps the rings of a new object and makes the pump serve the object. For that it calls
// port, which makes the pump's part of the object from the mapped rings b, and then known, which
// enters the object into the pump's tables. If publish fails, it calls destroy, which destroys the
// object.
func (x queues) publish(o *queueObject, destroy func() error, out proto.Queue, port func(b []byte) belled, known func(p *port)) (any, []int, error) {
	fail := func(err error) (any, []int, error) {
		x.objects.giveBack(o.kind, 0, o.queued)
		return nil, nil, errors.Join(err, destroy())
	}
	fd, bytes, err := newMemory("verbs-queue", out.Length)
	if err != nil {
		return fail(err)
	}
	o.bytes = bytes
	belled := port(bytes)
	ok := false
	x.pump.with(func(e *engine.Engine) {
		x.pump.noticeDown(e)
		if out.Bell, ok = x.c.port.addBell(belled); ok {
			known(x.c.port)
			out.Incarnation = x.c.port.ctl.Incarnation.Load()
		}
	})
	if !ok {
		return fail(errors.Join(limitError("create queue", "no doorbell is left; destroy a queue or queue pair first"), closeAll([]int{fd}), ring.Unmap(bytes)))
	}
	o.bell = out.Bell
	out.H = x.objects.put(o)
	return out, []int{fd}, nil
}

// retire is called after an attempt to destroy an object; destroyed is the error of the attempt. If
// the object no longer exists, retire makes the pump forget the object, and unmaps the object's
// rings. It calls the function `unknown` to remove the object from the pump's tables.
func (x queues) retire(h uint32, o *queueObject, destroyed error, unknown func(p *port)) error {
	if !gone(destroyed) {
		return destroyed
	}
	x.pump.with(func(*engine.Engine) {
		x.c.port.bells[o.bell] = nil
		unknown(x.c.port)
	})
	x.objects.drop(h)
	err := ring.Unmap(o.bytes)
	o.bytes = nil
	x.objects.giveBack(o.kind, 0, o.queued)
	o.groups.forget(x.c)
	return errors.Join(destroyed, err)
}

func (x queues) createCQ(a proto.CreateCQ) (any, []int, error) {
	const op = "create CQ"
	queued := cqBytes(a.Depth) + int64(min(max(a.Depth, 0), ring.MaxCompletions))*ringBytes
	cq, err := made(x.objects, op, kindCQ, queued, func() (verbs.CQ, error) { return x.c.ctx.CreateCQ(a.Depth) })
	if err != nil {
		return nil, nil, err
	}
	e := verbsengine.EngineCQ(cq)
	slots := min(a.Depth, ring.MaxCompletions)
	o := &queueObject{cq: cq, kind: kindCQ, queued: queued}
	out := proto.Queue{Number: e.ID(), Slots: slots, Length: ring.QueueLen(slots, ring.WCSlot)}
	var own *cqPort
	return x.publish(o, cq.Destroy, out, func(b []byte) belled {
		own = &cqPort{cq: e, q: ring.NewQueue(b, slots, ring.WCSlot)}
		return own
	}, func(p *port) {
		p.cqs = append(p.cqs, own)
		x.pump.cqs[e.ID()] = p
	})
}

// cqBytes is the memory of the NIC for a completion queue in bytes.
func cqBytes(depth int) int64 { return int64(min(max(depth, 0), 1<<30)) * wcBytes }

// resizeCQ changes the depth of the NIC's queue. The ring keeps its size: it only carries
// completions from the NIC's queue to the application.
func (x queues) resizeCQ(a proto.ResizeCQ) (any, error) {
	const op = "resize CQ"
	o, err := x.objects.queue(op, a.H, kindCQ)
	if err != nil {
		return nil, err
	}
	var before int
	x.pump.with(func(*engine.Engine) {
		q, dead := verbsengine.EngineCQ(o.cq).Queue()
		if err = dead; err == nil {
			before = q.Cap()
		}
	})
	if err != nil {
		return nil, err
	}
	return nil, x.resize(op, o, cqBytes(a.Depth)-cqBytes(before), func() error { return o.cq.Resize(a.Depth) })
}

func (x queues) moderateCQ(a proto.ModerateCQ) (any, error) {
	return nil, x.on("moderate CQ", a.H, kindCQ, func(o *queueObject) error { return o.cq.Moderate(a.Count, a.Period) })
}

// resize counts the change of an object's size in bytes against the quota, and calls the function
// `do`, which makes the change.
func (x queues) resize(op string, o *queueObject, change int64, do func() error) error {
	more := need{kindQueued, max(change, 0)}
	if err := x.objects.take(op, more); err != nil {
		return err
	}
	if err := do(); err != nil {
		x.objects.release(more)
		return err
	}
	x.objects.release(need{kindQueued, max(-change, 0)})
	o.queued += change
	return nil
}

func (x queues) destroyCQ(a proto.Handle) (any, error) {
	return nil, x.on("destroy CQ", a.H, kindCQ, func(o *queueObject) error {
		e := verbsengine.EngineCQ(o.cq)
		return x.retire(a.H, o, o.cq.Destroy(), func(p *port) {
			p.cqs = slices.DeleteFunc(p.cqs, func(m mover) bool { q, ok := m.(*cqPort); return ok && q.cq == e })
			disown(x.pump.cqs, e.ID(), p)
		})
	})
}

// disown removes queue pair or queue number n from owners, which says which application owns it. It
// does nothing if the number already belongs to another application than that of port p.
func disown[N comparable](owners map[N]*port, n N, p *port) {
	if owners[n] == p {
		delete(owners, n)
	}
}

// on calls f for the object of kind k with handle h.
func (x queues) on(op string, h uint32, k kind, f func(o *queueObject) error) error {
	o, err := x.objects.queue(op, h, k)
	if err != nil {
		return err
	}
	return f(o)
}

func (x queues) createSRQ(a proto.CreateSRQ) (any, []int, error) {
	const op = "create SRQ"
	pd, err := get[verbs.PD](x.objects, op, a.PD)
	if err != nil {
		return nil, nil, err
	}
	n, sge := cmp.Or(a.Init.MaxWR, 128), cmp.Or(a.Init.MaxSGE, 4)
	queued := srqBytes(n, sge)
	var attr verbs.SRQAttr
	srq, err := made(x.objects, op, kindSRQ, queued, func() (verbs.SRQ, error) {
		srq, err := pd.CreateSRQ(a.Init)
		if err == nil {
			attr, err = srq.Query()
		}
		return srq, err
	})
	if err != nil {
		return nil, nil, err
	}
	e := verbsengine.EngineSRQ(srq)
	slots, slot := min(n, ring.MaxPosts), ring.RecvSlot(sge)
	o := &queueObject{srq: srq, kind: kindSRQ, queued: queued}
	out := proto.Queue{Number: attr.ID, Slots: slots, RecvSlot: slot, Length: ring.QueueLen(slots, slot)}
	return x.publish(o, srq.Destroy, out, func(b []byte) belled {
		return &srqPort{srq: e, recv: posts{q: ring.NewQueue(b, slots, slot), slot: slot, maxSGE: sge}}
	}, func(p *port) { x.pump.srqs[attr.ID] = p })
}

// bounded limits a number from an application before it is multiplied. The NIC itself refuses
// numbers that are too large.
func bounded(v int) int64 { return int64(min(max(v, 0), 1<<20)) }

func (x queues) querySRQ(a proto.Handle) (any, error) {
	o, err := x.objects.queue("query SRQ", a.H, kindSRQ)
	if err != nil {
		return nil, err
	}
	return o.srq.Query()
}

func (x queues) limitSRQ(a proto.Limit) (any, error) {
	return nil, x.on("modify SRQ", a.H, kindSRQ, func(o *queueObject) error { return o.srq.SetLimit(a.N) })
}

// srqBytes is the memory of the NIC for a shared receive queue in bytes.
func srqBytes(n, sge int) int64 { return bounded(n) * (wrBytes + bounded(sge)*sgeBytes) }

// resizeSRQ changes the capacity of the NIC's queue; the ring keeps its size.
func (x queues) resizeSRQ(a proto.Limit) (any, error) {
	const op = "modify SRQ"
	o, err := x.objects.queue(op, a.H, kindSRQ)
	if err != nil {
		return nil, err
	}
	attr, err := o.srq.Query()
	if err != nil {
		return nil, err
	}
	change := srqBytes(a.N, attr.MaxSGE) - srqBytes(attr.MaxWR, attr.MaxSGE)
	return nil, x.resize(op, o, change, func() error { return o.srq.Resize(a.N) })
}

func (x queues) destroySRQ(a proto.Handle) (any, error) {
	return nil, x.on("destroy SRQ", a.H, kindSRQ, func(o *queueObject) error {
		attr, _ := o.srq.Query() // fails if the queue has ended with its NIC: then its number is 0
		return x.retire(a.H, o, o.srq.Destroy(), func(p *port) { disown(x.pump.srqs, attr.ID, p) })
	})
}

func (x queues) createAH(a proto.CreateAH) (any, error) {
	pd, err := get[verbs.PD](x.objects, "create AH", a.PD)
	if err != nil {
		return nil, err
	}
	ah, err := made(x.objects, "create AH", kindAH, 0, func() (verbs.AH, error) { return pd.CreateAH(a.Attr) })
	if err != nil {
		return nil, err
	}
	h := x.objects.put(ah)
	x.pump.with(func(*engine.Engine) { x.c.port.ahs[h] = ah })
	return proto.Address{H: h, Number: ah.Handle()}, nil
}

func (x queues) destroyAH(a proto.Handle) (any, error) {
	return ended(x.objects, "destroy AH", a.H, kindAH, func(o verbs.AH) error {
		err := o.Destroy()
		if gone(err) {
			x.pump.with(func(*engine.Engine) { delete(x.c.port.ahs, a.H) })
		}
		return err
	})
}
