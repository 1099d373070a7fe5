package serve

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// queueObject is a completion queue, queue pair or shared receive queue with the memory of its rings; one of cq, qp and
// srq is set.
type queueObject struct {
	cq     verbs.CQ
	qp     verbs.QP
	srq    verbs.SRQ
	kind   kind
	bytes  []byte
	queued int64
	bell   uint32
}

// Sizes of what the NIC keeps for an entry, in bytes, about.
const (
	wcBytes   = 48
	wrBytes   = 128
	sgeBytes  = 16
	ringBytes = 64 // of an entry in shared memory
)

// publish maps the rings of an object that was made, and shows it to the pump. On error the object is the caller's.
func (c *client) publish(o *queueObject, out proto.Queue, port func(b []byte) belled, known func(p *port)) (any, []int, error) {
	fd, bytes, err := newMemory("verbs-queue", out.Length)
	if err != nil {
		return nil, nil, err
	}
	o.bytes = bytes
	belled := port(bytes)
	ok := false
	c.s.with(func(e *engine.Engine) {
		c.s.noticeDown(e)
		if out.Bell, ok = c.port.addBell(belled); ok {
			known(c.port)
			out.Incarnation = c.port.ctl.Incarnation.Load()
		}
	})
	if !ok {
		return nil, nil, errors.Join(limitError("create queue", "no doorbell is left"), closeAll([]int{fd}), ring.Unmap(bytes))
	}
	o.bell = out.Bell
	out.H = c.put(o)
	return out, []int{fd}, nil
}

// retire takes an object that is gone from the pump and unmaps its rings.
func (c *client) retire(h uint32, o *queueObject, unknown func(p *port)) error {
	c.s.with(func(*engine.Engine) {
		c.port.bells[o.bell] = nil
		unknown(c.port)
	})
	c.drop(h)
	err := ring.Unmap(o.bytes)
	o.bytes = nil
	c.giveBack(o.kind, 0, o.queued)
	return err
}

// createCQ makes a completion queue.
func (c *client) createCQ(a proto.CreateCQ) (any, []int, error) {
	const op = "create CQ"
	queued := int64(min(max(a.Depth, 0), 1<<30))*wcBytes + int64(min(max(a.Depth, 0), ring.MaxCompletions))*ringBytes
	if err := c.reserve(op, kindCQ, 0, queued); err != nil {
		return nil, nil, err
	}
	cq, err := c.ctx.CreateCQ(a.Depth)
	if err != nil {
		c.giveBack(kindCQ, 0, queued)
		return nil, nil, err
	}
	e := binding.EngineCQ(cq)
	slots := min(a.Depth, ring.MaxCompletions)
	o := &queueObject{cq: cq, kind: kindCQ, queued: queued}
	out := proto.Queue{Number: e.ID(), Slots: slots, Length: ring.QueueLen(slots, ring.WCSlot)}
	var own *cqPort
	res, fds, err := c.publish(o, out, func(b []byte) belled {
		own = &cqPort{cq: e, q: ring.NewQueue(b, slots, ring.WCSlot)}
		return own
	}, func(p *port) {
		p.cqs = append(p.cqs, own)
		c.s.cqs[e.ID()] = p
	})
	if err != nil {
		c.giveBack(kindCQ, 0, queued)
		return nil, nil, errors.Join(err, cq.Destroy())
	}
	return res, fds, nil
}

func (c *client) destroyCQ(a proto.Handle) (any, error) {
	o, err := c.queue("destroy CQ", a.H, kindCQ)
	if err != nil {
		return nil, err
	}
	if err = o.cq.Destroy(); !gone(err) {
		return nil, err
	}
	e := binding.EngineCQ(o.cq)
	return nil, errors.Join(err, c.retire(a.H, o, func(p *port) {
		for i, q := range p.cqs {
			if q.cq == e {
				p.cqs = append(p.cqs[:i:i], p.cqs[i+1:]...)
				break
			}
		}
		c.s.disown(c.s.cqs, e.ID(), p)
	}))
}

// disown forgets whose a number is, unless it is somebody else's by now.
func (s *Server) disown(owners map[uint32]*port, n uint32, p *port) {
	if owners[n] == p {
		delete(owners, n)
	}
}

// queue finds an object with rings.
func (c *client) queue(op string, h uint32, k kind) (*queueObject, error) {
	o, err := get[*queueObject](c, op, h)
	if err == nil && o.kind != k {
		_, err = get[struct{}](c, op, 0) // names no such object
	}
	return o, err
}

// createSRQ makes a shared receive queue.
func (c *client) createSRQ(a proto.CreateSRQ) (any, []int, error) {
	const op = "create SRQ"
	pd, err := get[*pdObject](c, op, a.PD)
	if err != nil {
		return nil, nil, err
	}
	n, sge := orDefault(a.Init.MaxWR, 128), orDefault(a.Init.MaxSGE, 4)
	queued := bounded(n) * (wrBytes + bounded(sge)*sgeBytes)
	if err := c.reserve(op, kindSRQ, 0, queued); err != nil {
		return nil, nil, err
	}
	srq, err := pd.pd.CreateSRQ(a.Init)
	if err != nil {
		c.giveBack(kindSRQ, 0, queued)
		return nil, nil, err
	}
	attr, err := srq.Query()
	if err != nil {
		c.giveBack(kindSRQ, 0, queued)
		return nil, nil, err
	}
	e := binding.EngineSRQ(srq)
	slots, slot := min(n, ring.MaxPosts), ring.RecvSlot(sge)
	o := &queueObject{srq: srq, kind: kindSRQ, queued: queued}
	out := proto.Queue{Number: attr.ID, Slots: slots, RecvSlot: slot, Length: ring.QueueLen(slots, slot)}
	res, fds, err := c.publish(o, out, func(b []byte) belled {
		return &srqPort{srq: e, recv: posts{q: ring.NewQueue(b, slots, slot), slot: slot, maxSGE: sge}}
	}, func(p *port) { c.s.srqs[attr.ID] = p })
	if err != nil {
		c.giveBack(kindSRQ, 0, queued)
		return nil, nil, errors.Join(err, srq.Destroy())
	}
	return res, fds, nil
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

// bounded is a number of an application that shall be multiplied; the NIC refuses what it cuts off.
func bounded(v int) int64 { return int64(min(max(v, 0), 1<<20)) }

func (c *client) querySRQ(a proto.Handle) (any, error) {
	o, err := c.queue("query SRQ", a.H, kindSRQ)
	if err != nil {
		return nil, err
	}
	attr, err := o.srq.Query()
	return attr, err
}

func (c *client) limitSRQ(a proto.Limit) (any, error) {
	o, err := c.queue("modify SRQ", a.H, kindSRQ)
	if err != nil {
		return nil, err
	}
	return nil, o.srq.SetLimit(a.N)
}

func (c *client) destroySRQ(a proto.Handle) (any, error) {
	o, err := c.queue("destroy SRQ", a.H, kindSRQ)
	if err != nil {
		return nil, err
	}
	attr, _ := o.srq.Query() // of a dead one nobody has the number
	if err = o.srq.Destroy(); !gone(err) {
		return nil, err
	}
	return nil, errors.Join(err, c.retire(a.H, o, func(p *port) { c.s.disown(c.s.srqs, attr.ID, p) }))
}

func (c *client) createAH(a proto.CreateAH) (any, error) {
	pd, err := get[*pdObject](c, "create AH", a.PD)
	if err != nil {
		return nil, err
	}
	if err := c.reserve("create AH", kindAH, 0, 0); err != nil {
		return nil, err
	}
	ah, err := pd.pd.CreateAH(a.Attr)
	if err != nil {
		c.giveBack(kindAH, 0, 0)
		return nil, err
	}
	h := c.put(&ahObject{ah})
	c.s.with(func(*engine.Engine) { c.port.ahs[h] = ah })
	return proto.Address{H: h, Number: ah.Handle()}, nil
}

func (c *client) destroyAH(a proto.Handle) (any, error) {
	o, err := get[*ahObject](c, "destroy AH", a.H)
	if err != nil {
		return nil, err
	}
	if err = o.ah.Destroy(); gone(err) {
		c.drop(a.H)
		c.s.with(func(*engine.Engine) { delete(c.port.ahs, a.H) })
		c.giveBack(kindAH, 0, 0)
	}
	return nil, err
}
