package chains

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// repeats is how many constructs of RedN (if, or a round of while) a program executes in a row to
// measure their rate; nicRepeats if the program is in the memory of the NIC.
const repeats, nicRepeats = 200, 40

func (r *Run) repeats() int {
	if r.Load.OnNIC {
		return nicRepeats
	}
	return repeats
}

// verb measures the times of a client's one-sided requests of the kind Load.Way, one at a time.
func (r *Run) verb(e *endpoint) error {
	ops := map[string]verbs.WROpcode{"WRITE": verbs.OpWrite, "READ": verbs.OpRead, "CAS": verbs.OpCmpSwap, "ADD": verbs.OpFetchAdd}
	op, ok := ops[r.Load.Way]
	if !ok {
		return fmt.Errorf("RedN: request %.20q is not known", r.Load.Way)
	}
	n := r.Load.Bytes
	if op == verbs.OpCmpSwap || op == verbs.OpFetchAdd {
		n = 8
	}
	wr := verbs.SendWR{Op: op, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(0, n)}, RemoteAddr: e.base + uint64(r.data.valueAt(0))&^7, RKey: e.rkey}
	for range r.rounds() {
		if r.stopped() {
			return verbs.ErrClosed
		}
		begin := e.rt.Now()
		if err := e.qp.PostSend(wr); err != nil {
			return err
		}
		if _, _, _, err := e.await(); err != nil {
			return err
		}
		r.note(e.rt.Now().Sub(begin))
	}
	return nil
}

// RunAlone runs a load that needs no client: a program on the NIC of the machine.
func (r *Run) RunAlone(m Machine) error {
	m.onNIC = r.Load.OnNIC
	pd, err := m.Context.AllocPD()
	if err != nil {
		return err
	}
	p, err := newProgram(m, pd, programLen, 1)
	if err != nil {
		return err
	}
	switch {
	case r.Load.Kind == experiment.ChainOrder:
		return r.order(p)
	case r.Load.Way == "while recycled":
		return r.laps(p)
	}
	return r.constructs(p)
}

// timed starts the program and returns how long it takes until n requests of queue number `queue`
// have completed. It returns an error if a request has failed.
func (p *program) timed(queue, n int) (time.Duration, error) {
	var wcs [16]verbs.WC
	cq, now := p.CQs[2*queue], p.Context.Runtime().Now
	begin := now()
	if err := p.Start(); err != nil {
		return 0, err
	}
	for n > 0 {
		if err := cq.Wait(now().Add(patience)); err != nil {
			return 0, err
		}
		k, err := cq.Poll(wcs[:])
		if err != nil {
			return 0, err
		}
		for i := range wcs[:k] {
			if s := wcs[i].Status; s != verbs.Success {
				return 0, fmt.Errorf("queue %s: a request ends with %v", p.Queues[queue].Name, s)
			}
		}
		n -= k
	}
	return now().Sub(begin), nil
}

// order measures the time of a chain of Load.N no-ops in the ordering mode Load.Way. The cost model
// counts the times of doorbell and completion only for requests that send frames, so order adds
// them.
func (r *Run) order(p *program) error {
	n := max(1, r.Load.N)
	main := p.queue("main", 4*n, verbs.RingInit{}, true)
	if p.err != nil {
		return p.err
	}
	last, completions := 0, n
	switch r.Load.Way {
	case "WQ order":
		for range n - 1 {
			main.Nop(0)
		}
		main.Nop(sendring.Signalled)
		completions = 1
	case "completion order":
		main.Nop(sendring.Signalled)
		for range n - 1 {
			main.Wait(main.Done)
			main.Nop(sendring.Signalled)
		}
	case "doorbell order":
		managed := p.queue("managed", n, unrolled, true)
		if p.err != nil {
			return p.err
		}
		main.Nop(sendring.Signalled)
		main.Wait(main.Done)
		for i := range n - 1 {
			if i > 0 {
				main.Wait(managed.Done)
			}
			managed.Nop(sendring.Signalled)
			main.Enable(managed)
		}
		if n > 1 {
			last, completions = 1, n-1
		}
	default:
		return fmt.Errorf("RedN: ordering mode %.20q is not known", r.Load.Way)
	}
	took, err := p.timed(last, completions)
	if err == nil {
		r.note(took + r.Doorbell + r.Completion)
	}
	return err
}

// operand puts an operand into the program's pool of constants, and returns its memory.
func (p *program) operand(y redn.Operand) redn.Mem {
	return p.Pool.Put(binary.LittleEndian.AppendUint64(nil, uint64(y))).At(0, redn.OperandLen)
}

// condition is the condition that the constructs decide: if the operand at x, or in the conditional request itself
// if x is redn.Held, equals y, src is copied to dst. scratch is memory that may be overwritten.
type condition struct {
	x, src, dst, scratch redn.Mem
	y                    redn.Operand
}

// conditionOperand is the operand of a condition.
const conditionOperand = 0x5a5a5a

// condition makes a condition in the program's pool. equal says whether its operands are equal, held whether the
// conditional request holds one of them.
func (p *program) condition(equal, held bool) condition {
	c := condition{y: conditionOperand, src: p.operand(1), dst: p.operand(0), scratch: p.Pool.Put(make([]byte, 8))}
	if !held {
		c.x = p.operand(conditionOperand)
	}
	if !equal {
		c.y++
	}
	return c
}

// ask appends the condition to q and on.
func (c *condition) ask(q, on *redn.Queue) { c.fill(q.If(on, c.x, c.y, c.dst, c.src, c.scratch)) }

// fill puts the operand into conditional requests that hold it.
func (c *condition) fill(asked ...*redn.Request) {
	for _, a := range asked {
		if c.x == redn.Held {
			a.Hold(conditionOperand)
		}
	}
}

// constructs measures how many conditions, or iterations of an unrolled loop, the NIC executes in a
// second.
func (r *Run) constructs(p *program) error {
	n := r.repeats()
	master := p.queue("master", 4, verbs.RingInit{}, true)
	q, on := p.queue("q", 16*n, unrolled, true), p.queue("on", n, unrolled, true)
	if p.err != nil {
		return p.err
	}
	switch r.Load.Way {
	case "if":
		c := p.condition(true, r.Load.Held)
		for range n {
			c.ask(q, on)
		}
		r.count(n, q, on)
	case "while unrolled":
		c := p.condition(false, r.Load.Held)
		asked, err := q.Unrolled(p.Pool, on, n, c.x, c.y, c.scratch, func(int) {})
		if err != nil {
			return err
		}
		c.fill(asked...)
		r.count(n, q, on)
	default:
		return fmt.Errorf("RedN: construct %.20q is not known", r.Load.Way)
	}
	master.Enable(q)
	took, err := p.timed(2, n)
	if err == nil {
		r.out.Rate = float64(n) / took.Seconds()
	}
	return err
}

// count stores in r.out how many work requests of each kind a construct takes. queues have the requests of n constructs.
func (r *Run) count(n int, queues ...*redn.Queue) {
	c := redn.CostOf(queues...)
	r.out.Copies, r.out.Atomics, r.out.Controls = c.Copies/n, c.Atomics/n, c.Controls/n
}

// laps measures how many laps a recycled loop makes in a second. The body of the loop is a
// condition.
func (r *Run) laps(p *program) error {
	master, begin := p.queue("master", 4, verbs.RingInit{}, true), p.queue("begin", 16, unrolled, true)
	q, on := p.queue("q", 16, recycled, true), p.queue("on", 1, recycled, true)
	if p.err != nil {
		return p.err
	}
	l, err := q.Recycle(p.Pool, on)
	if err != nil {
		return err
	}
	c := p.condition(true, r.Load.Held)
	c.ask(q, on)
	if err := l.End(); err != nil {
		return err
	}
	r.count(1, q, on)
	l.Start(begin)
	master.Enable(begin)
	if err := p.Start(); err != nil {
		return err
	}
	// The last request of the ring is the ENABLE that starts the next lap. Each lap raises the
	// limit in this request by the length of the ring, so the limit tells how many laps there were.
	blocks := q.Ring.Len / sendring.BlockSize
	limit := func() (uint16, error) {
		var b [4]byte
		err := p.MR.ReadAt(b[:], int(q.Ring.Addr-p.MR.Addr())+q.Ring.Len-sendring.BlockSize+sendring.OffCount)
		return binary.BigEndian.Uint16(b[2:]), err
	}
	rt := p.Context.Runtime()
	rt.Sleep(r.Span / 10)
	from, err := limit()
	if err != nil {
		return err
	}
	since := rt.Now()
	rt.Sleep(r.Span)
	to, err := limit()
	r.out.Rate = float64(int(to-from)/blocks) / rt.Now().Sub(since).Seconds()
	return err
}
